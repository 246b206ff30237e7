//! Any history: inputs in any order, answers early, late or never, offices lost and resumed.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use yardmaster::model::yard::{Input, Mode};
use yardmaster::model::{Lane, LaneId, Limits, Outcome, SessionKey};

use super::world::{Office, Stand, World};

const NODES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Submit { lane: usize, priority: i32, parents: Vec<prop::sample::Index> },
    Wake,
    Slots,
    Turn,
    RefuseTurn,
    LoseConnection { happened: bool, heard: bool },
    TakeOffice,
    LoseOffice,
    Finish { which: prop::sample::Index, outcome: u8 },
    Leave(prop::sample::Index),
    Opened(usize),
    OpenFailed { which: usize, refused: bool },
    Retried,
    CloseIdle(usize),
    CancelTask(prop::sample::Index),
    Reload(u32, u32),
    Tick,
    Pace(u64),
}

fn step() -> impl Strategy<Value = Step> {
    use prop::sample::Index;
    prop_oneof![
        8 => (0_usize..6, 0_i32..3, prop::collection::vec(any::<Index>(), 0..3))
            .prop_map(|(lane, priority, parents)| Step::Submit { lane, priority, parents }),
        6 => Just(Step::Wake),
        14 => Just(Step::Slots),
        14 => Just(Step::Turn),
        1 => Just(Step::RefuseTurn),
        1 => any::<(bool, bool)>().prop_map(|(happened, heard)| Step::LoseConnection { happened, heard }),
        3 => Just(Step::TakeOffice),
        1 => Just(Step::LoseOffice),
        8 => (any::<Index>(), 0_u8..6).prop_map(|(which, outcome)| Step::Finish { which, outcome }),
        1 => any::<Index>().prop_map(Step::Leave),
        8 => any::<usize>().prop_map(Step::Opened),
        2 => any::<(usize, bool)>().prop_map(|(which, refused)| Step::OpenFailed { which, refused }),
        2 => Just(Step::Retried),
        2 => any::<usize>().prop_map(Step::CloseIdle),
        2 => any::<Index>().prop_map(Step::CancelTask),
        1 => (1_u32..6, 1_u32..4).prop_map(|(all, each)| Step::Reload(all, each)),
        6 => Just(Step::Tick),
        1 => prop_oneof![Just(1), Just(1), Just(80)].prop_map(Step::Pace),
    ]
}

fn limits(all: u32, each: u32) -> Limits {
    Limits { max_task_executors: all, max_task_executors_per_node: each, per_node: BTreeMap::new() }
}

/// Six lanes: two owners, single nodes, pairs and none.
fn lanes() -> Vec<Lane> {
    let nodes: [&[&str]; 6] = [&["a"], &["b"], &["a", "b"], &[], &["c"], &["a", "c"]];
    (1..)
        .zip(nodes)
        .map(|(id, nodes)| Lane {
            id: LaneId(id),
            session: SessionKey {
                node: nodes.first().map_or(String::new(), |n| (*n).to_owned()),
                owner: if id % 2 == 0 { "alice" } else { "bob" }.to_owned(),
                owner_oid: 1,
            },
            nodes: nodes.iter().map(|n| (*n).to_owned()).collect(),
        })
        .collect()
}

