//! Slots: a few plain stories, and random histories beside a plain list of what runs.

use std::collections::BTreeSet;

use proptest::prelude::*;
use yardmaster::model::slots::reservations::MAX_RESERVATIONS;
use yardmaster::model::slots::{Full, Limits, NodeSlots, SlotGrant, SlotTable};

pub(crate) fn names(nodes: &[&str]) -> Vec<String> {
    nodes.iter().copied().map(String::from).collect()
}

pub(crate) fn limits(all: u32, each: u32, own: &[(&str, u32)]) -> Limits {
    let per_node = own.iter().map(|(node, limit)| ((*node).to_owned(), *limit)).collect();
    Limits { max_task_executors: all, max_task_executors_per_node: each, per_node }
}

fn full(node: &str) -> Full {
    Full::Node(node.to_owned())
}

#[test]
fn a_task_takes_all_its_slots_or_none() {
    let mut table = SlotTable::new(limits(10, 1, &[]));
    let grant = table.try_take(&names(&["a", "b"])).unwrap();
    assert_eq!(table.try_take(&names(&["c", "b"])), Err(full("b")));
    assert_eq!((table.used(), table.used_on("a"), table.used_on("c")), (1, 1, 0));
    table.give_back(grant);
    assert_eq!((table.used(), table.snapshot().nodes.len()), (0, 0), "unused nodes leave nothing behind");
}

