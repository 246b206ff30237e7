//! A large submission is admitted in chunks; nobody else waits for it.

use crate::gate::Gate;
use crate::support::{Db, Service};

/// Tasks of a submission of several chunks.
const MANY: u32 = 60_000;

/// Commits a job of many tasks that are not due, as a superuser does who restores a dump. The first depends on the last,
/// which names a node that nobody declared.
async fn submit_many(db: &Db) -> i64 {
    let job =
        db.value("INSERT INTO yardmaster.job DEFAULT VALUES RETURNING job_id").await.parse::<i64>().unwrap();
    db.sql(&format!(
        "BEGIN; SET LOCAL session_replication_role = replica;
         INSERT INTO yardmaster.task_spec (job_id, owner, owner_oid, submitted_by, command, not_before, node)
         SELECT {job}, 'alice', 'alice'::regrole, 'alice', 'SELECT 1', now() + interval '1 day', CASE WHEN i = {MANY} THEN 'nowhere' END
           FROM generate_series(1, {MANY}) i;
         INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on)
         SELECT {job}, min(task_id), max(task_id) FROM yardmaster.task_spec WHERE job_id = {job};
         COMMIT"
    ))
    .await;
    job
}

async fn admitted(db: &Db, job: i64) -> u32 {
    let count = format!("SELECT count(*) FROM yardmaster.task_state WHERE job_id = {job}");
    db.value(&count).await.parse().unwrap()
}

/// A cancel of another job is carried out between two chunks, and what a later chunk refuses takes along what an earlier
/// one admitted.
#[tokio::test]
async fn a_large_admission_holds_up_no_request_and_strands_no_task() {
    let db = Db::new().await;
    let gate = Gate::close(&db, 1).await;
    let _service = Service::start(&db).await;
    let (other, waiting) = db.submit_one(&gate.command()).await;
    gate.await_waiters(&db, 1).await;
    let many = submit_many(&db).await;
    db.await_true(&format!("SELECT count(*) > 0 FROM yardmaster.task_state WHERE job_id = {many}")).await;
    db.cancel(other).await;
    db.await_task(waiting, "cancelled").await;
    let so_far = admitted(&db, many).await;
    assert!(so_far < MANY, "the cancel waited for all {so_far} tasks");
    db.await_true(&format!("SELECT count(*) = {MANY} FROM yardmaster.task_state WHERE job_id = {many}"))
        .await;
    let statuses = format!(
        "SELECT string_agg(t.status::text, ' ' ORDER BY t.task_id) FROM yardmaster.task t JOIN yardmaster.task_depend e
             ON t.task_id IN (e.task_id, e.depends_on) WHERE e.job_id = {many}"
    );
    assert_eq!(db.value(&statuses).await, "unscheduled error");
    db.await_true(&format!("SELECT tasks = {MANY} AND tasks_failed = 2 AND state = 'failing' FROM yardmaster.job WHERE job_id = {many}")).await;
}
