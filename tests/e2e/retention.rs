//! Retention and deletion: what is over goes, in small batches, beside running work and other people's locks.

use serde_json::json;

use crate::gate::Gate;
use crate::support::{Db, Launch, Service, until};

const SHORT: &str = "[retention]\nfinished = \"0s\"\nfailed = \"1h\"\nrecords = \"1s\"";

/// Everything that is left of a job, by table.
async fn rest(db: &Db, job: i64, task: i64) -> String {
    db.value(&format!(
        "SELECT concat_ws(' ', (SELECT count(*) FROM yardmaster.job_spec WHERE job_id = {job}),
                (SELECT count(*) FROM yardmaster.job_state WHERE job_id = {job}),
                (SELECT count(*) FROM yardmaster.task_spec WHERE job_id = {job}),
                (SELECT count(*) FROM yardmaster.task_state WHERE job_id = {job}),
                (SELECT count(*) FROM yardmaster.task_depend WHERE job_id = {job}),
                (SELECT count(*) FROM yardmaster.request WHERE job_id = {job}),
                (SELECT count(*) FROM yardmaster.attempt_log WHERE task_id = {task}))"
    ))
    .await
}

#[tokio::test]
async fn what_is_over_goes_and_what_is_not_or_is_held_stays() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let service = Launch::on(&db)
        .settings("[retention]\nfinished = \"1h\"")
        .set("limits.max_task_executors", "8")
        .start();
    let service = service.await;
    let pair = json!({ "task": [
        { "name": "a", "command": "CREATE TABLE IF NOT EXISTS made (i int)" },
        { "command": "SELECT 1", "depends_on": ["a"] },
    ]});
    let old = db.submit(pair.clone()).await;
    let held = db.submit(pair).await;
    let (failed, _) = db.submit_one("SELECT * FROM nowhere").await;
    let (running, _) = db.submit_one(&gate.command()).await;
    for (job, state) in [(old, "finished"), (held, "finished"), (failed, "failed"), (running, "running")] {
        db.await_job(job, state).await;
    }
    let old_task = db.tasks(old).await[0];
    // A request that came to nothing is no reason to stay.
    db.alice(&format!("SELECT yardmaster.job_cancel({old})")).await;
    db.await_true("SELECT bool_and(handled_at IS NOT NULL) FROM yardmaster.request").await;
    let adds = db.connect("alice").await;
    let add =
        format!("BEGIN; INSERT INTO yardmaster.task (job_id, command) VALUES ({held}, '{}')", gate.command());
    adds.batch_execute(&add).await.unwrap();

    service.reload(SHORT).await;
    until("the old job is gone", async || rest(&db, old, old_task).await == "0 0 0 0 0 0 0").await;
    db.await_true("SELECT count(*) = 0 FROM yardmaster.record").await;
    let left = "SELECT string_agg(job_id || ' ' || state, ', ' ORDER BY job_id) FROM yardmaster.job";
    assert_eq!(db.value(left).await, format!("{held} finished, {failed} failed, {running} running"));
    assert_eq!(db.tasks(held).await.len(), 2, "nothing of a job that somebody adds to is removed");

    // It lives on, and goes when it has ended again.
    adds.batch_execute("COMMIT").await.unwrap();
    db.await_job(held, "running").await;
    gate.open().await;
    let left = "SELECT string_agg(job_id::text, ' ' ORDER BY job_id) FROM yardmaster.job";
    until("only the failed one stays", async || db.value(left).await == failed.to_string()).await;
}

/// A task that was committed to an old job, and is not admitted yet, keeps the job.
#[tokio::test]
async fn a_task_that_nobody_has_looked_at_yet_keeps_its_job() {
    let db = Db::new().await;
    let mut service = Launch::on(&db).settings(SHORT).set("retention.finished", "1h").start().await;
    let (job, _) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
    assert_eq!(service.stop().await, 0);
    // The next service may sweep before it has looked.
    db.alice(&format!(
        "INSERT INTO yardmaster.task (job_id, command) VALUES ({job}, 'CREATE TABLE late ()')"
    ))
    .await;
    let _service = Launch::on(&db).settings(SHORT).start().await;
    db.await_true("SELECT to_regclass('public.late') IS NOT NULL").await;
    db.await_true("SELECT count(*) = 0 FROM yardmaster.job_spec").await;
}

