//! Slots over time: with reservations everybody starts, whatever the others do.

use std::collections::VecDeque;

use proptest::prelude::*;
use yardmaster::model::slots::{Limits, SlotGrant, SlotTable};

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
