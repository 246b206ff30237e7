//! The table of keys: the one place that knows which keys exist, what each accepts and whether a reload may change it.
//!
//! Detection of unknown keys, suggestions, range checks, reloads, the list of changes and the test of the manual all
//! read [`KEYS`]. To add a setting: a field in [`super::values`], a row here, an entry in `Settings.toml`; the tests
//! fail until all three agree.

use std::time::Duration;

use super::rule::Rule;
use super::values::Settings;

/// One key of the settings.
#[derive(Debug)]
pub(super) struct Key {
    /// Dotted path; `*` stands for the name of a node.
    pub path: &'static str,
    /// What the key accepts.
    pub rule: Rule,
    /// When a new value takes effect.
    pub reload: Reload,
}

/// When a new value of a key takes effect.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reload {
    /// On SIGHUP.
    Live,
    /// At the next start; until then the function keeps the old value: `keep(new settings, current settings)`.
    Restart(fn(&mut Settings, &Settings)),
}

/// What a dotted path leads to.
#[derive(Debug)]
pub(super) enum Place {
    /// A key with a value.
    Key(&'static Key),
    /// A table of keys, such as `limits`, `nodes` or `nodes.east`.
    Table,
    /// Nothing we know.
    Unknown,
}

/// The name under which [`Place`] is the table of nodes; every entry is a node's table.
pub(super) const NODES: &str = "nodes";

/// Every key, in the order of the manual.
pub(super) static KEYS: &[Key] = &[
    restart("data_dir", Rule::Path, |new, now| new.data_dir.clone_from(&now.data_dir)),
    restart("instance_name", Rule::Text, |new, now| new.instance_name.clone_from(&now.instance_name)),
    restart("allow_superuser_owners", Rule::Flag, |new, now| {
        new.allow_superuser_owners = now.allow_superuser_owners
    }),
    restart("database.url", Rule::Url, |new, now| new.database.url.clone_from(&now.database.url)),
    live("database.citus_nodes", Rule::Flag),
    live("limits.max_task_executors", count(1, 1000)),
    live("limits.max_task_executors_per_node", count(1, 1000)),
    live("limits.reserve_after", span(SECOND, DAY)),
    live("cancel.grace", span(Duration::ZERO, HOUR)),
    live("shutdown.grace", span(Duration::ZERO, DAY)),
    live("retry.delays", Rule::Spans { max: days(7) }),
    live("retry.max_retries", count(0, 10_000)),
    live("retry.max_interruptions", count(0, 1_000_000)),
    live("retry.jitter", Rule::Share),
    live("retry.permanent_sqlstates", Rule::SqlStates),
    live("tasks.max_message_bytes", count(1024, 1_048_576)),
    live("tasks.max_output_mib", count(1, 1_048_576)),
    live("sessions.reuse", Rule::Flag),
    live("sessions.max_idle", span(Duration::ZERO, DAY)),
    live("sessions.max_age", span(SECOND, days(7))),
    live("sessions.max_uses", count(1, 1_000_000)),
    live("sessions.prefetch", count(1, 64)),
    live("sessions.max_pending", count(1, 1000)),
    live("sessions.connect_timeout", span(Duration::from_millis(100), Duration::from_secs(300))),
    live("sessions.password_file", Rule::Path),
    live("retention.finished", span(Duration::ZERO, days(3650))),
    live("retention.failed", span(Duration::ZERO, days(3650))),
    live("retention.records", span(SECOND, days(3650))),
    live("wait.max_sql", span(SECOND, DAY)),
    restart("http.listen", Rule::Address, |new, now| new.http.listen = now.http.listen),
    restart("http.token_file", Rule::Path, |new, now| new.http.token_file.clone_from(&now.http.token_file)),
    restart("log.format", Rule::OneOf(&["human", "json"]), |new, now| new.log.format = now.log.format),
    live("log.level", Rule::Directive),
    live("nodes.*.url", Rule::Url),
    live("nodes.*.max_task_executors", count(1, 1000)),
    live("nodes.*.max_tracked_tasks", count(1, 1_000_000_000)),
];

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = days(1);

const fn days(days: u64) -> Duration {
    Duration::from_secs(days * 24 * 3600)
}

const fn live(path: &'static str, rule: Rule) -> Key {
    Key { path, rule, reload: Reload::Live }
}

const fn restart(path: &'static str, rule: Rule, keep: fn(&mut Settings, &Settings)) -> Key {
    Key { path, rule, reload: Reload::Restart(keep) }
}

const fn count(min: u32, max: u32) -> Rule {
    Rule::Count { min, max }
}

const fn span(min: Duration, max: Duration) -> Rule {
    Rule::Span { min, max }
}

impl Key {
    /// Whether the key's value may hold a password.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.rule, Rule::Url)
    }

