//! One mistake in a job file, and how it is shown to its author.

use std::fmt;
use std::ops::Range;

/// The longest part of a source line that is shown, in characters.
const MAX_SHOWN_CHARS: usize = 100;

/// What is wrong at one place of a file.
///
/// Shown as `file:line:column: message`, the source line with a caret below the place, and the hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file's name as the caller gave it.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong: a lower-case fragment that names the input and the rule.
    pub message: String,
    /// The remedy, when the message does not already say it.
    pub hint: Option<String>,
    /// The source line and how many of its characters are meant; `None` if it is long or may hold a secret.
    excerpt: Option<(String, usize)>,
}

impl std::error::Error for Mistake {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        if let Some((line, length)) = &self.excerpt {
            let carets = "^".repeat((*length).max(1));
            write!(f, "\n    {line}\n    {:indent$}{carets}", "", indent = self.column - 1)?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// A file's text with the starts of its lines: turns byte offsets into lines and columns.
#[derive(Debug)]
pub(super) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { file, text, line_starts }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// The line of a byte offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= at)
    }

    /// The byte offset of a line (from 1) and a column in bytes (from 1).
    pub(super) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let mut at = (start + column.saturating_sub(1)).min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    pub(super) fn mistake(&self, place: Range<usize>, message: String, hint: Option<String>) -> Mistake {
        let line = self.line(place.start);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let rest = self.text.get(start..).unwrap_or_default();
        let shown = rest.split(['\n', '\r']).next().unwrap_or_default();
        let before = self.text.get(start..place.start).unwrap_or_default().chars().count();
        let meant = self
            .text
            .get(place.start..place.end.min(start + shown.len()))
            .unwrap_or_default()
            .chars()
            .count();
        let is_neat = shown.chars().count() <= MAX_SHOWN_CHARS && !may_hold_secret(shown);
        // Tabs and other control characters would move the caret.
        let excerpt =
            is_neat.then(|| (shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(), meant));
        Mistake { file: self.file.to_owned(), line, column: before + 1, message, hint, excerpt }
    }
}

/// Lines that may hold a password are not repeated: mistakes end up in logs.
fn may_hold_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["password", "passwd", "secret", "://"].iter().any(|word| line.contains(word))
}