fn play(world: &mut World, step: Step) {
    match step {
        Step::Submit { lane, priority, parents } => {
            let ids: Vec<i64> = world.tasks.keys().copied().collect();
            let parents: Vec<i64> =
                parents.iter().filter(|_| !ids.is_empty()).map(|i| ids[i.index(ids.len())]).collect();
            world.submit(lane, priority, &parents);
        }
        Step::Wake => world.feed(Input::Woken),
        Step::Slots => drop(world.answer_slots()),
        Step::Turn if world.office == Office::Held => drop(world.answer_turn()),
        Step::RefuseTurn if world.office == Office::Held => drop(world.refuse_turn()),
        Step::Turn | Step::RefuseTurn => {}
        Step::LoseConnection { happened, heard } => world.lose_connection(happened, heard),
        Step::TakeOffice => world.take_office(),
        Step::LoseOffice => world.lose_office(),
        Step::Finish { which, outcome } => {
            let running = world.running();
            if !running.is_empty() {
                let message = String::new();
                let outcome = match outcome {
                    0 => Outcome::Failed { sqlstate: "22012".into(), message, revoked: false },
                    1 => Outcome::Failed { sqlstate: "42601".into(), message, revoked: false },
                    2 => Outcome::Interrupted { revoked: true, message },
                    _ => Outcome::Done { message, recorded: true },
                };
                world.finish(running[which.index(running.len())], outcome);
            }
        }
        Step::Leave(which) => {
            let running = world.running();
            // An Executor lets go only when the office is over or the service leaves.
            if !running.is_empty() && world.yard.mode() == Mode::Interrupting {
                world.leave(running[which.index(running.len())]);
            }
        }
        Step::Opened(which) => drop(world.opened(which)),
        Step::OpenFailed { which, refused } => world.open_failed(which, refused),
        Step::Retried => drop(world.retried()),
        Step::CloseIdle(which) => world.close_idle(which),
        Step::CancelTask(which) => {
            let ids: Vec<i64> = world.tasks.keys().copied().collect();
            if !ids.is_empty() {
                world.tasks.get_mut(&ids[which.index(ids.len())]).expect("it is there").cancel_asked = true;
            }
        }
        Step::Reload(all, each) => world.reload(limits(all, each)),
        Step::Tick => drop(world.tick()),
        Step::Pace(ms) => world.pace = Duration::from_millis(ms),
    }
    check(world);
}

fn check(world: &World) {
    let limits = world.desk.table.limits();
    assert!(world.yard.mode() != Mode::Accepting || world.yard.running().count() == world.running().len());
    let snapshot = world.desk.table.snapshot();
    assert!(NODES.iter().all(|n| limits.on(n) > 0) && snapshot.used as usize >= world.running().len());
    assert!(world.stops.len() <= 1, "stopped twice");
}

fn world(all: u32, each: u32, pending: u32) -> World {
    let mut world = World::new(lanes(), limits(all, each), pending);
    world.take_office();
    world.brisk()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened: once everybody answers again, every task comes to its end.
    #[test]
    fn every_history_can_be_run_down(
        all in 1_u32..5, each in 1_u32..3, pending in 1_u32..3, steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = world(all, each, pending);
        for step in steps {
            play(&mut world, step);
        }
        world.take_office();
        world.run_down();
        for (id, task) in &world.tasks {
            prop_assert!(matches!(task.stand, Stand::Ended(_)), "task {id} is left {:?}", task.stand);
        }
        prop_assert_eq!(world.desk.table.used(), 0, "slots leaked");
        prop_assert!(world.stops.is_empty());
    }

    /// Whatever happened, and however it is told to leave: it stops, once, and what it ran is settled.
    #[test]
    fn every_history_can_be_left(
        all in 1_u32..5,
        steps in prop::collection::vec(step(), 1..60),
        leaving in prop::collection::vec((0_u8..3, prop::collection::vec(step(), 0..15)), 1..5),
    ) {
        let mut world = world(all, 1, 2);
        for step in steps {
            play(&mut world, step);
        }
        let mut told = false;
        for (signal, steps) in leaving {
            let grace = world.grace > 0;
            told |= signal > 0;
            match signal {
                0 if grace => world.feed(Input::GraceOver),
                0 => {}
                1 => world.feed(Input::Terminate),
                _ => world.feed(Input::CancelAll),
            }
            for step in steps {
                play(&mut world, step);
            }
        }
        if !told {
            world.feed(Input::Terminate);
        }
        world.take_office();
        world.calm();
        world.feed(Input::GraceOver);
        // Interrupted attempts end so, or are let go.
        for task in world.running() {
            world.finish(task, Outcome::Interrupted { revoked: true, message: String::new() });
        }
        world.calm();
        prop_assert_eq!(world.stops.len(), 1, "{:?}", world.yard);
        prop_assert_eq!(world.yard.mode(), Mode::Stopped);
        let started = world.order.len();
        world.run_down();
        prop_assert_eq!(world.order.len(), started, "started after Stop");
    }
}
