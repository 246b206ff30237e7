//! What a key accepts: one [`Rule`] checks a value, says in words what it wants, and reads a value from the plain
//! text of a variable or a flag.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use toml::Value;
use toml::de::ValueDeserializer;

use super::duration;
use super::shape::{LEVELS, is_connection, is_directive, is_line, is_sqlstate};

/// What a key accepts. `Display` is the rule in words, as errors and the manual show it.
#[derive(Debug)]
pub(super) enum Rule {
    /// `true` or `false`.
    Flag,
    /// A whole number, both ends included.
    Count { min: u32, max: u32 },
    /// A number from 0 to 1.
    Share,
    /// A duration, both ends included.
    Span { min: Duration, max: Duration },
    /// One to [`MOST_SPANS`] durations of at most `max` each.
    Spans { max: Duration },
    /// Text of 1 to [`LONGEST_TEXT`] bytes without control characters.
    Text,
    /// A PostgreSQL connection URL or libpq's `key=value` text.
    Url,
    /// The path of a file or folder; nobody looks whether it exists.
    Path,
    /// An IP address with a port.
    Address,
    /// A filter of `tracing-subscriber`.
    Directive,
    /// SQLSTATE classes or codes.
    SqlStates,
    /// One of a few words.
    OneOf(&'static [&'static str]),
}

/// Bound of a list of delays; the default has three.
const MOST_SPANS: usize = 100;
/// Bound of a name; host names end at 253.
const LONGEST_TEXT: usize = 255;

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = duration::show;
        match self {
            Self::Flag => f.write_str("true or false"),
            Self::Count { min, max } => write!(f, "{min} to {max}"),
            Self::Share => f.write_str("0 to 1"),
            Self::Span { min, max } => write!(f, "{} to {}", show(*min), show(*max)),
            Self::Spans { max } => write!(f, "1 to {MOST_SPANS} durations, each 0s to {}", show(*max)),
            Self::Text => write!(f, "1 to {LONGEST_TEXT} bytes without control characters"),
            Self::Url => f.write_str("postgres://user@host:port/database or host=… dbname=…"),
            Self::Path => f.write_str("a path"),
            Self::Address => f.write_str("IP address:port, such as 127.0.0.1:8380 or [::1]:8380"),
            Self::Directive => {
                write!(f, "{}, or target=level directives separated by commas", LEVELS.join(", "))
            }
            Self::SqlStates => f.write_str("SQLSTATE classes (2 characters) or codes (5) of 0-9 and A-Z"),
            Self::OneOf(words) => write!(f, "{}", words.join(" or ")),
        }
    }
}

impl Rule {
    /// Checks a value.
    ///
    /// # Errors
    /// Fails with the rest of a sentence that starts with the key and its value: "is out of range: 1 to 1000".
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Self::Flag, Value::Boolean(_)) => Ok(()),
            (Self::Count { min, max }, Value::Integer(n)) => {
                self.within((i64::from(*min)..=i64::from(*max)).contains(n))
            }
            (Self::Share, Value::Float(n)) => self.within((0.0..=1.0).contains(n)),
            (Self::Share, Value::Integer(n)) => self.within((0..=1).contains(n)),
            (Self::Span { min, max }, Value::String(text)) => {
                read_span(text).and_then(|span| self.within((*min..=*max).contains(&span)))
            }
            (Self::Spans { max }, Value::Array(list)) => self.check_spans(list, *max),
            (Self::Url, Value::String(text)) => self.shaped(is_connection(text)),
            (Self::Text, Value::String(text)) => self.shaped(text.len() <= LONGEST_TEXT && is_line(text)),
            (Self::Path, Value::String(text)) => self.shaped(!text.is_empty() && !text.contains('\0')),
            (Self::Address, Value::String(text)) => self.shaped(text.parse::<SocketAddr>().is_ok()),
            (Self::Directive, Value::String(text)) => self.shaped(is_directive(text)),
            (Self::SqlStates, Value::Array(list)) => {
                self.shaped(list.iter().all(|item| item.as_str().is_some_and(is_sqlstate)))
            }
            (Self::OneOf(words), Value::String(text)) => self.shaped(words.contains(&text.as_str())),
            _ => Err(format!("is {}, not {}: {self}", article(value), self.type_name())),
        }
    }

    /// Reads the text of a variable or a flag: numbers and flags bare, lists separated by commas or in TOML's `[…]`.
    ///
    /// Text that does not read as wanted comes back as a string, for [`Rule::check`] to refuse.
    pub(super) fn read(&self, text: &str) -> Value {
        let read = match self {
            Self::Flag => text.parse().ok().map(Value::Boolean),
            Self::Count { .. } => text.parse().ok().map(Value::Integer),
            Self::Share => text.parse().ok().map(Value::Float),
            Self::Spans { .. } | Self::SqlStates => read_list(text),
            Self::Span { .. }
            | Self::Text
            | Self::Url
            | Self::Path
            | Self::Address
            | Self::Directive
            | Self::OneOf(_) => None,
        };
        read.unwrap_or_else(|| Value::String(text.to_owned()))
    }

    fn check_spans(&self, list: &[Value], max: Duration) -> Result<(), String> {
        self.within((1..=MOST_SPANS).contains(&list.len()))?;
        list.iter()
            .try_for_each(|item| Rule::Span { min: Duration::ZERO, max }.check(item))
            .map_err(|fault| format!("has an entry that {fault}"))
    }

    fn within(&self, holds: bool) -> Result<(), String> {
        if holds { Ok(()) } else { Err(format!("is out of range: {self}")) }
    }

    fn shaped(&self, holds: bool) -> Result<(), String> {
        if holds { Ok(()) } else { Err(format!("is not valid: {self}")) }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::Flag => "a boolean",
            Self::Count { .. } => "an integer",
            Self::Share => "a number",
            Self::Span { .. } => "a duration in quotes such as \"5s\"",
            Self::Spans { .. } => "a list of durations such as [\"5s\", \"1m 30s\"]",
            Self::SqlStates => "a list of strings such as [\"42\", \"0A000\"]",
            Self::Text | Self::Url | Self::Path | Self::Address | Self::Directive | Self::OneOf(_) => {
                "a string"
            }
        }
    }
}

