//! Which source wins, and how each one's mistakes are named.

use std::time::Duration;

use super::super::{Settings, Sources};
use super::{Written, pairs};

fn environment(variables: &[(&str, &str)]) -> Sources {
    // An empty file of its own keeps the machine's settings out of the tests.
    Sources { environment: pairs(variables), ..Sources::default() }
}

/// Loads with an empty file, so that what is installed on this machine does not matter.
fn load(sources: Sources) -> Result<Settings, String> {
    let empty = Written::new("");
    let file = sources.file.clone().or_else(|| Some(empty.path()));
    Settings::load(&Sources { file, ..sources }).map_err(|error| error.to_string())
}

fn url(sources: Sources) -> Option<String> {
    load(sources).unwrap().database.url
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let file = Written::new(
        "[limits]\nmax_task_executors = 5\nmax_task_executors_per_node = 5\nreserve_after = '5s'",
    );
    let sources = Sources {
        environment: pairs(&[
            ("YARDMASTER__LIMITS__MAX_TASK_EXECUTORS", "6"),
            ("YARDMASTER__LIMITS__MAX_TASK_EXECUTORS_PER_NODE", "6"),
        ]),
        flags: pairs(&[("limits.max_task_executors", "8"), ("limits.max_task_executors", "7")]),
        ..file.sources()
    };
    let settings = load(sources).unwrap();
    assert_eq!(settings.limits.max_task_executors, 7);
    assert_eq!(settings.limits.max_task_executors_per_node, 6);
    assert_eq!(settings.limits.reserve_after, Duration::from_secs(5));
    assert_eq!(settings.cancel, Settings::default().cancel);
}

#[test]
fn variables_of_every_kind_are_read() {
    let settings = load(environment(&[
        ("YARDMASTER__RETRY__DELAYS", "1s, 1m 30s"),
        ("YARDMASTER__RETRY__PERMANENT_SQLSTATES", "['42', '22012']"),
        ("YARDMASTER__RETRY__JITTER", "1"),
        ("YARDMASTER__SESSIONS__REUSE", "false"),
        ("YARDMASTER__NODES__EAST_1__MAX_TASK_EXECUTORS", "8"),
        ("YARDMASTER__INSTANCE_NAME", "42"),
        ("YARDMASTER__LOG__LEVEL", ""),
        ("YARDMASTER_UNRELATED", "x"),
    ]))
    .unwrap();
    assert_eq!(settings.retry.delays, [Duration::from_secs(1), Duration::from_secs(90)]);
    assert_eq!(settings.retry.permanent_sqlstates, ["42", "22012"]);
    assert_eq!(settings.retry.jitter, 1.0);
    assert!(!settings.sessions.reuse);
    assert_eq!(settings.nodes["east_1"].max_task_executors, Some(8));
    assert_eq!(settings.instance_name, "42");
    assert_eq!(settings.log.level, "info");
}

#[test]
fn a_later_source_adds_to_a_node_and_keeps_its_other_keys() {
    let file = Written::new("[nodes.a-1]\nurl = 'postgres://a/x'\nmax_task_executors = 2\n[nodes.1]\n");
    let flags = pairs(&[("nodes.a-1.max_task_executors", "9")]);
    let settings = load(Sources { flags, ..file.sources() }).unwrap();
    assert_eq!(settings.nodes["a-1"].url.as_deref(), Some("postgres://a/x"));
    assert_eq!(settings.nodes["a-1"].max_task_executors, Some(9));
    assert_eq!(settings.nodes["1"].url, None);
}

#[test]
fn the_database_is_found_in_the_documented_order() {
    let file = Written::new("[database]\nurl = 'postgres://file/x'");
    let all = pairs(&[
        ("PGHOST", "pg"),
        ("DATABASE_URL", "postgres://ambient/x"),
        ("YARDMASTER__DATABASE__URL", "postgres://variable/x"),
    ]);
    let flag = pairs(&[("database.url", "postgres://flag/x")]);
    let with = |variables: &[(String, String)], flags: &[(String, String)], is_file: bool| {
        let file = is_file.then(|| file.path());
        url(Sources { file, environment: variables.to_vec(), flags: flags.to_vec() })
    };
    assert_eq!(with(&all, &flag, true).as_deref(), Some("postgres://flag/x"));
    assert_eq!(with(&all, &[], true).as_deref(), Some("postgres://variable/x"));
    assert_eq!(with(&all[..2], &[], true).as_deref(), Some("postgres://file/x"));
    assert_eq!(with(&all[..2], &[], false).as_deref(), Some("postgres://ambient/x"));
    assert_eq!(with(&all[..1], &[], false).as_deref(), Some("host=pg"));
    assert_eq!(with(&[], &[], false), None);
}

