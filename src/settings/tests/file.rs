//! Files of every shape: what is wrong is told with line, column, key and rule, and nothing panics.

use proptest::prelude::*;

use super::super::{MANUAL, Origin, Position, Settings, Sources};
use super::{Written, load};

#[test]
fn each_mistake_has_its_place_its_key_and_its_rule() {
    for (content, line) in [
        (
            "[limits]\n  max_task_executors = 0",
            "2:24: limits.max_task_executors = 0 is out of range: 1 to 1000",
        ),
        (
            "[limits]\nmax_task_executors = '4'",
            "2:22: limits.max_task_executors = \"4\" is a string, not an integer: 1 to 1000",
        ),
        ("[limit]\nx = 1", "1:2: unknown key limit: did you mean limits?"),
        (
            "[limits]\nmax_tasks_executors = 1",
            "2:1: unknown key limits.max_tasks_executors: did you mean limits.max_task_executors?",
        ),
        ("zzz = 1", "1:1: unknown key zzz: Settings.toml lists every key"),
        ("limits = 1", "1:10: limits is a table of keys: write [limits]"),
        ("nodes.east = 1", "1:14: nodes.east is a table of keys: write [nodes.east]"),
        ("[nodes.East]", "1:8: nodes.East is not a valid name: 1 to 63 lower case letters, digits, _ and -"),
        (
            "cancel.grace = '5 parsecs'",
            "1:16: cancel.grace = \"5 parsecs\" is not a duration: write a number and a unit, such as \"500ms\", \"5s\", \"1m 30s\", \"7d\"",
        ),
        (
            "cancel.grace = 5",
            "1:16: cancel.grace = 5 is an integer, not a duration in quotes such as \"5s\": 0s to 1h",
        ),
        ("cancel.grace = '2h'", "1:16: cancel.grace = \"2h\" is out of range: 0s to 1h"),
        (
            "retry.delays = ['1s', 'x']",
            "1:16: retry.delays = [\"1s\", \"x\"] has an entry that is not a duration: write a number and a unit, such as \"500ms\", \"5s\", \"1m 30s\", \"7d\"",
        ),
        (
            "limits.max_task_executors = 99999999999999999999",
            "1:29: limits.max_task_executors is too large: 1 to 1000",
        ),
        ("data_dir = { a = 1 }", "1:12: data_dir = {…} is a table, not a string: a path"),
        (
            "'limits.reserve_after' = '5s'",
            "1:1: unknown key \"limits.reserve_after\": a dot inside quotes separates nothing; write limits.reserve_after without quotes",
        ),
        (
            "# größer\n'ä' = 1 ; x",
            "2:7: not valid TOML: string values must be quoted, expected literal string",
        ),
    ] {
        assert_eq!(load(content).unwrap_err(), format!("Settings.toml:{line}"), "{content}");
    }
}

#[test]
fn all_mistakes_come_at_once_in_the_order_of_the_file() {
    let error = load("[retry]\njitter = 2\n[cancel]\ngrace = '9h'\n[bogus]\n").unwrap_err();
    let places: Vec<&str> = error.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["Settings.toml:2:10", "Settings.toml:4:9", "Settings.toml:5:2"], "{error}");
}

#[test]
fn the_place_is_there_for_programs_too() {
    let file = Written::new("\nzzz = 1");
    let error = Settings::load(&file.sources()).unwrap_err();
    let expected = Origin::File { path: file.path(), position: Some(Position { line: 2, column: 1 }) };
    assert_eq!(error.mistakes()[0].origin, expected);
}

#[test]
fn a_missing_or_unreadable_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // A device reads as a file without an end.
    let error =
        Settings::load(&Sources { file: Some("/dev/zero".into()), ..Sources::default() }).unwrap_err();
    assert_eq!(error.to_string(), "/dev/zero: larger than 1048576 bytes: this is not a settings file");
    let gone = folder.path().join("gone.toml");
    for (path, rule) in [(gone, "no such file"), (folder.path().to_owned(), "cannot be read")] {
        let error = Settings::load(&Sources { file: Some(path.clone()), ..Sources::default() }).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("{}: {rule}", path.display())), "{message}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_placed() {
    let error = load(b"# fine\ninstance_name = \"\xff\"\n").unwrap_err();
    assert_eq!(error, "Settings.toml:2:18: not UTF-8: save the file as UTF-8 text");
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_welcome() {
    let settings = load("\u{feff}[limits]\r\nmax_task_executors = 7\r\n").unwrap();
    assert_eq!(settings.limits.max_task_executors, 7);
    let error = load("\u{feff}zzz = 1\r\nyyy = 2\r\n").unwrap_err();
    let places: Vec<&str> = error.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["Settings.toml:1:1", "Settings.toml:2:1"]);
}

