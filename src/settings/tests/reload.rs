//! What a reload changes, and what it tells.

use super::super::keys::{KEYS, Place, place};
use super::super::{Change, Settings, changes};
use super::load;

/// Differs from the defaults in every key.
const OTHER: &str = r#"
data_dir = "/elsewhere"
instance_name = "other"
allow_superuser_owners = true
[database]
url = "postgres://app:s3cret@db/jobs"
citus_nodes = true
[limits]
max_task_executors = 5
max_task_executors_per_node = 2
reserve_after = "61s"
[cancel]
grace = "6s"
[shutdown]
grace = "11s"
[retry]
delays = ["1s"]
max_retries = 1
max_interruptions = 1
jitter = 0.5
permanent_sqlstates = []
[tasks]
max_message_bytes = 1024
max_output_mib = 2
[sessions]
reuse = false
max_idle = "0s"
max_age = "2h"
max_uses = 1
prefetch = 2
max_pending = 1
connect_timeout = "1s"
password_file = "owners.pgpass"
[retention]
finished = "8d"
failed = "31d"
records = "2d"
[wait]
max_sql = "1m"
[http]
listen = "[::1]:0"
token_file = "token"
[log]
format = "json"
level = "debug"
[nodes.east]
url = "postgres://app:s3cret@east/jobs"
max_task_executors = 8
max_tracked_tasks = 1024
"#;

fn keys(changes: &[Change]) -> Vec<&str> {
    changes.iter().map(|change| change.key.as_str()).filter(|key| *key != "nodes.east").collect()
}

#[test]
fn nothing_changed_means_no_changes() {
    let settings = load(OTHER).unwrap();
    assert_eq!(changes(&settings, &settings.clone()), []);
}

#[test]
fn every_key_that_differs_is_listed() {
    let changes = changes(&Settings::default(), &load(OTHER).unwrap());
    let mut expected: Vec<String> = KEYS.iter().map(|key| key.path.replace('*', "east")).collect();
    expected.sort();
    assert_eq!(keys(&changes), expected);
}

#[test]
fn a_reload_takes_exactly_the_reloadable_keys() {
    let (now, newer) = (Settings::default(), load(OTHER).unwrap());
    let next = now.reloaded(&newer);
    let (taken, left) = (changes(&now, &next), changes(&next, &newer));
    assert!(taken.iter().all(|change| change.reloadable), "{taken:?}");
    assert!(left.iter().all(|change| !change.reloadable), "{left:?}");
    let restart: Vec<&str> = KEYS.iter().filter(|key| !key.is_reloadable()).map(|key| key.path).collect();
    assert_eq!(left.len(), restart.len());
    assert_eq!(keys(&taken).len(), KEYS.len() - restart.len());
}

#[test]
fn what_needs_a_restart_is_what_was_decided() {
    let mut restart: Vec<&str> = KEYS.iter().filter(|key| !key.is_reloadable()).map(|key| key.path).collect();
    restart.sort_unstable();
    assert_eq!(
        restart,
        [
            "allow_superuser_owners",
            "data_dir",
            "database.url",
            "http.listen",
            "http.token_file",
            "instance_name",
            "log.format"
        ]
    );
    assert!(matches!(place("nodes.east.url"), Place::Key(key) if key.is_reloadable()));
}

#[test]
fn changes_are_shown_as_people_write_them() {
    let list = changes(&Settings::default(), &load(OTHER).unwrap());
    let shown = |key: &str| {
        let change = list.iter().find(|change| change.key == key).unwrap();
        format!("{} -> {}", change.before, change.after)
    };
    assert_eq!(shown("limits.max_task_executors"), "4 -> 5");
    assert_eq!(shown("cancel.grace"), "5s -> 6s");
    assert_eq!(shown("retention.failed"), "30d -> 31d");
    assert_eq!(shown("retry.permanent_sqlstates"), r#"["42", "0A"] -> []"#);
    assert_eq!(shown("http.token_file"), "none -> token");
    assert_eq!(shown("log.format"), "human -> json");
    assert_eq!(shown("nodes.east"), "none -> declared");
}

#[test]
fn a_node_without_keys_appears_and_disappears() {
    let with = load("[nodes.east]").unwrap();
    let [change] = &changes(&with, &Settings::default())[..] else { panic!("one change expected") };
    assert_eq!((change.key.as_str(), change.after.as_str(), change.reloadable), ("nodes.east", "none", true));
    assert!(Settings::default().reloaded(&with).nodes.contains_key("east"));
}

#[test]
fn a_changed_password_is_a_change_and_stays_hidden() {
    let with =
        |password: &str| load(format!("[database]\nurl = 'postgres://app:{password}@db/jobs'")).unwrap();
    let [change] = &changes(&with("s3cret"), &with("0ther"))[..] else { panic!("one change expected") };
    assert_eq!(change.key, "database.url");
    assert_eq!(
        (change.before.as_str(), change.after.as_str()),
        ("postgres://app:***@db/jobs", "postgres://app:***@db/jobs")
    );
}

#[test]
fn no_rendering_of_settings_shows_a_password() {
    let settings = load(OTHER).unwrap();
    let listed = changes(&Settings::default(), &settings);
    for text in [
        format!("{settings:?}"),
        format!("{settings:#?}"),
        format!("{listed:?}"),
        serde_json::to_string(&settings).unwrap(),
    ] {
        assert!(text.contains("app:***@db") && text.contains("app:***@east"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
