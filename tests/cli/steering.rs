//! Submitting, and requests.

use std::io::Write;

use crate::yard::{Told, Yard};

fn file(text: &str, suffix: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn files_are_submitted_all_or_none() {
    let yard = Yard::new().await;
    let good = file(
        "description = \"d\"\n[[task]]\nname = \"a\"\ncommand = \"SELECT 1\"\n[[task]]\nname = \"b\"\ncommand = \"SELECT 2\"\ndepends_on = [\"a\"]\n",
        ".toml",
    );
    let bad = file("[[task]]\nname = \"a\"\ncommand = \"SELECT 1\"\ndepends_on = [\"z\"]\n", ".toml");
    let broken = file("[[task\n", ".toml");
    let (good, bad, broken) =
        (good.path().to_str().unwrap(), bad.path().to_str().unwrap(), broken.path().to_str().unwrap());
    let told = yard.run(&["job", "submit", good, bad]).exits(2);
    assert!(told.err.contains("unknown task \"z\" in `depends_on` of task \"a\""), "{told:?}");
    let told = yard.run(&["job", "submit", good, broken, "/nonexistent.toml"]).exits(2);
    assert_eq!(told.err.matches("error: ").count(), 2, "{told:?}");
    assert_eq!(yard.run(&["job", "list", "-o", "json"]).json(), serde_json::json!([]));
    let told = yard.run(&["job", "submit", good]).exits(0);
    assert!(told.out.contains("submitted: 2 tasks from "), "{told:?}");
    let told = yard.run(&["job", "submit", good, good, "-o", "json"]).exits(0).json();
    assert_eq!(told.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_request_is_told_with_the_leaders_answer() {
    let yard = Yard::new().await;
    yard.sql("INSERT INTO yardmaster.job_spec (owner) VALUES ('alice'); INSERT INTO yardmaster.task_spec (job_id, owner, command) VALUES (1, 'alice', 'SELECT 1')").await;
    yard.admit().await;
    let child = yard.command(&["job", "cancel", "1"]).spawn().unwrap();
    yard.until("UPDATE yardmaster.request SET handled_at = now(), outcome = 'cancelled 1 task'").await;
    let told = Told::of(child.wait_with_output().unwrap()).exits(0);
    assert_eq!(told.out, "cancel job 1: cancelled 1 task\n");
    assert_eq!(told.err, "");
}

#[tokio::test]
async fn without_a_leader_there_is_one_warning() {
    let yard = Yard::new().await;
    yard.sql("INSERT INTO yardmaster.job_spec (owner) VALUES ('alice'); UPDATE yardmaster.leader_renewal SET renewed_at = now() - interval '1 minute'").await;
    for verb in ["cancel", "retry", "pause", "resume"] {
        let told = yard.run(&["job", verb, "1"]).exits(0);
        assert_eq!(
            told.err.matches("warning: no service is running (last was vm-1, silent for 1m 0").count(),
            1,
            "{told:?}"
        );
        assert!(told.out.contains("not carried out yet"), "{told:?}");
    }
    let told = yard.run(&["job", "wait", "1", "--timeout", "100ms"]).exits(4);
    assert!(told.err.contains("job 1 is still scheduled after 100ms"), "{told:?}");
    assert_eq!(told.err.matches("warning:").count(), 1);
    let kinds = yard
        .client
        .query_one("SELECT string_agg(kind::text, ' ' ORDER BY request_id) FROM yardmaster.request", &[])
        .await
        .unwrap();
    assert_eq!(kinds.get::<_, String>(0), "job_cancel job_retry job_pause job_resume");
}

#[tokio::test]
async fn tasks_are_retried_one_by_one_or_by_filter() {
    let yard = Yard::new().await;
    yard.sql(
        "INSERT INTO yardmaster.job_spec (owner) VALUES ('alice');
         INSERT INTO yardmaster.task_spec (job_id, owner, command) SELECT 1, 'alice', 'SELECT 1' FROM generate_series(1, 1000)",
    )
    .await;
    yard.admit().await;
    yard.sql("UPDATE yardmaster.task_state SET status = 'error', sqlstate = CASE WHEN task_id % 4 = 0 THEN '40001' ELSE '22012' END; UPDATE yardmaster.leader_renewal SET renewed_at = 'epoch'").await;
    let told = yard.run(&["task", "retry", "--job", "1", "--sqlstate", "40"]).exits(0);
    assert_eq!(told.out, "retry of 250 tasks of job 1 requested\n");
    let told = yard.run(&["task", "retry", "--job", "1"]).exits(0);
    assert_eq!(told.out, "retry of 1,000 tasks of job 1 requested\n");
    yard.run(&["task", "retry", "7", "--command", "SELECT 2"]).exits(0);
    let row = yard
        .client
        .query_one(
            "SELECT kind::text, task_id, argument FROM yardmaster.request ORDER BY request_id DESC LIMIT 1",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, i64>(1), row.get::<_, &str>(2)),
        ("task_retry", 7, "SELECT 2")
    );
    let told = yard.run(&["task", "retry", "7", "--command", "  "]).exits(2);
    assert!(told.err.contains("must not be empty"), "{told:?}");
}
