//! Offices lost, resumed and taken over.

use std::time::Duration;

use yardmaster::messages::{Resolved, Wake};
use yardmaster::model::TaskStatus;

use crate::support::catalog::Fault;
use crate::support::{House, lanes, settings};

fn house() -> House {
    House::open(&settings(4, 4), lanes(&["alice"]))
}

#[actix::test]
async fn losing_office_abandons_attempts() {
    let mut house = house();
    house.submit(0, "SELECT 1", &[]);
    let run = house.run().await;
    house.lose_office();
    while !run.is_abandoned() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(house.snapshot().await.running.is_empty());
    house.nothing_starts_for(Duration::from_secs(10)).await;
    assert!(house.catalog.lock().unwrap().settled.is_empty(), "its outcome is another leader's");
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn resuming_office_settles_what_ended_meanwhile() {
    let mut house = house();
    let task = house.submit(0, "SELECT 1", &[]);
    let run = house.run().await;
    house.fault(Fault::Doubt { happened: false });
    run.commit();
    house.nothing_starts_for(Duration::from_secs(10)).await;
    assert_eq!(house.snapshot().await.unsettled, 1);
    house.take_office(true);
    house.until_status(task, TaskStatus::Done).await;
    assert_eq!(house.catalog.lock().unwrap().resolves.len(), 0, "nothing was in doubt");
}

#[actix::test]
async fn a_settlement_that_happened_in_doubt_happens_once() {
    let mut house = house();
    let task = house.submit(0, "SELECT 1", &[]);
    let run = house.run().await;
    house.fault(Fault::Doubt { happened: true });
    run.commit();
    house.until_status(task, TaskStatus::Done).await;
    house.take_office(true);
    let next = house.submit(0, "SELECT 2", &[]);
    house.run().await.commit();
    house.until_status(next, TaskStatus::Done).await;
    assert_eq!(house.catalog.lock().unwrap().settled.len(), 2);
}

#[actix::test]
async fn claims_that_happened_in_doubt_are_found_out() {
    let mut house = house();
    let first = house.submit(0, "SELECT 1", &[]);
    house.run().await.commit();
    house.until_status(first, TaskStatus::Done).await;
    house.fault(Fault::ClaimInDoubt);
    let task = house.submit(0, "SELECT 2", &[]);
    house.until_status(task, TaskStatus::Running).await;
    house.take_office(true);
    house.until("a question for the outcome", |c| c.resolves.len() == 1).await;
    house.verdict.send_replace(Some(Resolved::Revoked { server_started: None }));
    let run = house.run().await;
    assert_eq!((run.task, run.attempt), (task, 2));
    run.commit();
    house.until_status(task, TaskStatus::Done).await;
    assert_eq!(house.slots_used().await, 0);
}

#[actix::test]
async fn an_office_resumed_before_the_doubt_is_heard_goes_on() {
    let mut house = house();
    let task = house.submit(0, "SELECT 1", &[]);
    let run = house.run().await;
    house.fault(Fault::Doubt { happened: false });
    // Both are in the mailbox before the turn is answered.
    run.commit();
    house.monitor.do_send(Wake);
    house.take_office(true);
    house.until_status(task, TaskStatus::Done).await;
}

#[actix::test]
async fn a_new_leader_resolves_what_its_predecessor_ran() {
    let mut house = house();
    let task = house.submit(0, "SELECT 1", &[]);
    let _run = house.run().await;
    house.lose_office();
    house.take_office(false);
    house.until("a question for the outcome", |c| !c.resolves.is_empty()).await;
    assert_eq!(house.slots_used().await, 1, "the predecessor's backend counts");
    house.verdict.send_replace(Some(Resolved::Revoked { server_started: None }));
    let run = house.run().await;
    assert_eq!((run.task, run.attempt), (task, 2));
}
