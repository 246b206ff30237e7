//! Single claims about dispatch, each of which was once not so, or easily could be.

use std::collections::BTreeMap;

use yardmaster::model::yard::{Effect, Input, Mode};
use yardmaster::model::{Lane, LaneId, Limits, Outcome, SessionKey, TaskStatus};

use super::world::{Office, Stand, World};

fn lane(id: i32, owner: &str, nodes: &[&str]) -> Lane {
    let node = nodes.first().map_or(String::new(), |n| (*n).to_owned());
    Lane {
        id: LaneId(id),
        session: SessionKey { node, owner: owner.to_owned(), owner_oid: 1 },
        nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
    }
}

fn world(all: u32, each: u32, lanes: Vec<Lane>) -> World {
    let limits =
        Limits { max_task_executors: all, max_task_executors_per_node: each, per_node: BTreeMap::new() };
    let mut world = World::new(lanes, limits, 4);
    world.take_office();
    world
}

fn done() -> Outcome {
    Outcome::Done { message: String::new(), recorded: true }
}

/// SPEC 3: a task that cannot start holds up nobody, even with a crowd in front.
#[test]
fn a_crowd_before_a_full_node_holds_up_nobody() {
    let mut world = world(4, 1, vec![lane(1, "alice", &["a"]), lane(2, "bob", &["b"])]);
    (0..500).for_each(|_| {
        world.submit(0, 9, &[]);
    });
    let other = world.submit(1, 0, &[]);
    world.calm();
    assert!(matches!(world.stand(other), Stand::Live { .. }), "{:?}", world.stand(other));
}

/// The same, when both lanes share the owner's sessions, of which one waits.
#[test]
fn a_crowd_before_a_full_node_leaves_the_owners_session_to_others() {
    let mut alike = lane(2, "alice", &["a"]);
    alike.nodes = vec!["b".to_owned()];
    let mut world = world(4, 1, vec![lane(1, "alice", &["a"]), alike]);
    (0..50).for_each(|_| {
        world.submit(0, 9, &[]);
    });
    let other = world.submit(1, 0, &[]);
    world.calm();
    assert!(matches!(world.stand(other), Stand::Live { .. }));
}

/// The same, when the crowd has sessions for as many as may run at all, and the slot of the other came back unheard: the
/// poll's wake asks the crowd first, and then the others in the same round.
#[test]
fn a_crowd_with_sessions_for_all_holds_up_nobody_at_the_next_poll() {
    let mut world = world(2, 1, vec![lane(1, "alice", &["a"]), lane(2, "bob", &["b"])]);
    for (node, owner) in [("a", "alice"), ("a", "alice"), ("a", "alice"), ("b", "bob")] {
        let key = SessionKey { node: node.into(), owner: owner.into(), owner_oid: 1 };
        *world.idle.entry(key.clone()).or_default() += 1;
        world.feed(Input::SessionReady(key));
    }
    (0..50).for_each(|_| {
        world.submit(0, 9, &[]);
    });
    let other = world.submit(1, 0, &[]);
    let unheard = world.desk.table.adopt(&["b".to_owned()]);
    world.calm();
    assert_eq!(*world.stand(other), Stand::Ready);
    world.desk.table.give_back(unheard);
    world.calm();
    assert!(matches!(world.stand(other), Stand::Live { .. }), "{:?}", world.stand(other));
}

/// A node that does not answer is waited for by its own tasks only.
#[test]
fn sessions_that_do_not_open_hold_up_nobody() {
    let mut world = world(2, 2, vec![lane(1, "alice", &["a"]), lane(2, "bob", &["b"])]);
    (0..50).for_each(|_| {
        world.submit(0, 9, &[]);
    });
    let other = world.submit(1, 0, &[]);
    world.feed(Input::Woken);
    for _ in 0..20 {
        world.answer_slots();
        world.answer_turn();
        // Only bob's sessions open.
        if let Some(i) = world.opening.iter().position(|k| k.owner == "bob") {
            world.opened(i);
        }
        if world.opening.is_empty() {
            world.feed(Input::Woken);
        }
    }
    assert!(matches!(world.stand(other), Stand::Live { .. }), "{:?}", world.stand(other));
}

