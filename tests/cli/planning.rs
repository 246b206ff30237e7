//! `job plan`, `job logs --follow`, `doctor`, `man`: what people see before and while jobs run.

use std::io::Write;

use crate::yard::{Told, Yard, yardmaster};

fn job_file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

const DIAMOND: &str = "
    [[task]]\nname = \"a\"\ncommand = \"SELECT 1\"
    [[task]]\nname = \"b\"\ncommand = \"SELECT 1\"\ndepends_on = [\"a\"]
    [[task]]\nname = \"c\"\ncommand = \"VACUUM\"\ndepends_on = [\"a\"]
    [[task]]\nname = \"d\"\ncommand = \"SELECT 1\"\ndepends_on = [\"b\", \"c\"]\n";

#[tokio::test]
async fn a_plan_shows_the_graph_and_stores_nothing() {
    let yard = Yard::new().await;
    let file = job_file(DIAMOND);
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("graph.svg");
    let (path, picture_path) = (file.path().to_str().unwrap(), picture.to_str().unwrap());
    let told = yard.run(&["job", "plan", path, "--svg", picture_path, "-o", "json"]).exits(0).json();
    assert_eq!(told["layers"], serde_json::json!([["a"], ["b", "c"], ["d"]]));
    assert_eq!((&told["estimate"]["rounds"], &told["estimate"]["longest_path"]), (&3.into(), &3.into()));
    assert_eq!(told["findings"][0]["check"], "exactly once");
    let picture = std::fs::read_to_string(picture).unwrap();
    assert_eq!((picture.matches("<rect").count(), picture.matches("<path").count()), (4, 4));
    assert_eq!(yard.run(&["job", "list", "-o", "json"]).json(), serde_json::json!([]));
}

#[test]
fn a_plan_without_a_database_finds_what_would_never_work() {
    let file = job_file("[[task]]\nname = \"a\"\ncommand = \"VACUUM\"\ntransactional = true\n");
    let path = file.path().to_str().unwrap();
    let told = Told::of(yardmaster(&["job", "plan", path, "--offline"]).output().unwrap()).exits(2);
    assert!((told.out.clone() + &told.err).contains("transaction"), "{told:?}");
}

#[tokio::test]
async fn logs_are_followed_to_the_end_of_the_job() {
    let yard = Yard::new().await;
    yard.sql("INSERT INTO yardmaster.job_spec (owner) VALUES ('alice'); INSERT INTO yardmaster.task_spec (job_id, name, owner, command) VALUES (1, 'one', 'alice', 'SELECT 1'), (1, 'two', 'alice', 'SELECT 1')").await;
    yard.admit().await;
    let follower = yard.command(&["job", "logs", "1", "--follow"]).spawn().unwrap();
    for task in [1, 2] {
        yard.claim(task).await;
        yard.settle(task, true).await;
    }
    let told = Told::of(follower.wait_with_output().unwrap()).exits(0);
    for head in ["── task 1 one, attempt 1, done", "── task 2 two, attempt 1, done"] {
        assert_eq!(told.out.matches(head).count(), 1, "{told:?}");
    }
}

#[tokio::test]
async fn the_doctor_names_what_is_missing_with_its_remedy() {
    let yard = Yard::bare().await;
    let told = yard.run(&["doctor", "-o", "json"]).exits(1).json();
    let findings = told["findings"].as_array().unwrap();
    let remedy = |words: &str| {
        let found = findings.iter().find(|finding| finding["message"].as_str().unwrap().contains(words));
        found.unwrap_or_else(|| panic!("{words} is not in {told}"))["remedy"].as_str().unwrap().to_owned()
    };
    assert!(remedy("no schema yardmaster").contains("yardmaster migrate"));
    assert!(remedy("pg_signal_backend").contains("GRANT pg_signal_backend TO alice"));
}

#[test]
fn every_verb_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    Told::of(yardmaster(&["man", folder.path().to_str().unwrap()]).output().unwrap()).exits(0);
    for page in ["yardmaster.1", "yardmaster-job-plan.1", "yardmaster-doctor.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains("Examples:"), "{page}");
    }
}
