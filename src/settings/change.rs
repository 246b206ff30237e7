//! What differs between two settings, and what of it a reload may take over.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::keys::{self, KEYS, Place, Reload};
use super::values::Settings;

/// What stands for a key without a value.
const NONE: &str = "none";

/// One key whose value changed; passwords are shown as `***`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Dotted path, such as `limits.max_task_executors`; `nodes.NAME` for a node declared or dropped.
    pub key: String,
    /// The value before, `none` if there was none.
    pub before: String,
    /// The value after, `none` if there is none.
    pub after: String,
    /// Whether a reload puts the new value into effect; otherwise a restart does.
    pub reloadable: bool,
}

/// The differences between two settings, by key.
pub fn changes(before: &Settings, after: &Settings) -> Vec<Change> {
    let (old, new) = (flat(before), flat(after));
    let mut paths: Vec<&String> = old.keys().chain(new.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let text =
        |side: &BTreeMap<String, String>, path: &str| side.get(path).map_or(NONE, String::as_str).to_owned();
    paths
        .into_iter()
        .map(|path| Change {
            key: path.clone(),
            before: text(&old, path),
            after: text(&new, path),
            reloadable: !matches!(keys::place(path), Place::Key(key) if !key.is_reloadable()),
        })
        .filter(|change| change.before != change.after || url(before, &change.key) != url(after, &change.key))
        .collect()
}

impl Settings {
    /// What runs after a reload: the reloadable keys of `newer`, the others as they are.
    #[must_use]
    pub fn reloaded(&self, newer: &Settings) -> Settings {
        let mut next = newer.clone();
        for key in KEYS {
            if let Reload::Restart(keep) = key.reload {
                keep(&mut next, self);
            }
        }
        next
    }
}

/// The unmasked URL at a path: two that differ in the password alone look the same when shown.
fn url<'a>(settings: &'a Settings, path: &str) -> Option<&'a str> {
    if path == "database.url" {
        return settings.database.url.as_deref();
    }
    let name = path.strip_prefix("nodes.")?.strip_suffix(".url")?;
    settings.nodes.get(name)?.url.as_deref()
}

/// Every key that has a value, and every declared node, as shown to people.
pub(super) fn flat(settings: &Settings) -> BTreeMap<String, String> {
    let tree = Table::try_from(settings)
        .expect("settings serialise: their fields are text, numbers, lists and tables");
    let mut flat = BTreeMap::new();
    flatten("", &tree, &mut flat);
    flat.extend(settings.nodes.keys().map(|name| (format!("nodes.{name}"), "declared".to_owned())));
    flat
}

fn flatten(path: &str, table: &Table, flat: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Table(inner) => flatten(&path, inner, flat),
            Value::String(text) => drop(flat.insert(path, text.clone())),
            other => drop(flat.insert(path, other.to_string())),
        }
    }
}
