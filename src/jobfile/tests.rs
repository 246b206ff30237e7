use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sql::{self, Inspection};

const NODES: [&str; 2] = ["home", "home2"];

fn parse_with_nodes(text: &str) -> Result<JobFile, Vec<Mistake>> {
    parse("job.toml", text, Some(&NODES.map(str::to_owned).into()))
}

/// Checks all mistakes of a text, as shown.
#[track_caller]
fn shows(text: &str, expected: &[&str]) {
    let mistakes = parse_with_nodes(text).expect_err("the file has mistakes");
    let shown: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
    assert_eq!(shown, expected);
}

/// The same for a key that is added to a good task, in line 4.
#[track_caller]
fn task_shows(line: &str, expected: &str) {
    shows(&format!("[[task]]\nname = \"a\"\ncommand = \"SELECT 1\"\n{line}\n"), &[expected]);
}

#[test]
fn the_smallest_file() {
    let job = parse("j", "[[task]]\nname = 'a'\ncommand = 'SELECT 1'", None).unwrap();
    assert_eq!(job.to_submission(), json!({"task": [{"name": "a", "command": "SELECT 1"}]}));
}

#[test]
fn every_key_arrives_under_its_own_name() {
    let text = r#"
description = "d"
job_type = "t"
priority = -1
key = "k"
owner = "o"
timeout = "1m 30s"
[retry]
max_retries = 0
delays = ["0s", "1500ms", "1m"]
jitter = 1
permanent_sqlstates = ["42", "0A000"]
[[task]]
name = "second"
command = "SELECT 2"
depends_on = ["first"]
node = "home2"
nodes_involved = ["x", "logical"]
owner = "alice"
priority = 5
not_before = 2026-12-01T08:00:00+01:00
timeout = "30s"
transactional = false
verify = "SELECT true"
undo = "SELECT 3"
retry = { max_retries = 3 }
[[task]]
name = "first"
command = '-- nothing yet'
not_before = "2026-12-01T08:00:00Z"
[task.retry]
delays = ["5s"]
"#;
    let expected = json!({
        "description": "d", "job_type": "t", "priority": -1, "key": "k", "owner": "o", "timeout": "90s",
        "retry": {
            "max_retries": 0, "delays": ["0s", "1500ms", "60s"], "jitter": 1.0, "permanent_sqlstates": ["42", "0A000"]
        },
        "task": [
            {
                "name": "first", "command": "-- nothing yet", "not_before": "2026-12-01T08:00:00Z",
                "retry": {"delays": ["5s"]}
            },
            {
                "name": "second", "command": "SELECT 2", "depends_on": ["first"], "node": "home2",
                "nodes_involved": ["x", "logical"], "owner": "alice", "priority": 5,
                "not_before": "2026-12-01T07:00:00Z", "timeout": "30s", "transactional": false,
                "verify": "SELECT true", "undo": "SELECT 3",
                "retry": {"max_retries": 3}
            },
        ],
    });
    assert_eq!(parse_with_nodes(text).unwrap().to_submission(), expected);
}

#[test]
fn unknown_keys_are_named_with_the_nearest_or_all() {
    task_shows(
        "depend_on = []",
        "job.toml:4:1: unknown key `depend_on` in task \"a\"\n    depend_on = []\n    ^^^^^^^^^\n  hint: did you mean `depends_on`?",
    );
    task_shows(
        "retry = { jiter = 0.1 }",
        "job.toml:4:11: unknown key `jiter` in `retry` of task \"a\"\n    retry = { jiter = 0.1 }\n              ^^^^^\n  hint: did you mean `jitter`?",
    );
    task_shows(
        "colour = 1",
        "job.toml:4:1: unknown key `colour` in task \"a\"\n    colour = 1\n    ^^^^^^\n  hint: known keys: name, command, depends_on, \
         node, nodes_involved, owner, priority, not_before, timeout, transactional, verify, undo, retry, output, command_file, for_each",
    );
}

