//! Rows that no honest client writes: one bad row fails, the rest run.

use crate::ledger;
use crate::support::{Db, Service, until};

/// Submits with the leader away, spoils the rows by hand, and starts the leader: the good task must run.
async fn spoil(spoil: &str) -> (Db, i64, i64, Service) {
    let db = Db::new().await;
    ledger::make(&db).await;
    let mut service = Service::start(&db).await;
    let (_, admitted) = db.submit_one("SELECT 1/0").await;
    let waiting = async || db.task(admitted).await.retry_count == 1;
    until("it waits for its retry", waiting).await;
    assert_eq!(service.stop().await, 0);
    let (_, fresh) = db.submit_one("SELECT 1").await;
    db.sql(&spoil.replace("$admitted", &admitted.to_string()).replace("$fresh", &fresh.to_string())).await;
    service.restart().await;
    let (_, good) = db.submit_one(&ledger::write(1, 0.0)).await;
    db.await_task(good, "done").await;
    ledger::is_exactly(&db, 1).await;
    (db, admitted, fresh, service)
}

const NOW: &str = "UPDATE yardmaster.task_state SET not_before = now() WHERE task_id = $admitted;";

/// Scenario 36.
#[tokio::test]
async fn an_attempt_number_that_cannot_grow_stops_nobody_else() {
    let (db, bad, _, _service) = spoil(&format!(
        "{NOW} UPDATE yardmaster.task_state SET attempt = 2147483647 WHERE task_id = $admitted"
    ))
    .await;
    until("it was tried again", async || db.task(bad).await.retry_count == 2).await;
}

/// Scenario 36.
#[tokio::test]
async fn counters_that_cannot_grow_stop_nobody_else() {
    let counters = "UPDATE yardmaster.task_state SET retry_count = 2147483647, interruptions = 2147483647 WHERE task_id = $admitted";
    let (db, bad, _, _service) = spoil(&format!("{NOW} {counters}")).await;
    db.await_task(bad, "error").await;
}

/// Scenario 36: the history holds a row for an attempt that is yet to come.
#[tokio::test]
async fn a_history_that_is_ahead_of_its_task_stops_nobody_else() {
    let log = "INSERT INTO yardmaster.attempt_log (task_id, attempt, node, outcome, message, ended_at)
               SELECT $admitted, n, '', 'failed', 'forged', now() FROM generate_series(2, 5) n";
    spoil(&format!("{NOW} {log}")).await;
}

/// Scenario 36.
#[tokio::test]
async fn policies_times_and_nodes_that_make_no_sense_stop_nobody_else() {
    let (db, _, fresh, _service) = spoil(
        "UPDATE yardmaster.task_spec SET retry = '[1]', timeout = interval '1000 days', priority = 7, nodes_involved = '{}'
          WHERE task_id = $fresh;
         UPDATE yardmaster.job_spec SET retry = '\"text\"' WHERE job_id = (SELECT job_id FROM yardmaster.task_spec WHERE task_id = $fresh);
         UPDATE yardmaster.task_state SET not_before = 'infinity', series = -5, lane = lane WHERE task_id = $admitted",
    )
    .await;
    db.await_task(fresh, "done").await;
}

/// Scenario 36: the one lie that would spoil every turn is refused where it is told; a smaller one stops nobody else.
#[tokio::test]
async fn a_job_whose_counters_lie_stops_nobody_else() {
    let lie = "WHERE job_id = (SELECT job_id FROM yardmaster.task_spec WHERE task_id = $admitted)";
    let (db, _, _, _service) =
        spoil(&format!("{NOW} UPDATE yardmaster.job_state SET n_tasks = 0, n_done = 5, n_bad = 7 {lie}"))
            .await;
    let refused = db
        .admin
        .batch_execute("UPDATE yardmaster.job_state SET n_done = 9223372036854775807")
        .await
        .unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "23514", "{refused}");
}

/// Scenario 36: rows whose other half is missing.
#[tokio::test]
async fn halves_of_rows_stop_nobody_else() {
    spoil(
        "DELETE FROM yardmaster.job_state WHERE job_id = (SELECT job_id FROM yardmaster.task_spec WHERE task_id = $admitted);
         UPDATE yardmaster.task_state SET not_before = now() WHERE task_id = $admitted;
         INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, ready) VALUES (999999999, 999999999, 999, 0, 'runnable', true);
         INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, ready) VALUES (999999998, 999999999, 999, 0, 'running', false)",
    )
    .await;
}

/// Scenario 36: running, but nobody knows where.
#[tokio::test]
async fn an_attempt_without_a_backend_is_revoked_and_run_again() {
    let (db, bad, _, _service) = spoil("UPDATE yardmaster.task_state SET status = 'running', ready = false, not_before = NULL, attempt = 0 WHERE task_id = $admitted").await;
    until("it ran again", async || db.task(bad).await.attempt >= 1).await;
}
