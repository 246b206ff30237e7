//! A policy as written with a job or a task: JSON in the catalog, `retry` in the job file.

use std::time::Duration;

use serde_json::Value;

use super::{RetryPolicy, delay};

/// The bound of both lists, the catalog's (`check_retry` in migration V3).
const MOST_ITEMS: usize = 100;
/// The bound of `max_retries`, the catalog's and the settings'.
const MOST_RETRIES: u64 = 10_000;

/// A retry policy that cannot be followed.
///
/// The catalog refuses nearly all of these at submission. Its spellings of an interval that are not read here (ISO
/// 8601, `@ 5 s`) come through, and so does whatever a superuser writes into a row.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RetryError {
    /// It is not a JSON object.
    #[error("retry = {0} is not an object with max_retries, delays, jitter or permanent_sqlstates")]
    NotAnObject(String),
    /// The value of one key does not follow its rule.
    #[error("retry.{key} = {value} is not {rule}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, or the item of a list, as JSON (its start, if it is long).
        value: String,
        /// What it should be.
        rule: &'static str,
    },
}

impl RetryPolicy {
    /// Returns this policy with what `overrides` states in its place. Unknown keys are ignored: a newer version
    /// may have written them.
    ///
    /// # Errors
    /// Fails on what is no object, and on the first key whose value does not follow its rule.
    pub fn overridden_by(&self, overrides: &Value) -> Result<Self, RetryError> {
        let Some(stated) = overrides.as_object() else {
            return Err(RetryError::NotAnObject(shown(overrides)));
        };
        let mut policy = self.clone();
        if let Some(value) = stated.get("max_retries") {
            policy.max_retries = read("max_retries", "a whole number, 0 to 10000", value, max_retries)?;
        }
        if let Some(value) = stated.get("delays") {
            policy.delays = read_list("delays", "a duration of 0s to 30d, such as \"1m 30s\"", value, delay)?;
        }
        if let Some(value) = stated.get("jitter") {
            policy.jitter = read("jitter", "a number, 0 to 1", value, jitter)?;
        }
        if let Some(value) = stated.get("permanent_sqlstates") {
            let rule = "a SQLSTATE class of two or code of five characters, 0-9 and A-Z";
            policy.permanent_sqlstates = read_list("permanent_sqlstates", rule, value, sqlstate)?;
        }
        Ok(policy)
    }
}

fn max_retries(value: &Value) -> Option<u32> {
    value.as_u64().filter(|count| *count <= MOST_RETRIES)?.try_into().ok()
}

fn jitter(value: &Value) -> Option<f64> {
    value.as_f64().filter(|share| (0.0..=1.0).contains(share))
}

/// A bare number is a number of seconds, for the catalog reads it so.
fn delay(value: &Value) -> Option<Duration> {
    match value {
        Value::String(text) => delay::read(text),
        Value::Number(seconds) => delay::read(&seconds.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn sqlstate(value: &Value) -> Option<String> {
    let code = value.as_str()?;
    let plain = code.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    (plain && matches!(code.len(), 2 | 5)).then(|| code.to_owned())
}

fn read<T>(
    key: &'static str,
    rule: &'static str,
    value: &Value,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<T, RetryError> {
    read(value).ok_or_else(|| RetryError::Value { key, value: shown(value), rule })
}

fn read_list<T>(
    key: &'static str,
    rule: &'static str,
    value: &Value,
    item: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, RetryError> {
    match value.as_array() {
        Some(items) if items.len() <= MOST_ITEMS => {
            items.iter().map(|value| read(key, rule, value, &item)).collect()
        }
        _ => Err(RetryError::Value { key, value: shown(value), rule: "a list of at most 100" }),
    }
}

/// The value as JSON, short enough for a message.
fn shown(value: &Value) -> String {
    const MOST_CHARS: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
