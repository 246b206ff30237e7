//! Text for people: inert in a terminal, short, and in people's units.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

/// Characters that a terminal would obey instead of showing: controls (also the C1 ones, with which some terminals
/// begin sequences), line separators, and what turns the direction of writing.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn inert_but(text: &str, allowed: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_active(c) || allowed.contains(&c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out
}

/// One line that a terminal only shows: every active character is written out, as in `\n` and `\u{1b}`.
pub fn inert(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_active) { Cow::Owned(inert_but(text, &[])) } else { Cow::Borrowed(text) }
}

/// Several lines that a terminal only shows: line breaks and tabs stay.
pub fn inert_lines(text: &str) -> Cow<'_, str> {
    let allowed = ['\n', '\t'];
    if text.chars().any(|c| is_active(c) && !allowed.contains(&c)) {
        Cow::Owned(inert_but(text, &allowed))
    } else {
        Cow::Borrowed(text)
    }
}

/// A line of a message is cut to so many characters where it stands in a table or beside others.
const MAX_HEADLINE: usize = 500;

/// The one line of a message worth showing in a table: the error if there is one, else the first line.
pub fn headline(message: &str) -> Cow<'_, str> {
    let is_error =
        |line: &&str| ["ERROR:", "FATAL:", "PANIC:"].iter().any(|severity| line.starts_with(severity));
    let line =
        message.lines().rev().find(is_error).or_else(|| message.lines().find(|line| !line.trim().is_empty()));
    let line = line.unwrap_or_default();
    match line.char_indices().nth(MAX_HEADLINE) {
        None => inert(line),
        Some((end, _)) => Cow::Owned(format!("{}…", inert(&line[..end]))),
    }
}

/// A duration in at most two units: `0.4s`, `12s`, `3m 04s`, `2h 05m`, `3d 4h`.
pub fn duration(length: SignedDuration) -> String {
    let length = length.max(SignedDuration::ZERO);
    let seconds = length.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", length.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// The time between two moments, as [`duration`].
pub fn between(start: Timestamp, end: Timestamp) -> String {
    duration(end.duration_since(start))
}

/// A moment in the zone of whoever reads it, to the second.
pub fn moment(at: Timestamp) -> String {
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// The time of day in the zone of whoever reads it.
pub fn clock(at: Timestamp) -> String {
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// A count with separators: `20,000`.
pub fn count(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    if n < 0 {
        out.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun: `1 task`, `20,000 tasks`.
pub fn plural(n: i64, noun: &str) -> String {
    let mut out = format!("{} {noun}", count(n));
    if n != 1 {
        out.push('s');
    }
    out
}

/// How people call a task: its name if it has one, with its id.
pub fn task_title(id: impl std::fmt::Display, name: Option<&str>) -> String {
    let mut out = format!("task {id}");
    if let Some(name) = name {
        // Writing to a String cannot fail.
        let _ = write!(out, " {}", inert(name));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_a_terminal_are_shown_not_obeyed() {
        assert_eq!(inert("a\u{1b}[31mred\u{7}\n"), "a\\u{1b}[31mred\\u{7}\\n");
        assert_eq!(inert("\u{9b}31m \u{202e}txt"), "\\u{9b}31m \\u{202e}txt");
        assert_eq!(inert_lines("one\n\ttwo\r\u{1b}c"), "one\n\ttwo\\r\\u{1b}c");
        assert!(matches!(inert("Grüße, 世界"), Cow::Borrowed(_)));
    }

    #[test]
    fn the_headline_is_the_error_else_the_first_line() {
        assert_eq!(
            headline("NOTICE: hello\nINSERT 0 3\nERROR: division by zero\nCONTEXT: x"),
            "ERROR: division by zero"
        );
        assert_eq!(headline("\nINSERT 0 3\nUPDATE 1"), "INSERT 0 3");
        assert_eq!(headline(""), "");
        assert_eq!(headline(&"ä".repeat(9000)).chars().count(), MAX_HEADLINE + 1);
    }

    #[test]
    fn durations_and_counts_read_well() {
        let cases = [
            (0.44, "0.4s"),
            (12.9, "12s"),
            (184.0, "3m 04s"),
            (7500.0, "2h 05m"),
            (273_600.0, "3d 4h"),
            (-5.0, "0.0s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(SignedDuration::try_from_secs_f64(seconds).unwrap()), text);
        }
        assert_eq!(
            [count(0), count(999), count(20_000), count(-1_234_567)],
            ["0", "999", "20,000", "-1,234,567"]
        );
        assert_eq!([plural(1, "task"), plural(0, "task")], ["1 task", "0 tasks"]);
    }
}
