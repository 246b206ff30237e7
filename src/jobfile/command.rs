//! Finds the place in the file that belongs to a character of a TOML string, so that PostgreSQL's "position
//! 17" becomes a line and a column even in a string with escapes.

/// Byte offset, in the string's raw text (quotes included), of the `position`th character (from 1) of its
/// value. A position past the end gives the closing quotes; one that an escape produced gives the backslash.
pub(super) fn raw_offset(raw: &str, position: usize) -> usize {
    let (delimiter, has_escapes) = match raw.as_bytes() {
        [b'"', b'"', b'"', ..] => (3, true),
        [b'\'', b'\'', b'\'', ..] => (3, false),
        [b'"', ..] => (1, true),
        _ => (1, false),
    };
    let end = raw.len().saturating_sub(delimiter);
    let mut at = delimiter;
    if delimiter == 3 {
        // TOML drops a line end right after the opening quotes.
        let rest = raw.get(at..).unwrap_or_default();
        at += if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
    }
    let mut left = position.saturating_sub(1);
    loop {
        let rest = raw.get(at..end).unwrap_or_default();
        let (skipped, length) = next_char(rest, has_escapes);
        if left == 0 || length == 0 {
            return (at + skipped).min(end);
        }
        at += skipped + length;
        left -= 1;
    }
}

/// Bytes that give no character, then bytes of the next character; 0 of the latter at the end.
fn next_char(rest: &str, has_escapes: bool) -> (usize, usize) {
    let mut skipped = 0;
    loop {
        let here = rest.get(skipped..).unwrap_or_default();
        let Some(first) = here.chars().next() else { return (skipped, 0) };
        if first != '\\' || !has_escapes {
            return (skipped, first.len_utf8());
        }
        match here.chars().nth(1) {
            Some('x') => return (skipped, 4.min(here.len())),
            Some('u') => return (skipped, 6.min(here.len())),
            Some('U') => return (skipped, 10.min(here.len())),
            // A backslash at the end of a line takes all white space up to the next character with it.
            Some(' ' | '\t' | '\r' | '\n') => {
                let after = here.get(1..).unwrap_or_default();
                skipped += 1 + after.len() - after.trim_start_matches([' ', '\t', '\r', '\n']).len();
            }
            _ => return (skipped, 2.min(here.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn finds(raw: &str, position: usize, expected: &str) {
        assert!(raw[raw_offset(raw, position)..].starts_with(expected), "{raw} {position}");
    }

    #[test]
    fn every_kind_of_string_is_mapped() {
        finds("'abc'", 2, "bc");
        finds("\"abc\"", 3, "c\"");
        finds("'''\nabc'''", 1, "abc");
        finds("\"\"\"\r\nabc\"\"\"", 3, "c\"");
        finds("\"\"\"\\\n   ab\"\"\"", 1, "ab");
        finds(r#""a\tb\u00e9c\x41\U0001F600d""#, 5, "c");
        finds(r#""a\tb\u00e9c\x41\U0001F600d""#, 8, "d");
        finds(r#""a\\b""#, 2, "\\");
        finds("'ab'", 9, "'");
    }

    proptest! {
        /// The value of each string, read by the TOML parser, has at each position the character that we
        /// point at.
        #[test]
        fn the_character_is_the_parsers(value in "[ab\\\\\"\t\né€]{0,20}", tail in "[a-z]{1,5}") {
            let raw = toml::Value::String(format!("{value}{tail}")).to_string();
            let parsed = toml::de::DeValue::parse(&raw).expect("the writer's text is valid");
            let text = parsed.get_ref().as_str().expect("a string").to_owned();
            for (at, c) in text.chars().enumerate() {
                let here = &raw[raw_offset(&raw, at + 1)..];
                let literal = here.chars().next().expect("inside");
                prop_assert!(literal == c || literal == '\\', "{raw:?} {at} {c:?} {here:?}");
            }
        }
    }
}
