//! What is wrong with the settings: every mistake at once, each with its place, its key and the rule.

use std::fmt;
use std::path::PathBuf;

use super::keys::{self, Key};
use super::mask;

/// Mistakes told one by one; the rest is counted.
pub(super) const MOST_TOLD: usize = 20;
/// Characters of a name or a value that a message repeats.
const LONGEST_SHOWN: usize = 80;

/// The settings were refused. `Display` gives one line per mistake.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.lines())]
pub struct SettingsError {
    mistakes: Vec<Mistake>,
    untold: usize,
}

impl SettingsError {
    /// The mistakes, in order of source and place; at most 20 per source are told.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    fn lines(&self) -> String {
        let mut lines: Vec<String> = self.mistakes.iter().map(Mistake::to_string).collect();
        if self.untold > 0 {
            lines.push(format!("and {} more mistakes", self.untold));
        }
        lines.join("\n")
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it was made.
    pub origin: Origin,
    /// The key, its value (passwords as `***`), the rule, and what to write instead.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, and the place in it if the mistake has one.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Where the mistake begins.
        position: Option<Position>,
    },
    /// An environment variable, by name.
    Variable(String),
    /// A flag of the command line, by its dotted key.
    Flag(String),
    /// All sources together.
    Merged,
}

/// A place in a file; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Position {
    /// The place of a byte; a place inside a broken character counts as that character.
    pub(super) fn of(text: &[u8], at: usize) -> Self {
        // Editors do not show a byte order mark, nor count it.
        let mark = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let before = &text[mark..at.clamp(mark, text.len())];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            column: String::from_utf8_lossy(&before[line_start..]).chars().count() + 1,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, position: Some(Position { line, column }) } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Self::File { path, position: None } => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {}", shown(name)),
            Self::Flag(key) => write!(f, "flag --set {}=…", shown(key)),
            Self::Merged => f.write_str("settings"),
        }
    }
}

/// Collects the mistakes of one source; costs nothing once [`MOST_TOLD`] are known.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    told: Vec<Mistake>,
    untold: usize,
}

impl Mistakes {
    /// Adds a mistake; the sentence is built only if it will be told.
    pub(super) fn add(&mut self, mistake: impl FnOnce() -> Mistake) {
        if self.told.len() < MOST_TOLD {
            self.told.push(mistake());
        } else {
            self.untold += 1;
        }
    }

    /// Puts mistakes of a file into the order of their places; one told twice in the same words is told once.
    pub(super) fn sort(&mut self) {
        self.told.sort_by_key(|mistake| match &mistake.origin {
            Origin::File { position: Some(place), .. } => (place.line, place.column),
            _ => (0, 0),
        });
        self.told.dedup();
    }

    /// Takes over the mistakes of another source.
    pub(super) fn append(&mut self, other: Mistakes) {
        self.told.extend(other.told);
        self.untold += other.untold;
    }

    /// The error, if there was a mistake.
    pub(super) fn into_result(self) -> Result<(), SettingsError> {
        let Mistakes { told, untold } = self;
        if told.is_empty() { Ok(()) } else { Err(SettingsError { mistakes: told, untold }) }
    }
}

impl From<Mistake> for SettingsError {
    fn from(mistake: Mistake) -> Self {
        Self { mistakes: vec![mistake], untold: 0 }
    }
}

/// The sentence for a value that its key's rule refused.
pub(super) fn refused(path: &str, key: &Key, value: &toml::Value, fault: &str) -> String {
    format!("{path} = {} {fault}", shown_value(key, value))
}

/// The sentence for a key that does not exist.
pub(super) fn unknown(path: &str) -> String {
    let hint = match keys::nearest(path) {
        Some(known) => format!("did you mean {known}?"),
        None => "Settings.toml lists every key".to_owned(),
    };
    format!("unknown key {}: {hint}", shown(path))
}

/// The sentence for a quoted name with a dot in it, which TOML takes for one name and no path.
pub(super) fn quoted_path(name: &str) -> String {
    let name = shown(name);
    format!("unknown key \"{name}\": a dot inside quotes separates nothing; write {name} without quotes")
}

/// The sentence for a node's name that breaks the rule of names.
pub(super) fn bad_node_name(name: &str) -> String {
    format!("nodes.{} is not a valid name: 1 to 63 lower case letters, digits, _ and -", shown(name))
}

/// A foreign name, safe on one line of a terminal: masked, escaped and cut.
pub(super) fn shown(text: &str) -> String {
    // Masked before it is cut: half a URL no longer looks like one.
    let safe = mask::mask_stray(text);
    match safe.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &safe[..end]),
        None => safe,
    }
}

fn shown_value(key: &Key, value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) if key.is_secret() => format!("\"{}\"", mask::mask_url(text)),
        toml::Value::String(text) => format!("\"{}\"", shown(text)),
        toml::Value::Array(list) => {
            let few = list.iter().take(5).map(|item| shown_value(key, item)).collect::<Vec<_>>().join(", ");
            format!("[{few}{}]", if list.len() > 5 { ", …" } else { "" })
        }
        toml::Value::Table(_) => "{…}".to_owned(),
        other => other.to_string(),
    }
}