#[test]
fn wrong_types_are_named() {
    task_shows(
        "priority = \"high\"",
        "job.toml:4:12: `priority` must be a whole number, not text\n    priority = \"high\"\n               ^^^^^^",
    );
    task_shows(
        "depends_on = \"b\"",
        "job.toml:4:14: `depends_on` must be a list in [ ], not text\n    depends_on = \"b\"\n                 ^^^",
    );
    task_shows(
        "transactional = 1",
        "job.toml:4:17: `transactional` must be true or false, not a whole number\n    transactional = 1\n                    ^",
    );
    task_shows(
        "retry = 3",
        "job.toml:4:9: `retry` must be a table, not a whole number\n    retry = 3\n            ^",
    );
    task_shows(
        "timeout = 30",
        "job.toml:4:11: `timeout` must be a duration in quotes, not a number without a unit\n    timeout = 30\n              ^^\n  \
         hint: write a duration such as \"30s\", \"5m\" or \"1h 30m\"",
    );
}

#[test]
fn values_out_of_range_are_named() {
    task_shows(
        "retry.max_retries = 10001",
        "job.toml:4:21: `max_retries` is 10001, which is not between 0 and 10000\n    retry.max_retries = 10001\n                        ^^^^^",
    );
    task_shows(
        "retry.jitter = nan",
        "job.toml:4:16: `jitter` is not between 0.0 and 1.0\n    retry.jitter = nan\n                   ^^^",
    );
    task_shows(
        "retry.delays = []",
        "job.toml:4:16: `delays` is empty\n    retry.delays = []\n                   ^^\n  hint: leave it out, or set max_retries = 0",
    );
    task_shows(
        "retry.permanent_sqlstates = ['0a000']",
        "job.toml:4:30: \"0a000\" is no SQLSTATE: a class has 2 characters, a code 5, of 0-9 and A-Z\n    \
         retry.permanent_sqlstates = ['0a000']\n                                 ^^^^^^^\n  hint: write \"0A000\"",
    );
    task_shows(
        "timeout = \"0s\"",
        "job.toml:4:11: `timeout`: \"0s\" is not between 1 ms and 365 days, in whole milliseconds\n    timeout = \"0s\"\n              ^^^^",
    );
    task_shows("owner = ''", "job.toml:4:9: `owner` is empty\n    owner = ''\n            ^^");
    task_shows(
        "owner = \"x\\u0000\"",
        "job.toml:4:9: `owner` holds a NUL character, which PostgreSQL cannot store\n    owner = \"x\\u0000\"\n            ^^^^^^^^^",
    );
    let long = format!("name = '{}'", "n".repeat(129));
    let mistakes = parse_with_nodes(&format!("[[task]]\ncommand = 'SELECT 1'\n{long}\n")).unwrap_err();
    assert_eq!(mistakes[0].to_string(), "job.toml:3:8: `name` has 129 characters, more than 128");
}

#[test]
fn a_local_time_is_refused_with_the_remedy() {
    let hint = "hint: write it with an offset: 2026-12-01T08:00:00Z or 2026-12-01T08:00:00+01:00";
    task_shows(
        "not_before = 2026-12-01T08:00:00",
        &format!(
            "job.toml:4:14: `not_before` is 2026-12-01T08:00:00, which is not one moment everywhere\n    \
             not_before = 2026-12-01T08:00:00\n                 ^^^^^^^^^^^^^^^^^^^\n  {hint}"
        ),
    );
    task_shows(
        "not_before = '+5m'",
        &format!(
            "job.toml:4:14: `not_before`: \"+5m\" is no moment\n    not_before = '+5m'\n                 ^^^^^\n  {hint}"
        ),
    );
}

