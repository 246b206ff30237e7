//! Commands outside a transaction, cut short.

use serde_json::json;
use tokio_postgres::Client;

use crate::support::{Db, Launch, Service, until};

/// Starts to build an index and cancels the backend when the index is there and invalid.
async fn cut_short(db: &Db, task: serde_json::Value, index: &str) -> i64 {
    // A transaction that writes to the table keeps the build from its end.
    let blocker: Client = db.connect("postgres").await;
    blocker.batch_execute("BEGIN; LOCK TABLE big IN ROW EXCLUSIVE MODE").await.unwrap();
    let job = db.submit(json!({ "task": [task] })).await;
    let id = db.tasks(job).await[0];
    db.await_true(&format!(
        "SELECT count(*) = 1 FROM pg_index WHERE indexrelid = to_regclass('{index}') AND NOT indisvalid"
    ))
    .await;
    let cancelled = format!("SELECT pg_cancel_backend(pid) FROM yardmaster.task WHERE task_id = {id}");
    assert_eq!(db.value(&cancelled).await, "t");
    db.await_true(&format!("SELECT retry_count = 1 FROM yardmaster.task WHERE task_id = {id}")).await;
    blocker.batch_execute("COMMIT").await.unwrap();
    id
}

/// Scenario 40.
#[tokio::test]
async fn an_index_build_that_was_cut_short_is_not_plain_success() {
    let db = Db::new().await;
    db.alice("CREATE TABLE big AS SELECT v FROM generate_series(1, 100) v").await;
    let _service = Launch::on(&db).settings("[retry]\ndelays = [\"100ms\"]\n").start().await;
    let build = |index| format!("CREATE INDEX CONCURRENTLY IF NOT EXISTS {index} ON big (v)");
    let id = cut_short(&db, json!({ "command": build("plain") }), "plain").await;
    let failed = db.await_task(id, "error").await;
    assert_eq!(failed.sqlstate.as_deref(), Some("42P07"));
    assert!(failed.text().contains("index \"plain\" exists but is invalid"), "{}", failed.text());

    let undo = "DROP INDEX CONCURRENTLY IF EXISTS again";
    let id = cut_short(&db, json!({ "command": build("again"), "undo": undo }), "again").await;
    db.await_task(id, "done").await;
    assert_eq!(db.value("SELECT indisvalid FROM pg_index WHERE indexrelid = 'again'::regclass").await, "t");
}

/// SPEC 4: after a crash `verify` decides whether a command outside a transaction is done.
#[tokio::test]
async fn after_a_crash_verify_decides() {
    let db = Db::new().await;
    db.alice(
        "CREATE TABLE mark (v int);
         CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO mark VALUES (1); COMMIT; PERFORM pg_sleep(1.5); END $$",
    )
    .await;
    let mut service: Service = Launch::on(&db).start().await;
    let job = db
        .submit(json!({ "task": [
            { "command": "CALL work()", "transactional": false, "verify": "SELECT count(*) > 0 FROM mark; -- enough" },
            { "command": "CALL work()", "transactional": false },
        ]}))
        .await;
    until("the first runs, and has committed", async || db.value("SELECT count(*) FROM mark").await != "0")
        .await;
    service.kill9();
    service.restart().await;
    db.await_job(job, "finished").await;
    let [verified, plain] = db.tasks(job).await[..] else { panic!("two tasks") };
    assert_eq!(db.task(verified).await.text(), "verify: it was done already");
    assert_eq!(db.task(plain).await.text(), "CALL");
}
