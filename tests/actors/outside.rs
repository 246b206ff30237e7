//! Commands outside a transaction: what comes before a second attempt, and after a first.

use std::time::Duration;

use yardmaster::model::{Outcome, TaskStatus};

use crate::support::{House, lanes, settings};

fn house() -> House {
    House::open(&settings(4, 4), lanes(&["alice"]))
}

fn submit(house: &House) -> i64 {
    house.submit_with(0, "VACUUM t", &[], |task| {
        task.verify = Some("SELECT is_done()".to_owned());
        task.undo = Some("DROP INDEX i".to_owned());
    })
}

#[actix::test]
async fn a_second_attempt_asks_whether_it_is_done_and_undoes_what_the_first_left() {
    let mut house = house();
    let task = submit(&house);
    let run = house.run().await;
    assert_eq!((run.command.as_str(), run.attempt), ("VACUUM t", 1));
    assert_eq!(house.catalog.lock().unwrap().flushes, 1, "the claim is flushed before");
    run.fail("40001");
    let run = house.run().await;
    assert!(run.command.contains("SELECT is_done()") && !run.transactional, "{}", run.command);
    run.say("SELECT 0");
    let run = house.run().await;
    assert_eq!(run.command, "DROP INDEX i");
    run.say("DROP INDEX");
    let run = house.run().await;
    assert_eq!((run.command.as_str(), run.attempt), ("VACUUM t", 2));
    run.say("VACUUM");
    house.until_status(task, TaskStatus::Done).await;
    let last = house.catalog.lock().unwrap().settled.last().unwrap().outcome.clone();
    assert_eq!(last, Outcome::Done { message: "VACUUM".into(), recorded: false }, "it must reach the disk");
}

#[actix::test]
async fn what_is_verified_is_not_run_again() {
    let mut house = house();
    let task = submit(&house);
    house.run().await.fail("40001");
    house.run().await.say("NOTICE: looking\nSELECT 1");
    house.until_status(task, TaskStatus::Done).await;
    house.nothing_starts_for(Duration::from_secs(1)).await;
}

#[actix::test]
async fn an_undo_that_fails_fails_the_attempt_and_says_so() {
    let mut house = house();
    let task = submit(&house);
    house.run().await.fail("40001");
    house.run().await.say("SELECT 0");
    house.run().await.fail("42501");
    house.until_status(task, TaskStatus::Error).await;
    let last = house.catalog.lock().unwrap().settled.last().unwrap().outcome.clone();
    assert!(matches!(last, Outcome::Failed { message, .. } if message.starts_with("undo: ERROR")));
}

#[actix::test]
async fn nothing_runs_before_the_claim_is_durable() {
    let mut house = house();
    house.catalog.lock().unwrap().unflushed = 1;
    let task = submit(&house);
    assert_eq!(house.run().await.attempt, 2, "nothing was sent before");
    let settled = house.catalog.lock().unwrap().settled[0].clone();
    assert_eq!(settled.task.0, task);
    assert!(matches!(settled.outcome, Outcome::Interrupted { revoked: false, .. }));
}

/// Scenario 40 of the failures.
#[actix::test]
async fn an_index_that_is_kept_though_it_is_invalid_is_no_success() {
    let mut house = house();
    let command = "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON s.t (v)";
    let task = house.submit(0, command, &[]);
    house.run().await.say("NOTICE: relation \"i\" already exists, skipping\nCREATE INDEX");
    let run = house.run().await;
    assert!(
        run.command.contains("NOT i.indisvalid") && run.command.contains("'\"s\".\"t\"'"),
        "{}",
        run.command
    );
    run.say("SELECT 1");
    house.until_status(task, TaskStatus::Error).await;
    let last = house.catalog.lock().unwrap().settled.last().unwrap().outcome.clone();
    assert!(
        matches!(&last, Outcome::Failed { message, .. } if message.contains("index \"s\".\"i\"")),
        "{last:?}"
    );
    let good = house.submit(0, command, &[]);
    house.run().await.say("CREATE INDEX");
    house.run().await.say("SELECT 0");
    house.until_status(good, TaskStatus::Done).await;
}