fn article(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date or time",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

fn read_span(text: &str) -> Result<Duration, String> {
    duration::read(text).map_err(|_| {
        "is not a duration: write a number and a unit, such as \"500ms\", \"5s\", \"1m 30s\", \"7d\""
            .to_owned()
    })
}

fn read_list(text: &str) -> Option<Value> {
    if text.trim_start().starts_with('[') {
        return ValueDeserializer::parse(text).ok().and_then(|list| Value::deserialize(list).ok());
    }
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Some(Value::Array(items.map(Value::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const COUNT: Rule = Rule::Count { min: 1, max: 1000 };
    const SPAN: Rule = Rule::Span { min: SECOND, max: Duration::from_secs(3600) };

    fn parsed(text: &str) -> Value {
        Value::deserialize(ValueDeserializer::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn ends_of_ranges_are_accepted_and_one_beyond_is_not() {
        for (rule, good, bad) in [
            (COUNT, &["1", "1000"][..], &["0", "1001", "-1", "9223372036854775807"][..]),
            (Rule::Share, &["0", "0.0", "1", "1.0"], &["-0.1", "1.01", "2", "nan", "inf"]),
            (SPAN, &["'1s'", "'1h'"], &["'0s'", "'999ms'", "'1h 1ns'"]),
            (Rule::Spans { max: SECOND }, &["['0s','1s']"], &["[]", "['2s']", "['1s','x']"]),
        ] {
            for text in good {
                assert_eq!(rule.check(&parsed(text)), Ok(()), "{rule:?} {text}");
            }
            for text in bad {
                assert!(rule.check(&parsed(text)).is_err(), "{rule:?} {text}");
            }
        }
    }

    #[test]
    fn every_rule_refuses_every_foreign_type_by_name() {
        for rule in [
            Rule::Flag,
            COUNT,
            Rule::Share,
            SPAN,
            Rule::Spans { max: SECOND },
            Rule::Text,
            Rule::Url,
            Rule::Path,
            Rule::Address,
            Rule::Directive,
            Rule::SqlStates,
            Rule::OneOf(&["a", "b"]),
        ] {
            for text in ["1979-05-27", "{ a = 1 }"] {
                let fault = rule.check(&parsed(text)).unwrap_err();
                assert!(fault.contains(", not ") && fault.contains(&rule.to_string()), "{fault}");
            }
        }
    }

    #[test]
    fn shapes() {
        for (rule, good, bad) in [
            (
                Rule::Url,
                &["postgres://h/d", "host=/run dbname = 'x y'"][..],
                &["", "mysql://h", "h/d", "=x"][..],
            ),
            (
                Rule::Address,
                &["127.0.0.1:8380", "[::1]:0"],
                &["localhost:80", "1.2.3.4", ":80", "1.2.3.4:65536"],
            ),
            (
                Rule::Directive,
                &["info", "WARN", "warn,yardmaster=debug", "[span]=trace"],
                &["", "inof", "a=loud"],
            ),
            (Rule::OneOf(&["human", "json"]), &["json"], &["JSON", ""]),
            (Rule::Text, &["a b"], &["", "a\nb", "a\u{1b}[2J"]),
            (Rule::Path, &["/a b"], &["", "a\0b"]),
        ] {
            for text in good {
                assert_eq!(rule.check(&Value::from(*text)), Ok(()), "{rule:?} {text}");
            }
            for text in bad {
                assert!(rule.check(&Value::from(*text)).is_err(), "{rule:?} {text:?}");
            }
        }
        for (list, good) in
            [("[]", true), ("['42','0A000']", true), ("['4']", false), ("['0a']", false), ("[42]", false)]
        {
            assert_eq!(Rule::SqlStates.check(&parsed(list)).is_ok(), good, "{list}");
        }
    }

    #[test]
    fn plain_text_reads_as_the_rule_wants() {
        let spans = Rule::Spans { max: SECOND };
        assert_eq!(COUNT.read("8"), Value::Integer(8));
        assert_eq!(Rule::Flag.read("false"), Value::Boolean(false));
        assert_eq!(Rule::Share.read("0.5"), Value::Float(0.5));
        assert_eq!(spans.read("5s, 1m 30s"), parsed("['5s', '1m 30s']"));
        assert_eq!(spans.read("['5s', '1m']"), parsed("['5s', '1m']"));
        assert_eq!(Rule::SqlStates.read("[]"), parsed("[]"));
        assert_eq!(Rule::Text.read("8"), Value::from("8"));
        for (rule, text) in [(COUNT, "eight"), (Rule::Flag, "yes"), (spans, "['5s'")] {
            assert!(rule.check(&rule.read(text)).is_err(), "{text}");
        }
    }
}
