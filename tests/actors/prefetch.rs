//! Short tasks, several to a session: they run one after another on its slots, and go back when that is not to be.

use std::time::Duration;

use tokio::time::sleep;
use yardmaster::actors::monitor::Monitor;
use yardmaster::messages::{CancelAll, LostOffice, Reload, Resolved, Terminate};
use yardmaster::model::{Outcome, TaskStatus};

use crate::support::sessions::Run;
use crate::support::{House, lanes, settings};

/// So many tasks tell the pace of a lane.
const BRISK: usize = 8;
/// Longer than what a line waits for the task in front.
const LONG: Duration = Duration::from_millis(100);

/// A house in which `places` tasks may run at once and the lane of alice is brisk, with `n` more of her tasks.
async fn brisk(places: u32, n: usize) -> (House, Vec<i64>) {
    let mut house = House::open(&settings(places, places), lanes(&["alice", "bob"]));
    for _ in 0..BRISK {
        house.submit(0, "SELECT 0", &[]);
    }
    for _ in 0..BRISK {
        house.run().await.commit();
    }
    house.until("quiet", |c| c.tasks.values().all(|t| t.status == TaskStatus::Done)).await;
    let tasks = (0..n).map(|_| house.submit(0, "SELECT 1", &[])).collect();
    (house, tasks)
}

fn prefetched(house: &House) -> usize {
    house.catalog.lock().unwrap().tasks.values().filter(|t| t.prefetched).count()
}

fn attempts(house: &House, task: i64) -> i32 {
    house.catalog.lock().unwrap().tasks[&task].attempt
}

