//! As its owner, and nothing more.

use serde_json::json;

use crate::support::{Db, Service};

/// Scenario 28.
#[tokio::test]
async fn a_task_has_the_rights_of_its_owner() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, task) = db.submit_one("CREATE ROLE intruder").await;
    let task = db.await_task(task, "error").await;
    assert_eq!(task.sqlstate.as_deref(), Some("42501"));
    assert!(task.text().contains("permission denied to create role"), "{task:?}");
    db.await_job(job, "failed").await;
}

/// Scenario 28: a session that logged in as the owner has nothing to go back to.
#[tokio::test]
async fn nothing_in_a_command_brings_another_identity() {
    let db = Db::new().await;
    db.alice("CREATE TABLE who (s name, c name)").await;
    let _service = Service::start(&db).await;
    let look = "INSERT INTO who SELECT session_user, current_user";
    let command = format!("{look}; RESET ROLE; {look}; RESET SESSION AUTHORIZATION; {look}");
    let (job, _) = db.submit_one(&command).await;
    db.await_job(job, "finished").await;
    let seen = db.value("SELECT count(*) || string_agg(DISTINCT s || '/' || c, ' ') FROM who").await;
    assert_eq!(seen, "3alice/alice");
    let (_, other) = db.submit_one("SET ROLE bob").await;
    assert_eq!(db.await_task(other, "error").await.sqlstate.as_deref(), Some("42501"));
}

/// SPEC 2: another role's job looks like an unknown id.
#[tokio::test]
async fn roles_do_not_see_or_steer_one_another() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, task) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
    let bob = db.connect("bob").await;
    for table in ["job", "task", "attempt"] {
        let seen: i64 =
            bob.query_one(&format!("SELECT count(*) FROM yardmaster.{table}"), &[]).await.unwrap().get(0);
        assert_eq!(seen, 0, "{table}");
    }
    for (call, what) in [
        (format!("job_cancel({job})"), format!("job {job}")),
        (format!("task_retry({task})"), format!("task {task}")),
    ] {
        let refused = bob.batch_execute(&format!("SELECT yardmaster.{call}")).await.unwrap_err();
        assert_eq!(refused.as_db_error().unwrap().message(), format!("{what} does not exist"));
    }
    let for_alice = json!({ "owner": "alice", "task": [{ "command": "SELECT 1" }] });
    let refused = bob.query_one("SELECT yardmaster.job_submit($1)", &[&for_alice]).await.unwrap_err();
    assert!(refused.to_string().contains("db error"), "{refused:?}");
}

/// SPEC 7: one bad role never stops the others.
#[tokio::test]
async fn a_role_that_cannot_log_in_fails_its_own_tasks_only() {
    let db = Db::new().await;
    db.sql(&format!("CREATE ROLE locked_{0} NOLOGIN; GRANT locked_{0} TO alice", db.name)).await;
    let _service = Service::start(&db).await;
    let job = json!({ "retry": { "max_retries": 0 },
                      "task": [{ "command": "SELECT 1", "owner": format!("locked_{}", db.name) }] });
    let locked = db.submit(job).await;
    let (fine, _) = db.submit_one("SELECT 1").await;
    db.await_job(fine, "finished").await;
    db.await_job(locked, "failed").await;
    let task = db.task(db.tasks(locked).await[0]).await;
    assert!(task.text().contains("is not permitted to log in"), "{task:?}");
}