#[test]
fn duplicates_are_refused_at_the_second_one() {
    let error = load("[cancel]\ngrace = '1s'\ngrace = '2s'\n").unwrap_err();
    assert_eq!(error, "Settings.toml:3:1: not valid TOML at grace: duplicate key");
    let error = load("[cancel]\n[cancel]\n").unwrap_err();
    assert!(error.starts_with("Settings.toml:2:"), "{error}");
}

#[test]
fn a_cut_file_says_that_it_ends_too_early() {
    let error = load("[limits]\nmax_task_executors =").unwrap_err();
    assert!(
        error.starts_with("Settings.toml:2:21: not valid TOML at max_task_executors")
            && error.ends_with("(at the end of the file)"),
        "{error}"
    );
}

#[test]
fn the_manual_cut_anywhere_is_accepted_or_refused_with_a_place() {
    for end in (0..MANUAL.len()).step_by(37) {
        if let Err(error) = load(&MANUAL.as_bytes()[..end]) {
            assert!(error.lines().all(|line| line.starts_with("Settings.toml:")), "{end}: {error}");
        }
    }
}

#[test]
fn a_syntax_error_does_not_repeat_a_password() {
    for line in [
        "url = postgres://app:s3cret@db",
        "url 's3cret'",
        "url = 's3cret",
        "s3cret",
        "s3cret@db = 's3cret",
        "url = 's3cret' s3cret",
    ] {
        let error = load(format!("[database]\n{line}")).unwrap_err();
        assert!(error.starts_with("Settings.toml:2:") && !error.contains("s3cret"), "{line}: {error}");
    }
}

#[test]
fn control_characters_in_a_name_or_value_come_out_escaped() {
    let error = load("\"\\u001b[2J\" = 1\ninstance_name = \"a\\u0007\"").unwrap_err();
    assert!(error.contains("\\u{1b}[2J") && error.contains("a\\u{7}"), "{error}");
    assert!(!error.contains(['\u{1b}', '\u{7}']), "{error}");
}

/// A megabyte of each kind of junk: refused in a message that fits a screen.
#[test]
fn a_megabyte_of_junk_is_refused_shortly() {
    const MEGABYTE: usize = 1024 * 1024;
    let repeated = |text: &str| text.repeat(MEGABYTE / text.len()).into_bytes();
    let mut many_keys = String::new();
    for n in 0..60_000 {
        many_keys.push_str(&format!("limit_{n} = 1\n"));
    }
    for (name, content) in [
        ("zeros", vec![0; MEGABYTE]),
        ("noise", (0..MEGABYTE).map(|n| (n * 7919 % 251) as u8).collect()),
        ("letters", repeated("x")),
        ("quotes", repeated("\"")),
        ("brackets", repeated("[")),
        ("lines", repeated("=\n")),
        ("nested arrays", [b"data_dir = ".to_vec(), repeated("[")[..MEGABYTE / 2].to_vec()].concat()),
        ("nested tables", [b"a = ".to_vec(), repeated("{a=")[..MEGABYTE / 2].to_vec()].concat()),
        ("dotted keys", [repeated("a.")[..MEGABYTE / 2].to_vec(), b"a = 1".to_vec()].concat()),
        ("unknown keys", many_keys.into_bytes()),
        ("too much", vec![b'#'; MEGABYTE + 1]),
    ] {
        let error = load(&content).unwrap_err();
        assert!(error.lines().count() <= 21 && error.len() < 8000, "{name}: {} bytes", error.len());
        assert!(error.starts_with("Settings.toml:"), "{name}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_accepted_or_refused_with_a_place(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = load(&content) {
            prop_assert!(error.starts_with("Settings.toml:"), "{}", error);
        }
    }

    #[test]
    fn any_text_at_any_key_is_accepted_or_refused_with_a_place(
        key in "(limits|retry|nodes|log|nodes\\.[a-z]{1,3})\\.[a-z_]{1,9}",
        value in "[0-9]{1,3}|'[a-z0-9 ]{0,8}'|\\[('[0-9a-zA-Z]{0,5}',?){0,3}\\]|true|1e9|nan",
    ) {
        if let Err(error) = load(format!("{key} = {value}")) {
            prop_assert!(error.starts_with("Settings.toml:1:"), "{}", error);
        }
    }
}
