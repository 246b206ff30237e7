//! Terminate and CancelAll, alone and in pairs.

use std::time::Duration;

use tokio::time::Instant;
use yardmaster::messages::{CancelAll, Reload, Resolved, Terminate};
use yardmaster::model::yard::Mode;
use yardmaster::model::{Outcome, TaskStatus};

use crate::support::catalog::Fault;
use crate::support::sessions::Run;
use crate::support::{House, lanes, settings};

async fn busy() -> (House, i64, Run) {
    occupy(House::open(&settings(4, 4), lanes(&["alice"]))).await
}

async fn occupy(mut house: House) -> (House, i64, Run) {
    let task = house.submit(0, "SELECT pg_sleep(600)", &[]);
    let run = house.run().await;
    (house, task, run)
}

#[actix::test]
async fn terminate_starts_nothing_new_and_lets_running_tasks_end() {
    let (mut house, task, run) = busy().await;
    house.monitor.do_send(Terminate);
    let waiting = house.submit(0, "SELECT 1", &[]);
    house.nothing_starts_for(Duration::from_secs(5)).await;
    run.commit();
    assert!(house.until_stopped().await);
    let catalog = house.catalog.lock().unwrap();
    assert_eq!(catalog.tasks[&task].status, TaskStatus::Done, "settled before Stop");
    assert_eq!(catalog.tasks[&waiting].attempt, 0);
}

#[actix::test]
async fn terminate_waits_for_the_grace_and_then_interrupts() {
    let (house, task, run) = busy().await;
    let told = Instant::now();
    house.monitor.do_send(Terminate);
    house.until_cancelled(&run).await;
    assert!(told.elapsed() >= settings(1, 1).shutdown.grace);
    run.fail("57014");
    assert!(house.until_stopped().await);
    let catalog = house.catalog.lock().unwrap();
    assert_eq!(catalog.tasks[&task].status, TaskStatus::Runnable, "an interruption is no failure");
    assert!(matches!(catalog.settled[0].outcome, Outcome::Interrupted { .. }));
}

#[actix::test]
async fn a_second_terminate_skips_the_grace() {
    let (house, _, run) = busy().await;
    let told = Instant::now();
    house.monitor.do_send(Terminate);
    house.monitor.do_send(Terminate);
    house.until_cancelled(&run).await;
    assert!(told.elapsed() < Duration::from_secs(1));
    run.fail("57014");
    assert!(house.until_stopped().await);
}

#[actix::test]
async fn an_interrupted_backend_that_does_not_end_is_ended() {
    let (house, _, run) = busy().await;
    house.monitor.do_send(Terminate);
    house.monitor.do_send(Terminate);
    let backend = run.backend;
    house.until("EndBackend", |c| c.ended.contains(&backend)).await;
    house.verdict.send_replace(Some(Resolved::Revoked { server_started: None }));
    run.lose();
    assert!(house.until_stopped().await);
}

#[actix::test]
async fn cancel_all_cancels_the_jobs_that_run_here_and_stops() {
    let (mut house, task, run) = busy().await;
    let elsewhere = house.submit_with(0, "SELECT 1", &[task], |_| {});
    house.monitor.do_send(CancelAll);
    house.until_cancelled(&run).await;
    run.fail("57014");
    assert!(house.until_stopped().await);
    house.nothing_starts_for(Duration::from_secs(5)).await;
    let catalog = house.catalog.lock().unwrap();
    assert_eq!(catalog.tasks[&task].status, TaskStatus::Cancelled);
    assert!(!catalog.tasks[&elsewhere].status.is_terminal(), "another job is left alone");
}

#[actix::test]
async fn cancel_all_without_work_stops_at_once() {
    let house = House::open(&settings(1, 1), lanes(&["alice"]));
    let told = Instant::now();
    house.monitor.do_send(CancelAll);
    assert!(house.until_stopped().await);
    assert!(told.elapsed() < Duration::from_secs(1));
}

#[actix::test]
async fn cancel_all_names_what_it_could_not_cancel() {
    let (house, _, run) = busy().await;
    house.monitor.do_send(CancelAll);
    house.until_cancelled(&run).await;
    run.lose();
    // Nobody can say what became of it.
    assert!(!house.until_stopped().await, "not everything was cancelled");
}

#[actix::test]
async fn terminate_after_cancel_all_has_a_grace_of_its_own() {
    let (house, _, run) = busy().await;
    house.monitor.do_send(CancelAll);
    house.until_cancelled(&run).await;
    tokio::time::sleep(settings(1, 1).shutdown.grace - Duration::from_secs(1)).await;
    let told = Instant::now();
    house.monitor.do_send(Terminate);
    run.lose();
    house.until_stopped().await;
    assert!(told.elapsed() >= settings(1, 1).shutdown.grace, "{:?}", told.elapsed());
}

#[actix::test]
async fn every_pair_of_signals_leaves_once() {
    tokio::time::pause();
    for first in 0..3 {
        for second in 0..3 {
            let (house, _, run) = occupy(House::another(&settings(4, 4), lanes(&["alice"]))).await;
            for signal in [first, second] {
                match signal {
                    0 => house.monitor.do_send(Terminate),
                    1 => house.monitor.do_send(CancelAll),
                    _ => house.monitor.do_send(Reload(Box::new(settings(2, 2)))),
                }
            }
            if (first, second) == (2, 2) {
                assert_eq!(house.snapshot().await.mode, Mode::Accepting);
                house.monitor.do_send(Terminate);
            }
            house.until_cancelled(&run).await;
            run.fail("57014");
            house.until_stopped().await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(house.stopped.borrow().len(), 1, "signals {first} and {second}");
        }
    }
}

#[actix::test]
async fn what_is_in_doubt_when_the_service_leaves_is_left_for_the_next_start() {
    let (house, task, run) = busy().await;
    run.lose();
    house.until("a question for the outcome", |c| c.resolves.len() == 1).await;
    house.monitor.do_send(Terminate);
    assert!(house.until_stopped().await);
    assert_eq!(house.catalog.lock().unwrap().tasks[&task].status, TaskStatus::Running);
}

#[actix::test]
async fn an_executor_that_crashes_while_the_service_leaves_does_not_keep_it() {
    let (house, task, run) = busy().await;
    house.monitor.do_send(Terminate);
    house.monitor.do_send(Terminate);
    house.until_cancelled(&run).await;
    run.panic();
    // Nobody can say what became of it.
    house.until_stopped().await;
    assert_eq!(house.catalog.lock().unwrap().tasks[&task].status, TaskStatus::Running);
}

#[actix::test]
async fn an_attempt_that_is_being_adopted_when_the_service_leaves_does_not_keep_it() {
    let (mut house, _, _run) = busy().await;
    house.lose_office();
    house.take_office(false);
    // Heard before the adopted attempt has its slots and its Executor.
    house.monitor.do_send(Terminate);
    house.monitor.do_send(Terminate);
    house.until_stopped().await;
}

#[actix::test]
async fn terminate_while_home_is_away_leaves_the_running_their_grace() {
    let (mut house, task, run) = busy().await;
    house.fault(Fault::Doubt { happened: false });
    house.submit(0, "SELECT 1", &[]);
    house.nothing_starts_for(Duration::from_secs(2)).await;
    house.monitor.do_send(Terminate);
    house.nothing_starts_for(Duration::from_secs(5)).await;
    assert!(house.stopped.borrow().is_empty(), "its grace is not over");
    run.commit();
    house.take_office(true);
    assert!(house.until_stopped().await);
    assert_eq!(house.catalog.lock().unwrap().tasks[&task].status, TaskStatus::Done);
}