async fn all_done(house: &House) {
    house.until("all done", |c| c.tasks.values().all(|t| t.status == TaskStatus::Done)).await;
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn short_tasks_stand_in_line_for_one_session_and_its_slot() {
    let (mut house, tasks) = brisk(1, 20).await;
    let mut turns = Vec::new();
    let mut backends = Vec::new();
    for task in tasks {
        let run = house.run().await;
        assert_eq!(run.task, task, "in order of dispatch");
        assert_eq!(house.slots_used().await, 1);
        backends.push(run.backend);
        turns.push(house.catalog.lock().unwrap().turns);
        run.commit();
    }
    all_done(&house).await;
    backends.dedup();
    turns.dedup();
    assert_eq!(backends.len(), 1);
    assert!(turns.len() <= 10, "fewer turns than tasks: {turns:?}");
    assert_eq!(house.catalog.lock().unwrap().max_live, 1, "what stands in line is not shown as running");
}

#[actix::test]
async fn a_line_behind_a_long_task_goes_back_without_a_trace() {
    let (mut house, tasks) = brisk(2, 40).await;
    let (front, other) = (house.run().await, house.run().await);
    assert!(prefetched(&house) > 2);
    let behind = tasks[2];
    assert_eq!(attempts(&house, behind), 1);
    // Both take long: everything behind them is runnable again, as if it had never been claimed.
    sleep(LONG).await;
    assert_eq!(prefetched(&house), 0);
    for task in &tasks[2..] {
        assert_eq!(attempts(&house, *task), 0);
    }
    let withdrawn = |o: &Outcome| *o == Outcome::Withdrawn;
    assert!(house.catalog.lock().unwrap().settled.iter().any(|s| withdrawn(&s.outcome)));
    // What is free takes them, in their order, while the long one goes on.
    other.commit();
    for task in &tasks[2..] {
        let run = house.run().await;
        assert_eq!((run.task, run.attempt), (*task, 1));
        run.commit();
    }
    front.commit();
    all_done(&house).await;
}

#[actix::test]
async fn a_task_of_a_line_that_takes_long_is_shown_as_running() {
    let (mut house, tasks) = brisk(1, 4).await;
    house.run().await.commit();
    let second = house.run().await;
    assert_eq!(second.task, tasks[1]);
    sleep(LONG).await;
    assert!(!house.catalog.lock().unwrap().tasks[&tasks[1]].prefetched);
    second.commit();
    house.run().await.commit();
    house.run().await.commit();
    all_done(&house).await;
}

#[actix::test]
async fn behind_a_lost_session_the_line_goes_back_at_once() {
    let (mut house, tasks) = brisk(1, 4).await;
    let front = house.run().await;
    let backend = front.backend;
    front.lose();
    // Nobody knows yet what became of the first; the others are free.
    house.until("the line is given back", |c| c.tasks[&tasks[1]].status == TaskStatus::Runnable).await;
    house.verdict.send_replace(Some(Resolved::Committed));
    for task in &tasks[1..] {
        let run = house.run().await;
        assert_eq!((run.task, run.attempt), (*task, 1));
        assert_ne!(run.backend, backend);
        run.commit();
    }
    all_done(&house).await;
}

#[actix::test]
async fn behind_a_crashed_executor_the_line_goes_back() {
    let (mut house, tasks) = brisk(1, 4).await;
    house.verdict.send_replace(Some(Resolved::Committed));
    house.run().await.panic();
    for task in &tasks[1..] {
        let run = house.run().await;
        assert_eq!((run.task, run.attempt), (*task, 1));
        run.commit();
    }
    all_done(&house).await;
}

#[actix::test]
async fn what_is_cancelled_in_line_never_starts() {
    let (mut house, tasks) = brisk(1, 4).await;
    let front = house.run().await;
    house.cancel_job(tasks[1]);
    house.until_status(tasks[1], TaskStatus::Cancelled).await;
    front.commit();
    let run = house.run().await;
    assert_eq!(run.task, tasks[2]);
    run.commit();
    house.run().await.commit();
    house.until("all end", |c| c.tasks.values().all(|t| t.status.is_terminal())).await;
}

#[actix::test]
async fn a_failure_in_front_keeps_the_session_and_its_line() {
    let (mut house, tasks) = brisk(1, 3).await;
    let front = house.run().await;
    let backend = front.backend;
    front.fail("42P01");
    let next = house.run().await;
    assert_eq!((next.task, next.backend), (tasks[1], backend));
    next.commit();
    house.run().await.commit();
    house.until_status(tasks[0], TaskStatus::Error).await;
}

async fn left(message: impl FnOnce(&actix::Addr<Monitor>)) -> (House, Vec<i64>, Run) {
    let (mut house, tasks) = brisk(1, 4).await;
    let front = house.run().await;
    message(&house.monitor);
    house.until("the line is given back", |c| c.tasks[&tasks[1]].status != TaskStatus::Running).await;
    assert_eq!(attempts(&house, tasks[1]), 0);
    (house, tasks, front)
}

#[actix::test]
async fn on_terminate_the_line_goes_back_and_the_one_in_front_ends() {
    let (mut house, tasks, front) = left(|monitor| monitor.do_send(Terminate)).await;
    front.commit();
    house.until_stopped().await;
    house.nothing_starts_for(LONG).await;
    assert_eq!(house.catalog.lock().unwrap().tasks[&tasks[0]].status, TaskStatus::Done);
    assert_eq!(house.catalog.lock().unwrap().tasks[&tasks[3]].status, TaskStatus::Runnable);
}

#[actix::test]
async fn on_cancel_all_the_line_goes_back_and_is_cancelled() {
    let (house, tasks, front) = left(|monitor| monitor.do_send(CancelAll)).await;
    house.until_cancelled(&front).await;
    front.fail("57014");
    assert!(house.until_stopped().await);
    assert_eq!(house.catalog.lock().unwrap().tasks[&tasks[3]].status, TaskStatus::Cancelled);
}

#[actix::test]
async fn without_office_nothing_in_line_starts() {
    let (mut house, tasks) = brisk(1, 4).await;
    let front = house.run().await;
    house.monitor.do_send(LostOffice);
    house.slots_used().await;
    front.commit();
    house.nothing_starts_for(LONG).await;
    // The next leader decides about all of them.
    house.verdict.send_replace(Some(Resolved::Revoked { server_started: None }));
    house.take_office(false);
    for _ in &tasks {
        house.run().await.commit();
    }
    all_done(&house).await;
}

#[actix::test]
async fn a_prefetch_of_one_claims_no_more_than_runs() {
    let (mut house, _) = brisk(1, 0).await;
    let mut one = settings(1, 1);
    one.sessions.prefetch = 1;
    house.monitor.do_send(Reload(Box::new(one)));
    for _ in 0..4 {
        house.submit(0, "SELECT 1", &[]);
    }
    for _ in 0..4 {
        let run = house.run().await;
        assert_eq!(prefetched(&house), 0);
        run.commit();
    }
    all_done(&house).await;
}
