//! Durations as text: `"5s"`, `"1m 30s"`, `"7d"`.
//!
//! Reads what `humantime` reads; writes days and smaller only, because its months and years (30.44 and 365.25 days)
//! would show `31d` as `1month 13h 26m 24s`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Units of [`show`], largest first, with their length in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Writes a duration so that [`read`] gives it back exactly.
pub(super) fn show(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut parts = Vec::new();
    for (unit, length) in UNITS {
        if rest >= length {
            parts.push(format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// Reads a duration.
///
/// # Errors
/// Fails on text without a unit, with an unknown unit, or beyond 64 bits of seconds.
pub(super) fn read(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

/// For `#[serde(with = "duration")]`.
pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show(*duration))
}

/// For `#[serde(with = "duration")]`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    read(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// The same for a list: `#[serde(with = "duration::list")]`.
pub(super) mod list {
    use super::{Deserialize, Deserializer, Duration, Serializer, de, read, show};

    pub(in crate::settings) fn serialize<S: Serializer>(
        list: &[Duration],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().copied().map(show))
    }

    pub(in crate::settings) fn deserialize<'de, D>(deserializer: D) -> Result<Vec<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| read(text).map_err(de::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_units_are_shown_shortly() {
        let cases =
            [(0, "0s"), (5, "5s"), (90, "1m 30s"), (3600, "1h"), (86_400, "1d"), (31 * 86_400, "31d")];
        for (seconds, text) in cases {
            assert_eq!(show(Duration::from_secs(seconds)), text);
        }
        assert_eq!(show(Duration::from_millis(1500)), "1s 500ms");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(seconds in 0u64..10_000_000_000, nanos in 0u32..1_000_000_000) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(read(&show(duration)).unwrap(), duration);
        }
    }
}
