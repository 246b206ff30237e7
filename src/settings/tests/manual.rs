//! The manual, the types and the table of keys say the same.

use std::collections::BTreeSet;

use super::super::change::flat;
use super::super::keys::{KEYS, Key};
use super::super::{MANUAL, Settings};
use super::load;

/// The manual with its examples put into effect.
fn with_examples() -> String {
    let uncomment = |line: &str| match line.strip_prefix("# ") {
        Some("[nodes.NAME]") => "[nodes.name]".to_owned(),
        Some(entry) if key_of(entry).is_some() => entry.to_owned(),
        _ => line.to_owned(),
    };
    MANUAL.lines().map(uncomment).collect::<Vec<_>>().join("\n")
}

fn key_of(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(" = ")?;
    name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then_some(name)
}

#[test]
fn the_manual_parses_to_exactly_the_defaults() {
    assert_eq!(load(MANUAL).unwrap(), Settings::default());
}

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(load("").unwrap(), Settings::default());
}

#[test]
fn the_manual_names_every_key_once_in_the_order_of_the_table() {
    let mut section = String::new();
    let mut named = Vec::new();
    for line in MANUAL.lines() {
        let entry = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{}.", name.replace("NAME", "*"));
        } else if let Some(name) = key_of(entry) {
            named.push(format!("{section}{name}"));
        }
    }
    assert_eq!(named, KEYS.iter().map(|key| key.path).collect::<Vec<_>>());
}

#[test]
fn the_manual_states_each_range_and_whether_it_reloads() {
    let stated: Vec<&str> = MANUAL.lines().filter(|line| line.starts_with("# Range: ")).collect();
    let state = |key: &Key| {
        format!("# Range: {}. {}.", key.rule, if key.is_reloadable() { "Reloadable" } else { "Restart" })
    };
    assert_eq!(stated, KEYS.iter().map(state).collect::<Vec<_>>());
}

#[test]
fn the_examples_of_the_manual_are_valid_and_show_every_key_of_the_types() {
    let settings = load(with_examples()).unwrap();
    let typed: BTreeSet<String> = flat(&settings).into_keys().filter(|path| path != "nodes.name").collect();
    let listed: BTreeSet<String> = KEYS.iter().map(|key| key.path.replace('*', "name")).collect();
    assert_eq!(typed, listed);
}
