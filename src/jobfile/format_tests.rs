//! YAML and JSON; variables, `for_each`, `command_file`.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(file: &str, text: &str, variables: &[(&str, &str)]) -> Result<Value, Vec<String>> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let read_file = |name: &str| match name {
        "good.sql" => Ok("SELECT 1".to_owned()),
        "bad.sql" => Ok("SELECT 1;\nSELECT * FORM r".to_owned()),
        _ => Err("cannot be read: not there".to_owned()),
    };
    let options = Options { known_nodes: None, variables: &variables, read_file: &read_file };
    match parse_with(file, text, &options) {
        Ok(job) => Ok(job.to_submission()),
        Err(mistakes) => Err(mistakes.iter().map(Mistake::to_string).collect()),
    }
}

#[track_caller]
fn shows(file: &str, text: &str, expected: &[&str]) {
    assert_eq!(read(file, text, &[]).expect_err("the file has mistakes"), expected);
}

const YAML: &str = "\
# a comment with é
description: nightly
priority: -1
retry: { max_retries: 0, delays: [5s, \"1m\"], jitter: 0.5 }
task:
  - name: a
    command: |
      SELECT 1;
      SELECT 2
  - name: b
    depends_on: [a]
    command: SELECT 'x'
    transactional: true
    not_before: 2026-12-01T08:00:00Z
";

#[test]
fn the_three_formats_say_the_same() {
    let expected = json!({
        "description": "nightly", "priority": -1,
        "retry": {"max_retries": 0, "delays": ["5s", "60s"], "jitter": 0.5},
        "task": [
            {"name": "a", "command": "SELECT 1;\nSELECT 2\n"},
            {"name": "b", "command": "SELECT 'x'", "depends_on": ["a"], "transactional": true,
             "not_before": "2026-12-01T08:00:00Z"},
        ],
    });
    assert_eq!(read("j.yaml", YAML, &[]).unwrap(), expected);
    assert_eq!(read("j.yml", &YAML.replace('\n', "\r\n"), &[]).unwrap(), expected);
    assert_eq!(read("j.json", &expected.to_string(), &[]).unwrap(), expected);
    assert_eq!(read("j.JSON", &serde_json::to_string_pretty(&expected).unwrap(), &[]).unwrap(), expected);
    assert_eq!(read("j.toml", &toml::to_string(&expected).unwrap(), &[]).unwrap(), expected);
}

/// people.md 2: all mistakes at once, each with its place, in every format.
#[test]
fn people_2_mistakes_in_yaml_are_placed() {
    shows(
        "j.yaml",
        "# é\nprority: 1\ntask:\n  - name: a\n    command: |\n      SELECT 'é';\n      SELECT * FORM r\n    timeout: 5\n  \
         - name: a\n    command: SELECT 1\n    depends_on: [b]\n",
        &[
            "j.yaml:2:1: unknown key `prority` in the job\n    prority: 1\n    ^^^^^^^\n  hint: did you mean `priority`?",
            "j.yaml:7:16: SQL of task \"a\": syntax error at or near \"FORM\"\n          SELECT * FORM r\n                   ^^^^",
            "j.yaml:8:14: `timeout` must be a duration in quotes, not a number without a unit\n        timeout: 5\n                 ^\n  \
             hint: write a duration such as \"30s\", \"5m\" or \"1h 30m\"",
            "j.yaml:9:11: duplicate task name \"a\"\n      - name: a\n              ^\n  hint: the first one is in line 4",
            "j.yaml:11:18: unknown task \"b\" in `depends_on` of task \"a\"\n        depends_on: [b]\n                     ^",
        ],
    );
}

#[test]
fn people_2_mistakes_in_json_are_placed() {
    shows(
        "j.json",
        "{\"task\": [{\"name\": \"a\",\n  \"command\": \"SELEC 1\", \"node\": 3}]}",
        &[
            "j.json:2:15: SQL of task \"a\": syntax error at or near \"SELEC\"\n      \"command\": \"SELEC 1\", \"node\": 3}]}\n                  ^^^^^",
            "j.json:2:33: `node` must be text in quotes, not a whole number\n      \"command\": \"SELEC 1\", \"node\": 3}]}\n                                    ^",
        ],
    );
    let mistakes = read("j.json", "{\n  \"task\": [}\n", &[]).unwrap_err();
    assert!(mistakes[0].starts_with("j.json:2:12: expected value"), "{mistakes:?}");
    let mistakes = read("j.json", "{\"key\": \"a\", \"key\": \"b\"}", &[]).unwrap_err();
    assert!(mistakes.iter().any(|m| m.starts_with("j.json:1:14: duplicate key `key`")), "{mistakes:?}");
}

#[test]
fn what_yaml_has_beyond_json_is_refused() {
    for (text, message) in [
        ("task: &x []\n", "an anchor of YAML is not read"),
        ("key: !!str a\n", "a tag of YAML is not read"),
        ("key: a\n---\nkey: b\n", "a second document"),
        ("- a\n", "a job file must be a table"),
        ("key: ~\n", "null stands for no value"),
    ] {
        let mistakes = read("j.yaml", text, &[]).unwrap_err();
        assert!(mistakes.iter().any(|mistake| mistake.contains(message)), "{text}: {mistakes:?}");
    }
}

const PARTS: &str = r#"
[vars]
year = 2026
table = "part"
[[task]]
name = "make_${each}"
for_each = { from = 1, to = 3 }
command = "CREATE TABLE ${table}_${year}_${each} (x int DEFAULT $$1$$)"
[[task]]
name = "fill_${each}"
for_each = [1, "2", 3]
depends_on = ["make_${each}"]
command = "INSERT INTO ${table}_${year}_${each} VALUES (1)"
[[task]]
name = "all"
depends_on = ["fill_${each}"]
command = "SELECT $${year}$$"
"#;

#[test]
fn for_each_writes_tasks_out() {
    let job = read("j.toml", PARTS, &[("year", "2027")]).unwrap();
    let tasks = job["task"].as_array().unwrap();
    assert_eq!(tasks.len(), 7);
    assert_eq!(
        tasks[4],
        json!({"name": "fill_2", "depends_on": ["make_2"], "command": "INSERT INTO part_2027_2 VALUES (1)"})
    );
    assert_eq!(tasks[0]["command"], "CREATE TABLE part_2027_1 (x int DEFAULT $$1$$)");
    assert_eq!(tasks[6]["depends_on"], json!(["fill_1", "fill_2", "fill_3"]));
    assert_eq!(tasks[6]["command"], "SELECT $${year}$$", "a quoted string of SQL stays");
}

#[test]
fn without_variables_nothing_is_replaced() {
    let job = read("j.toml", "[[task]]\nname = 'a'\ncommand = \"SELECT '${x}'\"\n", &[]).unwrap();
    assert_eq!(job["task"][0]["command"], "SELECT '${x}'");
}

#[test]
fn mistakes_of_variables_and_for_each_are_placed() {
    shows(
        "j.toml",
        "[vars]\nyear = 1\n[[task]]\nname = 'a'\ncommand = \"SELECT '${yaer}'\"\n[[task]]\nname = 'b'\nfor_each = [1]\ncommand = 'SELECT 1'\n",
        &[
            "j.toml:5:11: unknown variable `yaer`\n    command = \"SELECT '${yaer}'\"\n              ^^^^^^^^^^^^^^^^^^\n  hint: did you mean `year`?",
            "j.toml:7:8: the name of a task with `for_each` must hold ${each}\n    name = 'b'\n           ^^^\n  hint: write \"b_${each}\"",
        ],
    );
    let mistakes = read("j.toml", PARTS, &[("yeer", "1")]).unwrap_err();
    assert!(
        mistakes[0].contains("--var sets `yeer`") && mistakes[0].contains("did you mean `year`?"),
        "{mistakes:?}"
    );
    let mistakes = read("j.toml", &PARTS.replace("to = 3", "to = 1000000000"), &[]).unwrap_err();
    assert!(mistakes[0].starts_with("j.toml:7:12: `for_each` from 1 to 1000000000"), "{mistakes:?}");
}

#[test]
fn a_command_file_is_read_and_its_mistakes_are_placed_in_it() {
    let task = |name: &str| format!("[[task]]\nname = 'a'\ncommand_file = '{name}'\n");
    assert_eq!(read("j.toml", &task("good.sql"), &[]).unwrap()["task"][0]["command"], "SELECT 1");
    shows(
        "j.toml",
        &task("bad.sql"),
        &[
            "bad.sql:2:10: SQL of task \"a\": syntax error at or near \"FORM\"\n    SELECT * FORM r\n             ^^^^",
        ],
    );
    shows(
        "j.toml",
        &task("none.sql"),
        &[
            "j.toml:3:16: `command_file`: \"none.sql\" cannot be read: not there\n    command_file = 'none.sql'\n                   ^^^^^^^^^^",
        ],
    );
}

/// What the reference shows as a file is one.
#[test]
fn the_reference_shows_good_files() {
    let text = include_str!("../../docs/job-files.md");
    let mut counts = [0, 0];
    for (at, language) in ["toml", "yaml"].into_iter().enumerate() {
        for block in text.split(&format!("```{language}\n")).skip(1) {
            let block = block.split("```").next().unwrap();
            let job = read(&format!("j.{language}"), block, &[]).unwrap();
            counts[at] += job["task"].as_array().unwrap().len();
        }
    }
    assert_eq!(counts, [25, 2]);
    for key in fields::JOB_KEYS.iter().chain(&fields::TASK_KEYS).chain(&fields::RETRY_KEYS) {
        assert!(text.contains(&format!("`{key}`")), "{key} is missing in the reference");
    }
}

/// The published schema knows exactly the reader's keys.
#[test]
fn the_schema_has_the_readers_keys() {
    let schema: Value = serde_json::from_str(include_str!("../../docs/job.schema.json")).unwrap();
    let keys = |part: &Value| -> Vec<String> {
        assert_eq!(part["additionalProperties"], false);
        let mut keys: Vec<_> = part["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let sorted = |keys: &[&str]| {
        let mut keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&schema), sorted(&fields::JOB_KEYS));
    assert_eq!(keys(&schema["$defs"]["task"]), sorted(&fields::TASK_KEYS));
    assert_eq!(keys(&schema["$defs"]["retry"]), sorted(&fields::RETRY_KEYS));
}

proptest! {
    /// Whatever the text, a reader answers.
    #[test]
    fn nothing_panics(text in "([a-z&*!|>{}\\[\\]:,'\"é -]{0,8}\n?){0,12}") {
        for file in ["j.yaml", "j.json"] {
            if let Err(mistakes) = parse(file, &text, None) {
                prop_assert!(!mistakes.is_empty());
            }
        }
    }

    /// JSON of any text arrives as it was.
    #[test]
    fn any_text_arrives(text in "[ -~é😀\t\n]{1,40}") {
        let job = json!({"description": text, "task": [{"name": "a", "command": "SELECT 1"}]});
        prop_assert_eq!(read("j.json", &job.to_string(), &[]).unwrap(), job);
    }
}