#[test]
fn a_missing_key_points_to_the_task() {
    shows(
        "[[task]]\ncommand = 'SELECT 1'\n\n[[task]]\nname = 'b'\n",
        &[
            "job.toml:1:1: the task has no `name`\n    [[task]]\n    ^^^^^^^^",
            "job.toml:4:1: task \"b\" has no `command`\n    [[task]]\n    ^^^^^^^^",
        ],
    );
    shows(
        "description = 'x'",
        &[
            "job.toml:1:1: the job has no task\n    description = 'x'\n    ^\n  hint: add a [[task]] with `name` and `command`",
        ],
    );
    shows(
        "[task]\nname = 'x'",
        &[
            "job.toml:1:1: `task` must be a list of tables\n    [task]\n    ^^^^^^\n  hint: head each task with [[task]], in double brackets",
        ],
    );
}

#[test]
fn names_that_do_not_fit_are_named() {
    shows(
        "[[task]]\nname = 'fill'\ncommand = 'SELECT 1'\n[[task]]\nname = 'fill'\ncommand = 'SELECT 1'\n",
        &[
            "job.toml:5:8: duplicate task name \"fill\"\n    name = 'fill'\n           ^^^^^^\n  hint: the first one is in line 2",
        ],
    );
    shows(
        "[[task]]\nname = 'fill'\ncommand = 'SELECT 1'\n[[task]]\nname = 'b'\ncommand = 'SELECT 1'\ndepends_on = ['fil', 'xyz']\n",
        &[
            "job.toml:7:15: unknown task \"fil\" in `depends_on` of task \"b\"\n    depends_on = ['fil', 'xyz']\n                  ^^^^^\n  \
             hint: did you mean \"fill\"?",
            "job.toml:7:22: unknown task \"xyz\" in `depends_on` of task \"b\"\n    depends_on = ['fil', 'xyz']\n                         ^^^^^",
        ],
    );
    task_shows(
        "depends_on = [\"a\"]",
        "job.toml:4:15: task \"a\" depends on itself\n    depends_on = [\"a\"]\n                  ^^^",
    );
    task_shows(
        "node = \"hom2\"",
        "job.toml:4:8: unknown node \"hom2\"\n    node = \"hom2\"\n           ^^^^^^\n  hint: did you mean \"home2\"?",
    );
    task_shows(
        "node = \"xyz\"",
        "job.toml:4:8: unknown node \"xyz\"\n    node = \"xyz\"\n           ^^^^^\n  hint: declared nodes: home, home2",
    );
    task_shows(
        "nodes_involved = ['x', 'x']",
        "job.toml:4:24: `nodes_involved` names \"x\" twice\n    nodes_involved = ['x', 'x']\n                           ^^^",
    );
}

#[test]
fn a_cycle_is_named_at_the_dependency_that_closes_it() {
    let task = |name: &str, on: &str| {
        format!("[[task]]\nname = '{name}'\ncommand = 'SELECT 1'\ndepends_on = ['{on}']\n")
    };
    shows(
        &format!("{}{}{}", task("a", "b"), task("b", "c"), task("c", "a")),
        &[
            "job.toml:12:15: dependencies form a cycle: a → b → c → a\n    depends_on = ['a']\n                  ^^^\n  \
           hint: each task waits for the one after the arrow; remove one dependency",
        ],
    );
}

#[test]
fn a_syntax_error_points_into_the_command() {
    for command in [
        "command = \"\"\"\nSELECT 1;\nSELECT * FORM r\"\"\"",
        "command = '''\r\nSELECT 'é';\nSELECT * FORM r'''",
        "command = \"\"\"\\\n   SELECT \\\"x\\\";\nSELECT * FORM r\"\"\"",
    ] {
        shows(
            &format!("[[task]]\nname = 'a'\n{command}\n"),
            &["job.toml:5:10: SQL of task \"a\": syntax error at or near \"FORM\"\n    SELECT * FORM r"
                .to_owned()
                + command.split("FORM r").nth(1).unwrap()
                + "\n             ^^^^"]
            .each_ref()
            .map(String::as_str),
        );
    }
}

