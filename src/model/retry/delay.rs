//! Delays as text, in the spellings of a job file and in those that the catalog's check takes for an interval.

use std::time::Duration;

/// The longest delay between two attempts: 30 days, the catalog's bound (`check_retry` in migration V3).
pub const MAX_DELAY: Duration = Duration::from_secs(30 * 86_400);

/// Reads a delay: `5s`, `1m 30s`, `1 minute`, `00:01:30`, `1 day 02:00`, `90` (seconds, as in PostgreSQL).
///
/// Capital letters do not count, as in PostgreSQL (so `1M` is a minute; a month would be out of range anyway).
/// Returns nothing for other text and for more than [`MAX_DELAY`].
pub(super) fn read(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let (spans, last) = text.rsplit_once(char::is_whitespace).unwrap_or(("", &text));
    let delay = if last.contains(':') {
        let spans = if spans.trim().is_empty() { Duration::ZERO } else { read_spans(spans)? };
        spans.checked_add(read_clock(last)?)?
    } else if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        read_seconds(&text)?
    } else {
        read_spans(&text)?
    };
    (delay <= MAX_DELAY).then_some(delay)
}

fn read_spans(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

/// Hours and minutes, then perhaps seconds with a fraction.
fn read_clock(text: &str) -> Option<Duration> {
    let (hours, rest) = text.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "0"));
    let sixty = |count: u64| (count < 60).then_some(count);
    let minutes = read_count(hours)?.checked_mul(60)?.checked_add(read_count(minutes).and_then(sixty)?)?;
    let seconds = read_seconds(seconds).filter(|seconds| seconds.as_secs() < 60)?;
    Duration::from_secs(minutes.checked_mul(60)?).checked_add(seconds)
}

fn read_count(text: &str) -> Option<u64> {
    // `parse` alone would take a sign.
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn read_seconds(text: &str) -> Option<Duration> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_spellings_of_job_files_and_of_postgresql_are_read() {
        let seconds = [
            ("0s", 0.0),
            ("5s", 5.0),
            (" 1m 30s ", 90.0),
            ("1.5s", 1.5),
            ("250ms", 0.25),
            ("1 minute", 60.0),
            ("2 Hours 5 MINS", 7500.0),
            ("1M", 60.0),
            ("00:00:05", 5.0),
            ("01:02:03.5", 3723.5),
            ("00:05", 300.0),
            ("1 day 02:00:00", 93_600.0),
            ("90", 90.0),
            ("0.5", 0.5),
            ("30d", 2_592_000.0),
        ];
        for (text, expected) in seconds {
            assert_eq!(read(text), Some(Duration::from_secs_f64(expected)), "{text}");
        }
    }

    #[test]
    fn other_text_is_not() {
        let texts = [
            "",
            " ",
            "soon",
            "-5s",
            "-1",
            "+5:00",
            "5 s s",
            "1:60",
            "00:00:60",
            "1:2:3:4",
            ":05",
            "5:",
            "1e3",
            ".",
            ".5",
            "inf",
            "31d",
            "1month",
            "99999999999999999999s",
            "99999999999999999999:00",
            "5s 00:00:x",
        ];
        for text in texts {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_at_all_breaks_it(text in "\\PC*", likely in "[0-9a-zA-Z:. +-]{0,24}") {
            for text in [text, likely] {
                prop_assert!(read(&text).is_none_or(|delay| delay <= MAX_DELAY));
            }
        }
    }
}