    /// Whether a reload may change the key.
    pub(super) fn is_reloadable(&self) -> bool {
        matches!(self.reload, Reload::Live)
    }
}

/// Says what a dotted path leads to.
pub(super) fn place(path: &str) -> Place {
    if let Some(key) = KEYS.iter().find(|key| matches(key.path, path)) {
        return Place::Key(key);
    }
    let depth = path.split('.').count();
    let is_table = KEYS.iter().any(|key| {
        key.path.match_indices('.').nth(depth - 1).is_some_and(|(end, _)| matches(&key.path[..end], path))
    });
    if is_table { Place::Table } else { Place::Unknown }
}

/// Whether `name` may name a node.
pub(super) fn is_node_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// The known key nearest to an unknown one, by its whole path or by its last name alone (a key in a wrong section).
pub(super) fn nearest(unknown: &str) -> Option<String> {
    /// Jaro-Winkler similarity from which a suggestion helps more than it puzzles (tried on slips of one or two
    /// letters and on plurals, against unrelated words).
    const HELPFUL: f64 = 0.85;
    /// Longer names are no slips, and the comparison costs the product of the lengths.
    const LONGEST: usize = 128;

    if unknown.len() > LONGEST {
        return None;
    }
    let node =
        unknown.strip_prefix("nodes.").and_then(|rest| rest.split('.').next()).filter(|n| is_node_name(n));
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let sections = KEYS.iter().filter_map(|key| key.path.split_once('.').map(|(section, _)| section));
    KEYS.iter()
        .map(|key| key.path)
        .chain(sections)
        .map(|path| path.replace('*', node.unwrap_or("NAME")))
        .map(|path| {
            let whole = strsim::jaro_winkler(unknown, &path);
            let alone = strsim::jaro_winkler(&last(unknown), &last(&path));
            (whole.max(alone), whole + alone, path)
        })
        .filter(|(best, _, _)| *best >= HELPFUL)
        .max_by(|(_, a, _), (_, b, _)| a.total_cmp(b))
        .map(|(_, _, path)| path)
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut given) = (pattern.split('.'), path.split('.'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some("*"), Some(name)) if is_node_name(name) => {}
            (Some(want), Some(name)) if want == name && want != "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_keys_tables_or_nowhere() {
        assert!(matches!(place("limits.max_task_executors"), Place::Key(_)));
        assert!(matches!(place("nodes.east-1.url"), Place::Key(key) if key.path == "nodes.*.url"));
        for table in ["limits", "nodes", "nodes.east"] {
            assert!(matches!(place(table), Place::Table), "{table}");
        }
        for nothing in
            ["", "limit", "limits.x", "nodes.East.url", "nodes.a.b.url", "data_dir.x", "nodes.*", "."]
        {
            assert!(matches!(place(nothing), Place::Unknown), "{nothing}");
        }
    }

    #[test]
    fn slips_are_answered_with_the_nearest_key() {
        for (slip, meant) in [
            ("limits.max_task_executor", "limits.max_task_executors"),
            ("limit", "limits"),
            ("max_task_executors", "limits.max_task_executors"),
            ("limits.jitter", "retry.jitter"),
            ("datadir", "data_dir"),
            ("nodes.east.max_task_executers", "nodes.east.max_task_executors"),
        ] {
            assert_eq!(nearest(slip).as_deref(), Some(meant), "{slip}");
        }
        assert_eq!(nearest("zzz"), None);
        assert_eq!(nearest(&"limits".repeat(1000)), None);
    }

    #[test]
    fn paths_are_unique_and_nodes_reload() {
        for (i, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..i].iter().all(|earlier| earlier.path != key.path), "{}", key.path);
            // `Reload::Restart` keeps one value; a set of nodes has no such one.
            assert!(key.is_reloadable() || !key.path.contains('*'), "{}", key.path);
        }
    }
}