#[test]
fn refused_commands_come_with_a_remedy() {
    let command = |sql: &str| format!("[[task]]\nname = 'a'\ncommand = '{sql}'\n");
    shows(
        &command("SELECT 1; COMMIT"),
        &["job.toml:3:22: task \"a\": COMMIT is refused: every task runs in a transaction of its own\n    \
           command = 'SELECT 1; COMMIT'\n                         ^^^^^^\n  hint: leave it out; to commit in steps, use several \
           tasks, or CALL a procedure that commits as the only statement"],
    );
    shows(
        &command("COPY r FROM STDIN"),
        &[
            "job.toml:3:12: task \"a\": COPY FROM STDIN is refused: a background task has no client to copy from or to\n    \
           command = 'COPY r FROM STDIN'\n               ^^^^\n  hint: copy from or to a file or PROGRAM on the server, or \
           use INSERT",
        ],
    );
    shows(
        &command("SELECT 1; VACUUM r"),
        &[
            "job.toml:3:22: task \"a\": VACUUM cannot stand beside other statements: PostgreSQL refuses it in a transaction \
           block\n    command = 'SELECT 1; VACUUM r'\n                         ^^^^^^\n  hint: give it a task of its own and \
           order the tasks with depends_on",
        ],
    );
    shows(
        &command("  "),
        &["job.toml:3:11: `command` of task \"a\" is empty\n    command = '  '\n              ^^^^"],
    );
}

#[test]
fn a_line_with_a_password_is_not_repeated() {
    let text = "[[task]]\nname = 'a'\ncommand = \"CREATE SUBSCRIPTION s CONNECTION 'password=hunter2' PUBLICATIO p\"\n";
    shows(text, &["job.toml:3:64: SQL of task \"a\": syntax error at or near \"PUBLICATIO\""]);
}

#[test]
fn errors_of_toml_are_reported_together() {
    let mistakes = parse_with_nodes("a = \n[[task\nb = 'x'\n").unwrap_err();
    let places: Vec<_> = mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
    assert_eq!(places, [(1, 5), (2, 7)]);
    assert!(mistakes[1].to_string().starts_with("job.toml:2:7: unclosed array table, expected `]]`"));
}

#[test]
fn all_mistakes_come_at_once_in_the_files_order() {
    let text = "prority = 1\n[[task]]\nname = 'a'\ncommand = 'SELEC 1'\ntimeout = 5\n[[task]]\nname = 'a'\ncommand = ''\n";
    let lines: Vec<usize> = parse_with_nodes(text).unwrap_err().iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [1, 4, 5, 7, 8]);
}

#[test]
fn ten_thousand_tasks_are_read_and_ten_thousand_mistakes_bounded() {
    let chain: String = (0..10_000)
        .map(|n| {
            let on = if n > 0 { format!("\"t{}\"", n - 1) } else { String::new() };
            format!("[[task]]\nname = \"t{n}\"\ncommand = \"SELECT {n}\"\ndepends_on = [{on}]\n")
        })
        .collect();
    assert_eq!(parse("j", &chain, None).unwrap().layers().len(), 10_000);
    let wrong = chain.replace("depends_on = [\"", "depends_on = [\"x");
    assert_eq!(parse("j", &wrong, None).unwrap_err().len(), 1_000);
}

