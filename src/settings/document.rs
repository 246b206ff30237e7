//! The settings file: bytes to a checked [`Layer`], each mistake with line and column.
//!
//! The file is foreign input of any shape. Its size is bounded, `toml` bounds its nesting, and mistakes beyond
//! [`MOST_TOLD`](super::error::MOST_TOLD) are only counted.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::error::{self, Mistake, Mistakes, Origin, Position};
use super::keys::{self, Key, NODES, Place};
use super::layer::Layer;

/// Largest file that is read; a thousand nodes take about a tenth.
const MOST_BYTES: u64 = 1024 * 1024;

/// What was found at the path of the settings.
pub(super) enum Found {
    /// The bytes of the file.
    Bytes(Vec<u8>),
    /// Nothing is there.
    Missing,
}

/// Reads at most [`MOST_BYTES`], also from what only looks like a file.
pub(super) fn read(path: &Path) -> Result<Found, Mistake> {
    let mistake =
        |message: String| Mistake { origin: Origin::File { path: path.to_owned(), position: None }, message };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > MOST_BYTES => {
            Err(mistake(format!("larger than {MOST_BYTES} bytes: this is not a settings file")))
        }
        Ok(_) => Ok(Found::Bytes(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
        Err(error) => Err(mistake(format!("cannot be read: {error}"))),
    }
}

/// Checks a whole file; `path` serves the messages only.
pub(super) fn check(path: &Path, bytes: &[u8], mistakes: &mut Mistakes) -> Layer {
    let mut check = Check { path, bytes, layer: Layer::default(), mistakes: Mistakes::default() };
    check.document();
    check.mistakes.sort();
    mistakes.append(check.mistakes);
    check.layer
}

struct Check<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    layer: Layer,
    mistakes: Mistakes,
}

impl<'a> Check<'a> {
    fn document(&mut self) {
        let text = match std::str::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(error) => {
                let at = error.valid_up_to();
                return self.add(at..at, || "not UTF-8: save the file as UTF-8 text".to_owned());
            }
        };
        let (document, faults) = DeTable::parse_recoverable(text);
        if faults.is_empty() {
            return self.table(document.get_ref(), "");
        }
        // What was recovered around a syntax error is a guess, so its values are not judged.
        let end = text.trim_end().len();
        for fault in faults {
            let span = fault.span().unwrap_or(end..end);
            let start = span.start;
            self.add(span, || {
                let key = key_of_line(text, start).map(|key| format!(" at {key}")).unwrap_or_default();
                // A file that was cut ends where something was still expected.
                let place = if start >= end { " (at the end of the file)" } else { "" };
                format!("not valid TOML{key}: {}{place}", fault.message().escape_debug())
            });
        }
    }

    fn table(&mut self, table: &DeTable<'a>, path: &str) {
        for (name, value) in table {
            let span = name.span();
            let name = name.get_ref();
            if path == NODES && !keys::is_node_name(name) {
                self.add(span, || error::bad_node_name(name));
                continue;
            }
            if name.contains('.') {
                self.add(span, || error::quoted_path(name));
                continue;
            }
            let path = if path.is_empty() { name.clone() } else { Cow::Owned(format!("{path}.{name}")) };
            match (keys::place(&path), value.get_ref()) {
                (Place::Key(key), _) => self.value(key, &path, value),
                (Place::Table, DeValue::Table(inner)) => {
                    self.layer.declare(&path);
                    self.table(inner, &path);
                }
                (Place::Table, _) => {
                    self.add(value.span(), || format!("{path} is a table of keys: write [{path}]"))
                }
                (Place::Unknown, _) => self.add(span, || error::unknown(&path)),
            }
        }
    }

    fn value(&mut self, key: &Key, path: &str, value: &Spanned<DeValue<'a>>) {
        match toml::Value::deserialize(ValueDeserializer::from(value.clone())) {
            Ok(read) => match key.rule.check(&read) {
                Ok(()) => self.layer.set(path, read),
                Err(fault) => self.add(value.span(), || error::refused(path, key, &read, &fault)),
            },
            // An integer beyond 64 bits, a float beyond the largest.
            Err(_) => self.add(value.span(), || format!("{path} is too large: {}", key.rule)),
        }
    }

    fn add(&mut self, span: Range<usize>, message: impl FnOnce() -> String) {
        let Self { path, bytes, mistakes, .. } = self;
        mistakes.add(|| Mistake {
            origin: Origin::File {
                path: path.to_path_buf(),
                position: Some(Position::of(bytes, span.start)),
            },
            message: message(),
        });
    }
}

/// The key that a line sets, if it reads as one; anything else on the line may be part of a password.
fn key_of_line(text: &str, at: usize) -> Option<&str> {
    /// Longer names are none of ours.
    const LONGEST: usize = 80;

    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next()?;
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    ((1..=LONGEST).contains(&key.len()) && key.chars().all(is_plain)).then_some(key)
}
