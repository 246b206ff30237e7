//! From Wake to start to settlement.

use std::time::Duration;

use yardmaster::actors::runner::OpenFailure;
use yardmaster::messages::Reload;
use yardmaster::model::TaskStatus;

use crate::support::catalog::Fault;
use crate::support::{House, lanes, settings};

#[actix::test]
async fn a_task_that_ends_starts_its_dependant() {
    let mut house = House::open(&settings(4, 4), lanes(&["alice", "bob"]));
    let first = house.submit(0, "SELECT 1", &[]);
    let second = house.submit(1, "SELECT 2", &[first]);
    let run = house.run().await;
    assert_eq!((run.task, run.attempt, run.owner.as_str()), (first, 1, "alice"));
    run.commit();
    let run = house.run().await;
    assert_eq!((run.task, run.owner.as_str()), (second, "bob"));
    run.commit();
    house.until_status(second, TaskStatus::Done).await;
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn a_chain_of_one_owner_runs_in_one_session() {
    let mut house = House::open(&settings(4, 4), lanes(&["alice"]));
    let first = house.submit(0, "SELECT 1", &[]);
    let second = house.submit(0, "SELECT 2", &[first]);
    let run = house.run().await;
    let backend = run.backend;
    run.commit();
    let run = house.run().await;
    assert_eq!((run.task, run.backend), (second, backend));
}

#[actix::test]
async fn no_limit_is_ever_exceeded() {
    let mut house = House::open(&settings(3, 2), lanes(&["alice", "bob"]));
    for i in 0..40 {
        house.submit(i % 2, "SELECT 1", &[]);
    }
    for _ in 0..40 {
        let run = house.run().await;
        assert!(house.slots_used().await <= 3);
        run.commit();
    }
    house.until("all done", |c| c.tasks.values().all(|t| t.status == TaskStatus::Done)).await;
    assert_eq!(house.catalog.lock().unwrap().max_live, 3, "the limits were used to the full");
}

#[actix::test]
async fn a_refused_slot_holds_up_nobody_else() {
    let mut house = House::open(&settings(4, 1), lanes(&["alice", "bob"]));
    (0..50).for_each(|_| {
        house.submit(0, "SELECT 1", &[]);
    });
    let other = house.submit(1, "SELECT 2", &[]);
    let (first, second) = (house.run().await, house.run().await);
    assert!([first.task, second.task].contains(&other));
}

#[actix::test]
async fn lost_claims_return_their_seats() {
    let mut house = House::open(&settings(1, 1), lanes(&["alice"]));
    let held = house.submit(0, "SELECT 1", &[]);
    let next = house.submit(0, "SELECT 2", &[]);
    let run = house.run().await;
    assert_eq!(run.task, held);
    // The turn that settles the first also claims the second, or would.
    house.fault(Fault::ClaimsLost);
    run.commit();
    let run = house.run().await;
    assert_eq!(run.task, next, "the seat of the lost claim was used again");
    assert_eq!(house.slots_used().await, 1);
    run.commit();
    house.until_status(next, TaskStatus::Done).await;
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn a_refused_turn_is_taken_again() {
    let mut house = House::open(&settings(1, 1), lanes(&["alice"]));
    let task = house.submit(0, "SELECT 1", &[]);
    let run = house.run().await;
    house.fault(Fault::Refused);
    house.fault(Fault::Refused);
    run.commit();
    house.until_status(task, TaskStatus::Done).await;
    assert_eq!(house.catalog.lock().unwrap().settled.len(), 1);
}

#[actix::test]
async fn reload_raises_and_lowers_limits_live() {
    let mut house = House::open(&settings(1, 1), lanes(&["alice"]));
    (0..6).for_each(|_| {
        house.submit(0, "SELECT 1", &[]);
    });
    let first = house.run().await;
    house.nothing_starts_for(Duration::from_secs(5)).await;
    house.monitor.do_send(Reload(Box::new(settings(3, 3))));
    let (second, third) = (house.run().await, house.run().await);
    assert_eq!(house.slots_used().await, 3);
    house.monitor.do_send(Reload(Box::new(settings(1, 1))));
    first.commit();
    second.commit();
    house.nothing_starts_for(Duration::from_secs(5)).await;
    assert_eq!(third.cancels(), 0, "lowering disturbs nobody");
    third.commit();
    let _fourth = house.run().await;
    house.nothing_starts_for(Duration::from_secs(5)).await;
    assert_eq!(house.catalog.lock().unwrap().published, 2);
}

#[actix::test]
async fn a_bad_login_fails_only_that_owners_tasks() {
    let mut house = House::open(&settings(4, 4), lanes(&["mallory", "bob"]));
    let refused = OpenFailure::Refused { sqlstate: "42501".into(), message: "ERROR: no".into() };
    house.failures.lock().unwrap().insert("mallory".into(), refused);
    let (bad, good) = (house.submit(0, "SELECT 1", &[]), house.submit(1, "SELECT 2", &[]));
    let run = house.run().await;
    assert_eq!(run.task, good);
    run.commit();
    house.until_status(bad, TaskStatus::Error).await;
    house.until_status(good, TaskStatus::Done).await;
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn a_node_that_cannot_be_reached_is_tried_until_it_can() {
    let mut house = House::open(&settings(4, 4), lanes(&["alice"]));
    house
        .failures
        .lock()
        .unwrap()
        .insert("alice".into(), OpenFailure::Later { message: "down".into(), suspect: true });
    let task = house.submit(0, "SELECT 1", &[]);
    house.nothing_starts_for(Duration::from_secs(60)).await;
    let attempts = house.opened.lock().unwrap().len();
    assert!((10..=200).contains(&attempts), "{attempts} attempts in a minute");
    house.failures.lock().unwrap().clear();
    house.run().await.commit();
    house.until_status(task, TaskStatus::Done).await;
    let catalog = house.catalog.lock().unwrap();
    assert_eq!(catalog.tasks[&task].attempt, 1, "no attempt was spent");
    assert_eq!(catalog.suspected.len(), attempts, "each failure is told to who probes the node");
}

#[actix::test]
async fn a_failed_task_runs_again_when_its_time_has_come() {
    let mut house = House::open(&settings(1, 1), lanes(&["alice"]));
    let task = house.submit(0, "SELECT 1/0", &[]);
    house.run().await.fail("22012");
    house.nothing_starts_for(Duration::from_millis(4900)).await;
    let before = tokio::time::Instant::now();
    let run = house.run().await;
    assert_eq!((run.task, run.attempt), (task, 2));
    assert!(before.elapsed() < Duration::from_millis(300), "{:?} late", before.elapsed());
}