#[test]
fn a_node_named_twice_takes_one_slot() {
    let mut table = SlotTable::new(limits(10, 1, &[]));
    let grant = table.try_take(&names(&["b", "a", "b"])).unwrap();
    assert_eq!(grant.nodes().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((table.used_on("a"), table.used_on("b")), (1, 1));
    table.give_back(grant);
    assert_eq!(table.used_on("b"), 0);
}

#[test]
fn three_on_two_shared_nodes_one_elsewhere_one_nowhere() {
    let mut table = SlotTable::new(limits(4, 1, &[]));
    let running = [&["1", "2"][..], &["3", "4"], &[]].map(|nodes| table.try_take(&names(nodes)));
    assert!(running.iter().all(Result::is_ok));
    assert_eq!(table.fits(&names(&["1", "2"])), Err(full("1")));
    table.set_limits(limits(4, 2, &[]));
    assert_eq!(table.fits(&names(&["1", "2"])), Ok(()), "raising acts at once");
}

#[test]
fn lowered_limits_let_what_runs_end() {
    let mut table = SlotTable::new(limits(4, 4, &[]));
    let mut running: Vec<SlotGrant> = (0..4).map(|_| table.try_take(&names(&["a"])).unwrap()).collect();
    table.set_limits(limits(4, 4, &[("a", 1)]));
    while let Some(grant) = running.pop() {
        assert_ne!(table.fits(&names(&["a"])), Ok(()));
        table.give_back(grant);
    }
    assert_eq!(table.fits(&names(&["a"])), Ok(()));
}

#[test]
fn adopted_tasks_count_even_beyond_the_limits() {
    let mut table = SlotTable::new(limits(1, 1, &[]));
    let adopted = [table.adopt(&names(&["a"])), table.adopt(&names(&["a"]))];
    assert_eq!((table.used(), table.used_on("a")), (2, 2));
    for grant in adopted {
        assert_eq!(table.try_take(&[]), Err(Full::Global));
        table.give_back(grant);
    }
    assert!(table.try_take(&names(&["a"])).is_ok());
}

#[test]
fn a_hundred_nodes_are_one_task() {
    let nodes: Vec<String> = (0..100).map(|n| format!("shard_{n}")).collect();
    let mut table = SlotTable::new(limits(4, 1, &[]));
    let grant = table.try_take(&nodes).unwrap();
    assert_eq!(table.try_take(&nodes[99..]), Err(full("shard_99")));
    table.give_back(grant);
    assert!(table.try_take(&nodes[99..]).is_ok());
}

#[test]
fn a_kept_slot_is_for_its_holder_and_others_use_the_rest() {
    let mut table = SlotTable::new(limits(10, 2, &[]));
    let running = [table.try_take(&names(&["a"])).unwrap(), table.try_take(&names(&["b"])).unwrap()];
    assert!(table.reserve(7, &names(&["a", "b"])));
    assert_eq!(table.try_take(&names(&["a"])), Err(Full::Reserved("a".to_owned())));
    let [on_a, _on_b] = running;
    table.give_back(on_a);
    let other = table.try_take(&names(&["a"]));
    assert!(other.is_ok(), "two are free and one is kept");
    assert_eq!(table.snapshot().nodes["a"], NodeSlots { used: 1, limit: 2, reserved_for: Some(7) });
    let holder = table.try_take_reserved(7, &names(&["a", "b"]));
    assert!(holder.is_ok());
    assert_eq!(table.snapshot().nodes["a"].reserved_for, None, "the grant ends the reservation");
}

#[test]
fn reservations_are_served_by_age_and_hold_all_nodes_or_none() {
    let mut table = SlotTable::new(limits(10, 1, &[]));
    assert!(table.reserve(1, &names(&["a", "b"])));
    assert!(!table.reserve(2, &names(&["b", "c"])), "b is kept for 1");
    assert!(!table.reserve(3, &names(&["c", "d"])), "2 is older and comes first on c");
    assert!(table.reserve(4, &names(&["e", "f"])));
    assert!(!table.reserve(5, &[]), "there is nothing to keep");
    assert!(table.fits(&names(&["c", "d"])).is_ok(), "nodes of a want that does not hold are in common use");
    table.release_reservation(1);
    assert!(table.reserve(2, &names(&["b", "c"])), "asking again tells that it holds now");
    assert_eq!(table.fits(&names(&["c"])), Err(Full::Reserved("c".to_owned())));
    assert_eq!(table.fits_reserved(2, &names(&["c", "b"])), Ok(()));
    assert_eq!(table.fits_reserved(3, &names(&["c", "d"])), Err(Full::Reserved("c".to_owned())));
    table.release_reservation(99);
}

#[test]
fn reservations_are_bounded() {
    let mut table = SlotTable::new(Limits::default());
    let count = u64::try_from(MAX_RESERVATIONS).unwrap();
    assert!((0..count).all(|id| table.reserve(id, &[format!("node {id}")])));
    assert!(!table.reserve(count, &names(&["one more"])));
    table.release_reservation(0);
    assert!(table.reserve(count, &names(&["one more"])));
}

#[derive(Clone, Debug)]
enum Step {
    Take(Vec<String>),
    TakeReserved(u64, Vec<String>),
    Adopt(Vec<String>),
    GiveBack(prop::sample::Index),
    SetLimits(Limits),
    Reserve(u64, Vec<String>),
    Release(u64),
}

const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// Up to five of four nodes, so that some are named twice.
fn some_nodes() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(NODES.as_slice()).prop_map(String::from), 0..=5)
}