/// Nothing starts on a node that is down or drained, nor what burdens it; others do not notice, and all goes on after.
#[test]
fn a_closed_node_holds_up_nobody_else_and_opens_again() {
    for drained in [false, true] {
        let mut both = lane(3, "carol", &["a", "b"]);
        both.session.node = "b".to_owned();
        let mut world = world(8, 8, vec![lane(1, "alice", &["a"]), lane(2, "bob", &["b"]), both]);
        let close = |world: &mut World, closed: bool| {
            world.closed = closed.then(|| "a".to_owned());
            if drained {
                world.draining = Some(closed.then(|| "a".to_owned()).into_iter().collect());
                world.feed(Input::Woken);
            } else {
                world.feed(Input::NodeHeard { node: "a".into(), well: !closed });
            }
            world.calm();
        };
        close(&mut world, true);
        let (on_a, on_b, on_both) =
            (world.submit(0, 9, &[]), world.submit(1, 0, &[]), world.submit(2, 0, &[]));
        world.calm();
        assert!(matches!(world.stand(on_b), Stand::Live { .. }), "{:?}", world.stand(on_b));
        assert_eq!((world.stand(on_a), world.stand(on_both)), (&Stand::Ready, &Stand::Ready));
        close(&mut world, false);
        for task in [on_a, on_both] {
            assert!(matches!(world.stand(task), Stand::Live { .. }), "{:?}", world.stand(task));
        }
    }
}

/// A full node costs one question a round, not one for each task that waits for it.
#[test]
fn a_full_lane_is_left_alone_until_a_slot_of_its_nodes_comes_back() {
    let mut world = world(8, 1, vec![lane(1, "alice", &["a"]), lane(2, "bob", &["b"])]);
    (0..100).for_each(|_| {
        world.submit(0, 9, &[]);
    });
    let first = world.submit(1, 0, &[]);
    world.submit(1, 0, &[]);
    world.calm();
    world.finish(first, done());
    let effects = world.yard.feed(Input::SessionGone(SessionKey {
        node: "b".into(),
        owner: "nobody".into(),
        owner_oid: 1,
    }));
    let asks = effects.iter().filter(|e| matches!(e, Effect::AskSlots { .. })).count();
    assert_eq!(asks, 0, "a session says nothing of slots: {effects:?}");
    world.calm();
    assert_eq!(world.running().len(), 2);
}

/// After a restart the queue holds more than what becomes ready first.
#[test]
fn what_became_ready_before_we_looked_is_not_forgotten() {
    let mut world = world(1, 1, vec![lane(1, "alice", &["a"])]);
    (0..10).for_each(|_| {
        world.submit(0, 0, &[]);
    });
    world.calm();
    world.lose_office();
    world.submit(0, 0, &[]);
    world.take_office();
    world.run_down();
    assert!(world.tasks.values().all(|t| t.stand == Stand::Ended(TaskStatus::Done)), "{:?}", world.tasks);
}

/// A retried task goes back to its place, before what was read of the queue.
#[test]
fn a_task_that_is_retried_cuts_no_one_out() {
    let mut world = world(2, 2, vec![lane(1, "alice", &["a"])]);
    (0..30).for_each(|_| {
        world.submit(0, 0, &[]);
    });
    for round in 0..200 {
        world.calm();
        let Some(task) = world.running().first().copied() else { break };
        let failed = Outcome::Failed { sqlstate: "22012".into(), message: String::new(), revoked: false };
        world.finish(task, if round % 3 == 0 { failed } else { done() });
    }
    assert!(world.tasks.values().all(|t| matches!(t.stand, Stand::Ended(_))), "{:?}", world.tasks);
}

/// SPEC 3: higher priority first, then the smaller id, across lanes.
#[test]
fn the_order_is_priority_then_id() {
    let mut world = world(1, 1, vec![lane(1, "alice", &["a"]), lane(2, "bob", &["b"]), lane(3, "bob", &[])]);
    let expected: Vec<i64> = {
        let mut keyed: Vec<(i32, i64)> = (0..30)
            .map(|i| {
                let priority = i * 7 % 4;
                (-priority, world.submit(usize::try_from(i % 3).unwrap(), priority, &[]))
            })
            .collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, id)| id).collect()
    };
    // Let sessions open before anything can start, so that all lanes are equally ready.
    let hold = world.desk.table.adopt(&[]);
    world.calm();
    for owner in [("a", "alice"), ("b", "bob"), ("", "bob")] {
        let key = SessionKey { node: owner.0.into(), owner: owner.1.into(), owner_oid: 1 };
        *world.idle.entry(key.clone()).or_default() += 1;
        world.feed(Input::SessionReady(key));
        world.calm();
    }
    world.desk.table.give_back(hold);
    world.run_down();
    assert_eq!(world.order, expected);
}