#[test]
fn libpq_variables_become_one_connection_text() {
    let all = environment(&[
        ("PGHOST", "/run/my pg"),
        ("PGPORT", "5433"),
        ("PGUSER", "app"),
        ("PGDATABASE", "jobs"),
        ("PGPASSWORD", "it's \\ s3cret"),
        ("PGSSLMODE", "require"),
        ("PGCONNECT_TIMEOUT", "3"),
        ("PGAPPNAME", "psql"),
    ]);
    let expected = "host='/run/my pg' port=5433 user=app dbname=jobs password='it\\'s \\\\ s3cret' sslmode=require \
                    connect_timeout=3";
    assert_eq!(url(all).as_deref(), Some(expected));
    let database = environment(&[("PGDATABASE", "jobs")]);
    assert_eq!(url(database).as_deref(), Some("host=/var/run/postgresql,localhost dbname=jobs"));
}

#[test]
fn habits_of_libpq_users_alone_give_no_database() {
    let habits =
        [("PGUSER", "app"), ("PGPORT", "5433"), ("PGPASSWORD", "x"), ("PGHOST", ""), ("DATABASE_URL", "")];
    assert_eq!(url(environment(&habits)), None);
}

#[test]
fn a_connection_service_is_refused_only_if_it_would_be_used() {
    let service = ("PGSERVICE", "prod");
    let error = load(environment(&[service])).unwrap_err();
    assert!(
        error.starts_with("environment variable PGSERVICE: connection services are not supported"),
        "{error}"
    );
    let given = environment(&[service, ("YARDMASTER__DATABASE__URL", "postgres://h/d")]);
    assert_eq!(url(given).as_deref(), Some("postgres://h/d"));
}

#[test]
fn mistakes_name_the_variable_or_the_flag_and_come_all_at_once() {
    let sources = Sources {
        flags: pairs(&[
            ("limits.max_task_executors", "eight"),
            ("limits", "8"),
            ("nodes.East.url", "postgres://h"),
        ]),
        ..environment(&[
            ("YARDMASTER__LIMITS__MAX_TASK_EXECUTORS", "0"),
            ("YARDMASTER__LIMIT__MAX_TASK_EXECUTORS", "8"),
            ("YARDMASTER__CANCEL__GRACE", "5"),
        ])
    };
    assert_eq!(
        load(sources).unwrap_err().lines().collect::<Vec<_>>(),
        [
            "environment variable YARDMASTER__LIMITS__MAX_TASK_EXECUTORS: limits.max_task_executors = 0 is out of \
             range: 1 to 1000",
            "environment variable YARDMASTER__LIMIT__MAX_TASK_EXECUTORS: unknown key limit.max_task_executors: did \
             you mean limits.max_task_executors?",
            "environment variable YARDMASTER__CANCEL__GRACE: cancel.grace = \"5\" is not a duration: write a number \
             and a unit, such as \"500ms\", \"5s\", \"1m 30s\", \"7d\"",
            "flag --set limits.max_task_executors=…: limits.max_task_executors = \"eight\" is a string, not an \
             integer: 1 to 1000",
            "flag --set limits=…: limits is a table of keys: name one of its keys",
            "flag --set nodes.East.url=…: nodes.East is not a valid name: 1 to 63 lower case letters, digits, _ and -",
        ]
    );
}

#[test]
fn a_password_never_shows_in_an_error() {
    let secret = "postgres://app:s3cret@db/jobs";
    let sources = Sources {
        flags: pairs(&[
            (secret, "x"),
            ("http.listen", secret),
            ("database.url", "mysql://app:s3cret@db"),
            ("nodes.a.url", "s3cret"),
            ("log.format", "host=db password=s3cret"),
            ("data_dir.postgres://app:s3cret@db", "x"),
        ]),
        ..environment(&[("YARDMASTER__HTTP__LISTEN", secret), ("DATABASE_URL", "app:s3cret@db")])
    };
    let error = load(sources).unwrap_err();
    assert_eq!(error.lines().count(), 8, "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn the_file_may_be_named_by_a_variable_and_must_then_exist() {
    let file = Written::new("instance_name = 'named'");
    let path = file.path().display().to_string();
    let load = |variable: &str| {
        Settings::load(&environment(&[("YARDMASTER_CONFIG", variable)])).map_err(|error| error.to_string())
    };
    assert_eq!(load(&path).unwrap().instance_name, "named");
    let missing = format!("{path}.gone");
    let expected =
        format!("{missing}: no such file: correct --config or YARDMASTER_CONFIG, or leave both out");
    assert_eq!(load(&missing).unwrap_err(), expected);
}