fn some_limits() -> impl Strategy<Value = Limits> {
    let own = prop::collection::btree_map(
        prop::sample::select(NODES.as_slice()).prop_map(String::from),
        1_u32..4,
        0..3,
    );
    (1_u32..8, 1_u32..4, own).prop_map(|(max_task_executors, max_task_executors_per_node, per_node)| Limits {
        max_task_executors,
        max_task_executors_per_node,
        per_node,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => some_nodes().prop_map(Step::Take),
        2 => (0_u64..6, some_nodes()).prop_map(|(id, nodes)| Step::TakeReserved(id, nodes)),
        1 => some_nodes().prop_map(Step::Adopt),
        6 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        1 => some_limits().prop_map(Step::SetLimits),
        2 => (0_u64..6, some_nodes()).prop_map(|(id, nodes)| Step::Reserve(id, nodes)),
        1 => (0_u64..6).prop_map(Step::Release),
    ];
    prop::collection::vec(step, 0..80)
}

/// A table with everything it gave out.
struct Yard {
    table: SlotTable,
    alive: Vec<SlotGrant>,
}

impl Yard {
    fn running_on(&self, node: &str) -> u32 {
        let count = self.alive.iter().filter(|grant| grant.nodes().any(|name| name == node)).count();
        count.try_into().expect("a short history")
    }

    fn running(&self) -> u32 {
        self.alive.len().try_into().expect("a short history")
    }

    fn free_on(&self, node: &str) -> u32 {
        self.table.limits().on(node).saturating_sub(self.running_on(node))
    }

    fn holder(&self, node: &str) -> Option<u64> {
        self.table.snapshot().nodes.get(node).and_then(|slots| slots.reserved_for)
    }

    /// Takes as told, and holds the answer against the list of what runs.
    fn take(&mut self, want: Option<u64>, nodes: &[String]) -> Result<(), TestCaseError> {
        let promised = match want {
            Some(id) => self.table.fits_reserved(id, nodes),
            None => self.table.fits(nodes),
        };
        let kept_from_us: Vec<&str> =
            NODES.into_iter().filter(|node| self.holder(node).is_some_and(|h| want != Some(h))).collect();
        let kept_and_free: Vec<&str> =
            kept_from_us.iter().copied().filter(|node| self.free_on(node) > 0).collect();
        let answer = match want {
            Some(id) => self.table.try_take_reserved(id, nodes),
            None => self.table.try_take(nodes),
        };
        prop_assert_eq!(promised.err(), answer.as_ref().err().cloned());
        match answer {
            Ok(grant) => {
                let wanted: BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
                prop_assert_eq!(grant.nodes().collect::<BTreeSet<_>>(), wanted.clone());
                prop_assert_eq!(grant.nodes().len(), wanted.len());
                self.alive.push(grant);
                prop_assert!(self.running() <= self.table.limits().max_task_executors);
                for node in nodes {
                    prop_assert!(self.running_on(node) <= self.table.limits().on(node));
                }
                for node in kept_and_free {
                    prop_assert!(self.free_on(node) > 0, "the slot kept on {} was given away", node);
                }
            }
            Err(Full::Global) => prop_assert!(self.running() >= self.table.limits().max_task_executors),
            Err(Full::Node(node)) => prop_assert!(nodes.contains(&node) && self.free_on(&node) == 0),
            Err(Full::Reserved(node)) => {
                prop_assert!(nodes.contains(&node) && self.free_on(&node) == 1);
                prop_assert!(kept_from_us.contains(&node.as_str()));
            }
        }
        Ok(())
    }

    fn do_step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Take(nodes) => self.take(None, &nodes)?,
            Step::TakeReserved(id, nodes) => self.take(Some(id), &nodes)?,
            Step::Adopt(nodes) => {
                let grant = self.table.adopt(&nodes);
                self.alive.push(grant);
            }
            Step::GiveBack(index) if !self.alive.is_empty() => {
                let grant = self.alive.swap_remove(index.index(self.alive.len()));
                self.table.give_back(grant);
            }
            Step::GiveBack(_) => {}
            Step::SetLimits(limits) => self.table.set_limits(limits),
            Step::Reserve(id, nodes) => {
                let holds = self.table.reserve(id, &nodes);
                prop_assert_eq!(holds, NODES.iter().any(|node| self.holder(node) == Some(id)));
            }
            Step::Release(id) => {
                self.table.release_reservation(id);
                prop_assert!(NODES.iter().all(|node| self.holder(node) != Some(id)));
            }
        }
        prop_assert_eq!(self.table.used(), self.running());
        for node in NODES {
            prop_assert_eq!(self.table.used_on(node), self.running_on(node), "on {}", node);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn slots_in_use_are_the_grants_alive_and_never_above_a_limit(start in some_limits(), steps in steps()) {
        let mut yard = Yard { table: SlotTable::new(start), alive: Vec::new() };
        for step in steps {
            yard.do_step(step)?;
        }
        for id in 0..6 {
            yard.table.release_reservation(id);
        }
        for grant in yard.alive.drain(..) {
            yard.table.give_back(grant);
        }
        let unused = SlotTable::new(yard.table.limits().clone()).snapshot();
        prop_assert_eq!(yard.table.snapshot(), unused, "when all is given back nothing is left");
    }
}