/// A term ends and another begins while a turn is on its way: nobody will answer it.
#[test]
fn an_office_resumed_over_a_turn_under_way_goes_on() {
    let mut world = world(1, 1, vec![lane(1, "alice", &["a"])]);
    world.submit(0, 0, &[]);
    world.feed(Input::Woken);
    world.lose_connection(false, false);
    world.take_office();
    world.run_down();
    assert_eq!(world.order, [1]);
}

/// SIGINT outlives the office: the process leaves, and does not begin anew.
#[test]
fn cancel_all_is_not_forgotten_with_the_office() {
    let mut world = world(1, 1, vec![lane(1, "alice", &["a"])]);
    world.submit(0, 0, &[]);
    world.calm();
    world.feed(Input::CancelAll);
    assert!(world.stops.is_empty());
    world.lose_office();
    assert_eq!(world.stops, [false], "what became of the jobs is for the next leader");
    world.take_office();
    assert_eq!(world.yard.mode(), Mode::Stopped);
}

/// SIGTERM while home is away: running tasks have their grace all the same.
#[test]
fn a_doubtful_office_does_not_cut_the_grace() {
    let mut world = world(1, 1, vec![lane(1, "alice", &["a"])]);
    let task = world.submit(0, 0, &[]);
    world.calm();
    world.feed(Input::Woken);
    world.lose_connection(false, true);
    assert_eq!(world.office, Office::Doubt);
    world.feed(Input::Terminate);
    assert!(world.stops.is_empty(), "the task still runs");
    world.finish(task, done());
    assert!(world.stops.is_empty(), "its end is not settled");
    world.take_office();
    world.calm();
    assert_eq!(world.stops, [true]);
    assert_eq!(*world.stand(task), Stand::Ended(TaskStatus::Done));
}

/// The same without an end: after the grace the next start finds out.
#[test]
fn after_the_grace_a_doubtful_office_is_waited_for_no_longer() {
    let mut world = world(1, 1, vec![lane(1, "alice", &["a"])]);
    world.submit(0, 0, &[]);
    world.calm();
    world.feed(Input::Woken);
    world.lose_connection(false, true);
    world.feed(Input::Terminate);
    world.feed(Input::GraceOver);
    assert_eq!(world.stops.len(), 1);
}

/// Every pair of control inputs, from every mode they can meet: never weaker, never two stops.
#[test]
fn every_pair_of_controls_leaves_once() {
    let controls = [Input::Terminate, Input::CancelAll, Input::GraceOver, Input::LostOffice];
    for first in &controls {
        for second in &controls {
            let mut world = world(1, 1, vec![lane(1, "alice", &["a"])]);
            let task = world.submit(0, 0, &[]);
            world.calm();
            for input in [first, second] {
                match input {
                    Input::LostOffice => world.lose_office(),
                    input => world.feed(input.clone()),
                }
            }
            world.feed(Input::Terminate);
            world.feed(Input::Terminate);
            world.finish(task, Outcome::Interrupted { revoked: true, message: String::new() });
            world.take_office();
            world.calm();
            assert_eq!(world.stops.len(), 1, "{first:?}, then {second:?}");
        }
    }
}

/// A refusal that is heard while slots are asked for is told in the next round, not lost.
#[test]
fn a_refusal_heard_during_a_round_is_told_in_the_next() {
    let mut world = world(2, 2, vec![lane(1, "mallory", &["a"]), lane(2, "bob", &["b"])]);
    let task = world.submit(0, 0, &[]);
    world.feed(Input::Woken);
    while world.opening.is_empty() {
        assert!(world.answer_turn() || world.answer_slots());
    }
    while world.answer_turn() || world.answer_slots() {}
    // Another round is asking when the refusal comes.
    world.submit(1, 0, &[]);
    world.feed(Input::Woken);
    world.open_failed(0, true);
    while world.answer_turn() || world.answer_slots() {}
    assert_eq!(world.tasks[&task].attempt, 1, "its attempt failed with the refusal");
}
