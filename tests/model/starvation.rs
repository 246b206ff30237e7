//! Slots over time: with reservations everybody starts, whatever the others do.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use yardmaster::model::slots::{Full, Limits, SlotGrant, SlotTable};
use yardmaster::model::{Crossing, LaneId, QueueKey, SlotDesk, TaskId};

use crate::slots::{limits, names};

const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// Wants of one to four distinct nodes.
fn wants(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<String>>> {
    let nodes = prop::sample::subsequence(NODES.as_slice(), 1..=4).prop_map(|nodes| names(&nodes));
    prop::collection::vec(nodes, count)
}

/// The rivals: a stream without end of tasks on one node each, always asking first, each running for `lifetime` rounds.
struct Rivals {
    lifetime: usize,
    running: VecDeque<(usize, SlotGrant)>,
}

impl Rivals {
    fn play(&mut self, table: &mut SlotTable, round: usize) {
        while self.running.front().is_some_and(|(since, _)| since + self.lifetime <= round) {
            if let Some((_, grant)) = self.running.pop_front() {
                table.give_back(grant);
            }
            self.fill(table, round);
        }
        self.fill(table, round);
    }

    /// Takes whatever can be had: as greedy as the table permits.
    fn fill(&mut self, table: &mut SlotTable, round: usize) {
        for node in NODES {
            while let Ok(grant) = table.try_take(&names(&[node])) {
                self.running.push_back((round, grant));
            }
        }
    }
}

/// Lets the wants wait beside the rivals. Returns how many have started after `rounds`.
fn started(each: u32, lifetime: usize, wants: &[Vec<String>], rounds: usize, reserving: bool) -> usize {
    let mut table = SlotTable::new(limits(1000, each, &[]));
    let mut rivals = Rivals { lifetime, running: VecDeque::new() };
    let mut waiting: Vec<(u64, &Vec<String>)> = (0..).zip(wants).collect();
    for round in 0..rounds {
        rivals.play(&mut table, round);
        waiting.retain(|(id, nodes)| {
            if reserving {
                table.reserve(*id, nodes);
            }
            match table.try_take_reserved(*id, nodes) {
                // A want's own work is short; what it holds comes back within the round.
                Ok(grant) => {
                    table.give_back(grant);
                    false
                }
                Err(_) => true,
            }
        });
    }
    wants.len() - waiting.len()
}

#[test]
fn without_a_reservation_the_rivals_starve_a_task_of_two_nodes() {
    let want = [names(&["a", "b"])];
    assert_eq!(started(1, 3, &want, 10_000, false), 0, "else the next tests would prove nothing");
    assert_eq!(started(1, 3, &want, 10, true), 1);
}

proptest! {
    /// Each want holds when those before it have started, and starts one lifetime of a rival later at the latest.
    #[test]
    fn nobody_starves(each in 1_u32..4, lifetime in 1_usize..6, wants in wants(1..8)) {
        let rounds = (wants.len() + 1) * (lifetime + 1);
        prop_assert_eq!(started(each, lifetime, &wants, rounds, true), wants.len());
    }

    /// All wait with reservations, in any order of asking; some run, in any order of ending: there is always one
    /// that runs or one that can start.
    #[test]
    fn nobody_waits_for_ever_in_a_circle(
        each in 1_u32..3, all in 1_u32..5, wants in wants(1..12), chance in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let mut table = SlotTable::new(Limits { max_task_executors: all, ..limits(all, each, &[]) });
        let mut waiting: Vec<(u64, Vec<String>)> = (0..).zip(wants).collect();
        let mut running: Vec<SlotGrant> = Vec::new();
        for (id, nodes) in &waiting {
            table.reserve(*id, nodes);
        }
        let mut chance = chance.iter().cycle();
        while !waiting.is_empty() {
            if let Some(index) = chance.next() {
                let first = index.index(waiting.len());
                waiting.rotate_left(first);
            }
            let before = waiting.len();
            waiting.retain(|(id, nodes)| match table.try_take_reserved(*id, nodes) {
                Ok(grant) => { running.push(grant); false }
                Err(_) => true,
            });
            prop_assert!(waiting.len() < before || !running.is_empty(), "deadlock: {:?}", waiting);
            if let (Some(index), false) = (chance.next(), running.is_empty()) {
                let ended = index.index(running.len());
                table.give_back(running.swap_remove(ended));
            }
        }
    }
}

fn key(task: i64) -> QueueKey {
    QueueKey { rank: 0, task: TaskId(task) }
}

fn crossing(lane: i32, first: i64, last: i64) -> Crossing {
    Crossing { lane: LaneId(lane), first: key(first), last: key(last) }
}

const AFTER: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn nodes_are_kept_for_whoever_was_refused_them_for_long_enough() {
    let mut desk = SlotDesk::new(limits(9, 1, &[]), AFTER);
    let (pair, rival) = (names(&["a", "b"]), LaneId(2));
    let (a, b) = (names(&["a"]), names(&["b"]));
    let busy = (desk.take(at(0), rival, &a).unwrap(), desk.take(at(0), rival, &b).unwrap());
    desk.hear(&[crossing(1, 5, 7)]);
    assert!(desk.take(at(0), LaneId(1), &pair).is_err());
    desk.table.give_back(busy.0);
    let again = desk.take(at(9), rival, &a).expect("nothing is kept before the time is over");
    assert!(desk.take(at(10), LaneId(1), &pair).is_err());
    desk.table.give_back(again);
    assert_eq!(desk.take(at(11), rival, &a), Err(Full::Reserved("a".to_owned())));
    desk.table.give_back(busy.1);
    let grant = desk.take(at(11), LaneId(1), &pair).expect("both are free, and kept for it");
    // The next task of the lane has waited as long.
    desk.hear(&[crossing(1, 6, 9)]);
    assert!(desk.take(at(11), LaneId(1), &pair).is_err());
    desk.table.give_back(grant);
    assert!(desk.take(at(12), rival, &a).is_err());
    // Task 8 was not known to wait when 5 was first refused: its own waiting begins.
    desk.hear(&[crossing(1, 8, 9)]);
    assert!(desk.take(at(12), rival, &a).is_ok());
}

#[test]
fn whoever_no_longer_waits_keeps_nothing() {
    let mut desk = SlotDesk::new(limits(9, 1, &[]), Duration::ZERO);
    let a = names(&["a"]);
    let busy = desk.take(at(0), LaneId(2), &a).unwrap();
    desk.hear(&[crossing(1, 5, 5)]);
    assert!(desk.fits(at(0), LaneId(1), &names(&["a", "b"])).is_err());
    desk.table.give_back(busy);
    assert!(desk.take(at(1), LaneId(2), &a).is_err(), "kept at once");
    desk.hear(&[]);
    assert!(desk.take(at(1), LaneId(2), &a).is_ok());
}

#[test]
fn a_full_house_makes_nobody_keep_nodes() {
    let mut desk = SlotDesk::new(limits(1, 1, &[]), Duration::ZERO);
    let busy = desk.take(at(0), LaneId(2), &[]).unwrap();
    desk.hear(&[crossing(1, 5, 5)]);
    assert_eq!(desk.take(at(99), LaneId(1), &names(&["a", "b"])), Err(Full::Global));
    desk.table.give_back(busy);
    assert!(desk.take(at(99), LaneId(2), &names(&["a"])).is_ok());
}

proptest! {
    /// Lanes of several nodes wait at a desk beside rivals that take every single slot they can have, always first. Each
    /// task starts; no limit is exceeded at any moment; when all have started nothing is kept.
    #[test]
    fn every_lane_of_several_nodes_has_its_turn(
        each in 1_u32..3, lifetime in 1_u64..5, wait in 0_u64..20,
        lanes in prop::collection::vec((prop::sample::subsequence(NODES.as_slice(), 2..=4), 1_i64..4), 1..6),
    ) {
        let mut desk = SlotDesk::new(limits(1000, each, &[]), at(wait));
        let mut rivals: VecDeque<(u64, SlotGrant)> = VecDeque::new();
        let mut waiting: Vec<(i32, Vec<String>, i64)> =
            (1..).zip(&lanes).map(|(id, (nodes, tasks))| (id, names(nodes), *tasks)).collect();
        let tasks: u64 = waiting.iter().map(|(_, _, n)| n.unsigned_abs()).sum();
        let rounds = wait + (tasks + 1) * (lifetime + 2);
        for round in 0..rounds {
            let crossings: Vec<Crossing> = waiting.iter().map(|(id, _, left)| crossing(*id, -left, 0)).collect();
            desk.hear(&crossings);
            while rivals.front().is_some_and(|(since, _)| since + lifetime <= round) {
                let (_, grant) = rivals.pop_front().expect("it is there");
                desk.table.give_back(grant);
            }
            for node in NODES {
                while let Ok(grant) = desk.take(at(round), LaneId(99), &names(&[node])) {
                    rivals.push_back((round, grant));
                }
            }
            for (id, nodes, left) in &mut waiting {
                if let Ok(grant) = desk.take(at(round), LaneId(*id), nodes) {
                    prop_assert!(NODES.iter().all(|node| desk.table.used_on(node) <= each));
                    desk.table.give_back(grant);
                    *left -= 1;
                }
            }
            waiting.retain(|(_, _, left)| *left > 0);
        }
        prop_assert!(waiting.is_empty(), "after {} rounds: {:?}", rounds, waiting);
        desk.hear(&[]);
        prop_assert!(desk.table.snapshot().nodes.values().all(|n| n.reserved_for.is_none()));
    }
}
