//! One attempt: how commands run, and every way in which they end.

use std::time::Duration;

use yardmaster::messages::Resolved;
use yardmaster::model::{Outcome, TaskStatus};

use crate::support::sessions::Run;
use crate::support::{House, lanes, settings};

fn house() -> House {
    House::open(&settings(4, 4), lanes(&["alice"]))
}

const REVOKED: Resolved = Resolved::Revoked { server_started: None };

/// The outcome of the only settlement.
async fn outcome(house: &House) -> Outcome {
    house.until("a settlement", |c| !c.settled.is_empty()).await;
    house.catalog.lock().unwrap().settled[0].outcome.clone()
}

async fn refused(command: &str, sqlstate: &str) {
    let mut house = house();
    let task = house.submit(0, command, &[]);
    house.until_status(task, TaskStatus::Error).await;
    house.nothing_starts_for(Duration::from_secs(1)).await;
    match outcome(&house).await {
        Outcome::Failed { sqlstate: said, message, .. } => assert_eq!(said, sqlstate, "{message}"),
        other => panic!("{command} ended {other:?}"),
    }
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn transaction_control_is_refused_before_anything_runs() {
    refused("INSERT INTO t VALUES (1); COMMIT", "0A000").await;
}

#[actix::test]
async fn client_copy_is_refused_before_anything_runs() {
    refused("COPY t FROM STDIN", "0A000").await;
}

#[actix::test]
async fn what_cannot_share_a_block_is_refused_beside_others() {
    refused("SELECT 1; VACUUM", "0A000").await;
}

#[actix::test]
async fn comments_alone_succeed_without_running() {
    let mut house = house();
    let task = house.submit(0, "-- nothing\n/* at all */", &[]);
    house.until_status(task, TaskStatus::Done).await;
    house.nothing_starts_for(Duration::from_secs(1)).await;
}

#[actix::test]
async fn a_vacuum_runs_outside_a_transaction() {
    let mut house = house();
    house.submit(0, "VACUUM t", &[]);
    assert!(!house.run().await.transactional);
}

#[actix::test]
async fn transactional_forces_either_way() {
    let mut house = house();
    house.submit_with(0, "VACUUM t", &[], |t| t.transactional = Some(true));
    assert!(house.run().await.transactional);
    house.submit_with(0, "SELECT 1", &[], |t| t.transactional = Some(false));
    assert!(!house.run().await.transactional);
}

#[actix::test]
async fn a_call_that_commits_runs_again_outside_in_the_same_attempt() {
    let mut house = house();
    let task = house.submit(0, "CALL p()", &[]);
    let run = house.run().await;
    assert!(run.transactional);
    run.fail("2D000");
    let run = house.run().await;
    assert_eq!((run.transactional, run.attempt), (false, 1));
    run.commit();
    house.until_status(task, TaskStatus::Done).await;
}

#[actix::test]
async fn a_select_that_fails_with_2d000_is_not_run_outside() {
    let mut house = house();
    house.submit(0, "SELECT f()", &[]);
    house.run().await.fail("2D000");
    assert!(matches!(outcome(&house).await, Outcome::Failed { .. }));
}

#[actix::test]
async fn a_call_that_is_cancelled_inside_is_not_run_outside_to_its_end() {
    let mut house = house();
    let task = house.submit(0, "CALL p()", &[]);
    let run = house.run().await;
    house.cancel_job(task);
    house.until_cancelled(&run).await;
    run.fail("2D000");
    house.until_status(task, TaskStatus::Cancelled).await;
    house.nothing_starts_for(Duration::from_secs(1)).await;
}

#[actix::test]
async fn a_crashed_executor_gives_its_slots_back() {
    let mut house = house();
    let task = house.submit(0, "SELECT 1", &[]);
    house.run().await.panic();
    house.until("a question for the outcome", |c| c.resolves.len() == 1).await;
    assert_eq!(house.slots_used().await, 1, "its backend may still run");
    house.verdict.send_replace(Some(REVOKED));
    let run = house.run().await;
    assert_eq!((run.task, run.attempt), (task, 2));
    assert_eq!(house.slots_used().await, 1);
    run.commit();
    house.until_status(task, TaskStatus::Done).await;
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn an_attempt_in_doubt_keeps_its_slots_until_resolved() {
    let mut house = house();
    let task = house.submit(0, "INSERT INTO t VALUES (1)", &[]);
    house.run().await.lose();
    house.until("a question for the outcome", |c| c.resolves.len() == 1).await;
    house.nothing_starts_for(Duration::from_secs(30)).await;
    assert_eq!(house.slots_used().await, 1);
    house.verdict.send_replace(Some(Resolved::Committed));
    house.until_status(task, TaskStatus::Done).await;
    assert_eq!(house.slots_used().await, 0);
}

async fn cancelled(house: &mut House) -> (i64, Run) {
    let task = house.submit(0, "SELECT pg_sleep(600)", &[]);
    let run = house.run().await;
    house.cancel_job(task);
    house.until_cancelled(&run).await;
    (task, run)
}

#[actix::test]
async fn cancel_asks_the_backend_and_a_done_command_stays_done() {
    let mut house = house();
    let (task, run) = cancelled(&mut house).await;
    run.commit();
    house.until_status(task, TaskStatus::Done).await;
}

#[actix::test]
async fn a_session_that_was_cancelled_is_never_lent_again() {
    let mut house = house();
    let (task, run) = cancelled(&mut house).await;
    let backend = run.backend;
    run.fail("57014");
    house.until_status(task, TaskStatus::Cancelled).await;
    house.submit(0, "SELECT 1", &[]);
    assert_ne!(house.run().await.backend, backend);
}

#[actix::test]
async fn cancel_ends_the_backend_when_its_grace_is_over() {
    let mut house = house();
    let (task, run) = cancelled(&mut house).await;
    let asked = tokio::time::Instant::now();
    let backend = run.backend;
    house.until("EndBackend", |c| c.ended == [backend]).await;
    let grace = settings(1, 1).cancel.grace;
    assert!(
        (grace - Duration::from_millis(100)..grace * 2).contains(&asked.elapsed()),
        "{:?}",
        asked.elapsed()
    );
    house.verdict.send_replace(Some(REVOKED));
    run.lose();
    house.until_status(task, TaskStatus::Cancelled).await;
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn a_timeout_cancels_then_ends_the_backend_and_is_a_failure() {
    let mut house = house();
    house.submit_with(0, "SELECT pg_sleep(600)", &[], |t| t.timeout = Some(Duration::from_secs(7)));
    let run = house.run().await;
    let started = tokio::time::Instant::now();
    house.until_cancelled(&run).await;
    assert!(started.elapsed() >= Duration::from_secs(7));
    house.until("EndBackend", |c| !c.ended.is_empty()).await;
    house.verdict.send_replace(Some(REVOKED));
    run.lose();
    match outcome(&house).await {
        Outcome::Failed { sqlstate, message, revoked } => {
            assert_eq!((sqlstate.as_str(), revoked), ("57014", true));
            assert!(message.contains("timeout of 7s"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[actix::test]
async fn a_lost_plain_command_is_waited_for() {
    let mut house = house();
    house.submit_with(0, "VACUUM t", &[], |t| t.timeout = Some(Duration::from_secs(900)));
    house.run().await.lose();
    house.until("a question for the outcome", |c| c.resolves.len() == 1).await;
    assert_eq!(house.catalog.lock().unwrap().resolves[0].1, Duration::from_secs(900));
}