#[tokio::test]
async fn a_deleted_job_is_gone_at_once_and_its_key_is_free() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let job = db.submit(json!({ "key": "nightly", "task": [{ "command": "SELECT 1" }] })).await;
    db.await_job(job, "finished").await;
    let task = db.tasks(job).await[0];
    let refused = db.alice.batch_execute("SELECT yardmaster.job_delete(4711)").await.unwrap_err();
    assert_eq!(refused.as_db_error().unwrap().message(), "job 4711 does not exist");
    // The rows stay while somebody holds them; people see nothing of them any more.
    let holder = db.connect("postgres").await;
    let hold = format!("BEGIN; SELECT FROM yardmaster.job_spec WHERE job_id = {job} FOR KEY SHARE");
    holder.batch_execute(&hold).await.unwrap();
    let asked: i64 = db.alice.query_one("SELECT yardmaster.job_delete($1)", &[&job]).await.unwrap().get(0);
    let outcome = format!("SELECT outcome FROM yardmaster.request WHERE request_id = {asked}");
    until("it is answered", async || {
        db.alice.query_one(&outcome, &[]).await.unwrap().get::<_, Option<String>>(0).as_deref()
            == Some(&format!("job {job} is deleted"))
    })
    .await;
    for view in ["job", "task", "attempt", "task_depend"] {
        let seen = db.alice.query(&format!("SELECT FROM yardmaster.{view}"), &[]).await.unwrap();
        assert_eq!(seen.len(), 0, "{view}");
    }
    for call in [format!("job_cancel({job})"), format!("task_retry({task})"), format!("job_delete({job})")] {
        let refused = db.alice.batch_execute(&format!("SELECT yardmaster.{call}")).await.unwrap_err();
        assert!(refused.as_db_error().unwrap().message().ends_with("does not exist"), "{call}: {refused:?}");
    }
    let again = db.submit(json!({ "key": "nightly", "task": [{ "command": "SELECT 2" }] })).await;
    assert_ne!(again, job);
    db.await_job(again, "finished").await;
    assert_ne!(rest(&db, job, task).await, "0 0 0 0 0 0 0");
    holder.batch_execute("ROLLBACK").await.unwrap();
    until("the rest is gone", async || rest(&db, job, task).await == "0 0 0 0 0 0 0").await;
}

/// Fills the catalog with ended jobs of 100 tasks each, as retention finds them after a busy week.
async fn history(db: &Db, tasks: i64) {
    db.sql(&format!(
        "SET session_replication_role = replica;
         INSERT INTO yardmaster.job_spec (job_id, owner, owner_oid, submitted_by, submit_xid)
              SELECT i, 'alice', 'alice'::regrole, 'alice', '3' FROM generate_series(1000001, 1000000 + {tasks} / 100) i;
         INSERT INTO yardmaster.job_state (job_id, status, n_tasks, n_done, started_at, finished_at)
              SELECT job_id, 'finished', 100, 100, now() - interval '8 days', now() - interval '8 days' FROM yardmaster.job_spec;
         INSERT INTO yardmaster.task_spec (task_id, job_id, owner, owner_oid, submitted_by, command, submit_xid)
              SELECT 1000000 + i, 1000001 + (i - 1) / 100, 'alice', 'alice'::regrole, 'alice', 'SELECT 1', '3' FROM generate_series(1, {tasks}) i;
         INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, ready, attempt, finished_at)
              SELECT task_id, job_id, 1, 0, 'done', false, 1, now() - interval '8 days' FROM yardmaster.task_spec;
         INSERT INTO yardmaster.attempt_log (task_id, attempt, node, outcome, ended_at)
              SELECT task_id, 1, '', 'done', now() - interval '8 days' FROM yardmaster.task_spec;
         INSERT INTO yardmaster.record (task_id, task_key, series, kind, attempt, epoch, token, written_at)
              SELECT task_id, task_key, 1, 'committed', 1, 0, task_key, now() - interval '8 days' FROM yardmaster.task_spec;
         RESET session_replication_role; ANALYZE",
    ))
    .await;
}

/// Scenario 23 of the failures: removed beside work that goes on, whoever holds one of the rows.
async fn a_deep_history_goes_beside_running_work(tasks: i64) {
    let db = Db::new().await;
    history(&db, tasks).await;
    let holder = db.connect("postgres").await;
    holder
        .batch_execute("BEGIN; SELECT FROM yardmaster.job_spec WHERE job_id = 1000001 FOR KEY SHARE")
        .await
        .unwrap();
    let service = Launch::on(&db).set("limits.max_task_executors", "4").start().await;
    let open = "SELECT count(*) <= 100 FROM yardmaster.task_spec WHERE task_id > 1000000";
    let mut work = 0;
    loop {
        let (job, _) = db.submit_one("SELECT 1").await;
        db.await_job(job, "finished").await;
        work += 1;
        if db.value(open).await == "t" {
            break;
        }
    }
    assert!(work > 1);
    db.await_true("SELECT count(*) = 0 FROM yardmaster.record WHERE written_at < now() - interval '1 day'")
        .await;
    assert_eq!(
        rest(&db, 1_000_001, 1_000_001).await,
        "1 1 100 100 0 0 1",
        "what somebody holds is passed over"
    );
    assert_eq!(service.log().matches("WARN").count(), 0, "{}", service.log());
    holder.batch_execute("ROLLBACK").await.unwrap();
    until("the last of it is gone", async || rest(&db, 1_000_001, 1_000_001).await == "0 0 0 0 0 0 0").await;
}

#[tokio::test]
async fn a_hundred_thousand_finished_tasks_go_beside_running_work() {
    a_deep_history_goes_beside_running_work(100_000).await;
}

#[tokio::test]
#[ignore = "slow: make test-slow"]
async fn a_million_finished_tasks_go_beside_running_work() {
    a_deep_history_goes_beside_running_work(1_000_000).await;
}