fn example(text: &str) -> JobFile {
    parse("example", text, None).unwrap_or_else(|mistakes| {
        panic!("{}", mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n"))
    })
}

#[test]
fn the_first_minute_shows_what_it_promises() {
    let job = example(include_str!("../../examples/first-minute.toml"));
    assert!((10..=20).contains(&job.task.len()));
    assert!(job.layers().iter().any(|layer| layer.len() >= 5), "branches run side by side");
    let kinds: Vec<_> = job.task.iter().map(|task| sql::inspect(&task.command).unwrap()).collect();
    for kind in [Inspection::Transactional, Inspection::NonTransactional, Inspection::RetryOutside] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn the_other_examples_are_right() {
    assert_eq!(example(include_str!("../../examples/reindex-night.toml")).task.len(), 6);
    assert_eq!(example(include_str!("../../examples/rotate-partitions.toml")).task.len(), 5);
    assert_eq!(example(include_str!("../../examples/move-orders.toml")).task.len(), 6);
}

proptest! {
    #[test]
    fn nothing_panics(lines in prop::collection::vec(prop_oneof![
        prop::sample::select(vec![
            "[[task]]", "[task.retry]", "[retry]", "name = 'a'", "name = \"b\\u00e9\"", "command = 'SELECT 1; COMMIT'",
            "command = \"\"\"\\\n x\\u0041 ; SELEC\"\"\"", "depends_on = ['a', 'b']", "priority = 99999999999999999999",
            "timeout = '99999999999999y'", "not_before = 07:32:00", "not_before = 9999-12-31T23:59:60Z", "task = [1]",
            "retry = { jitter = inf, delays = [[]] }", "node = 'x'", "name = 1", "command = {}", "x.y.z = 1", "\u{feff}",
        ]).prop_map(str::to_owned),
        "[ -~é\t]{0,12}",
    ], 0..16)) {
        let text = lines.join("\n");
        if let Err(mistakes) = parse_with_nodes(&text) {
            prop_assert!(!mistakes.is_empty());
            prop_assert!(mistakes.iter().all(|mistake| mistake.line >= 1 && mistake.column >= 1));
        }
    }
}

#[test]
fn an_output_file_wants_a_single_copy_and_a_plain_name() {
    let file = |output: &str, command: &str| {
        parse("job.toml", &format!("[[task]]\nname = 'a'\noutput = '{output}'\ncommand = '{command}'"), None)
    };
    let read = file("a.csv", "COPY t TO STDOUT (FORMAT csv)").unwrap();
    assert_eq!(read.to_submission()["task"][0]["output"], "a.csv");
    for (output, command, expected) in [
        ("../a", "COPY t TO STDOUT", "is not the name of a file"),
        ("a.csv", "SELECT 1", "its command is no COPY … TO STDOUT"),
        ("a.csv", "COPY t TO STDOUT; SELECT 1", "COPY TO STDOUT is refused"),
        ("a.csv", "COPY t FROM STDIN", "COPY FROM STDIN is refused"),
    ] {
        let mistakes = file(output, command).unwrap_err();
        assert!(mistakes.iter().any(|m| m.to_string().contains(expected)), "{mistakes:?}");
    }
}

#[test]
fn scratch_and_its_clean_up_are_read() {
    let file = |words: &str| {
        parse("job.toml", &format!("{words}\n[[task]]\nname = 'a'\ncommand = 'SELECT 1'"), None)
    };
    let read = file("scratch = true\ncleanup = 'on_success'\ncleanup_delay = '1h'").unwrap().to_submission();
    assert_eq!(
        (&read["scratch"], &read["cleanup"], &read["cleanup_delay"]),
        (&true.into(), &"on_success".into(), &"3600s".into())
    );
    assert!(file("cleanup = 'sometimes'").unwrap_err()[0].to_string().contains("on_end, on_success, never"));
}

#[test]
fn a_task_names_a_node_or_candidates_each_of_them_declared_and_once() {
    let read = |value: &str| {
        parse_with_nodes(&format!("[[task]]\nname = 'a'\ncommand = 'SELECT 1'\nnode = {value}\n"))
    };
    let two = json!(["home2", "home"]);
    for (value, node) in [("'home'", json!("home")), ("['home']", json!("home")), ("['home2', 'home']", two)]
    {
        assert_eq!(read(value).unwrap().to_submission()["task"][0]["node"], node);
    }
    for wrong in ["['home', 'n3']", "['home', 'home']", "7"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
