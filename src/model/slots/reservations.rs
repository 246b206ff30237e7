//! Reservations: nodes kept for a want that waited long for several of them at once.
//!
//! Used by [`SlotTable`](super::SlotTable) alone. One slot of a kept node is withheld from everybody but the
//! holder; so once a node has a slot free for the holder, it has one until the holder takes it (lowering a limit
//! and adopting aside), and the holder starts when the last of its nodes has had one task end.
//!
//! **No deadlock, no starvation.** Reservations are served by age, and one *holds* only if it shares no node with
//! an older one. It therefore holds all of its nodes or none: no want sits on one node while waiting for another
//! want's. The oldest always holds, so each want holds at the latest when all before it have started. Nodes of a
//! want that does not hold yet stay in common use.
//!
//! The global slot is not kept: a kept want is offered it in the order of dispatch, like everybody.

use std::collections::{HashMap, HashSet};

/// How many reservations may stand at once. More would only queue behind one another, and each change of the
/// list looks at all of them.
pub const MAX_RESERVATIONS: usize = 256;

/// The reservations, oldest first, and what they hold.
#[derive(Clone, Default, Debug)]
pub(super) struct Reservations {
    by_age: Vec<(u64, Vec<String>)>,
    /// Follows from `by_age`; at most one holder per node.
    holders: HashMap<String, u64>,
}

impl Reservations {
    /// Adds a reservation, unless it is there or the list is full. Returns whether it holds.
    pub(super) fn add(&mut self, id: u64, nodes: &[String]) -> bool {
        let known = self.by_age.iter().any(|(other, _)| *other == id);
        if !known && !nodes.is_empty() && self.by_age.len() < MAX_RESERVATIONS {
            self.by_age.push((id, nodes.to_vec()));
            self.settle_holders();
        }
        self.holders.values().any(|holder| *holder == id)
    }

    /// Removes a reservation, if it is there.
    pub(super) fn release(&mut self, id: u64) {
        let before = self.by_age.len();
        self.by_age.retain(|(other, _)| *other != id);
        if self.by_age.len() < before {
            self.settle_holders();
        }
    }

    /// Returns for whom a slot of this node is kept.
    pub(super) fn holder(&self, node: &str) -> Option<u64> {
        self.holders.get(node).copied()
    }

    /// Returns the nodes of which a slot is kept, in no order.
    pub(super) fn kept_nodes(&self) -> impl Iterator<Item = &str> {
        self.holders.keys().map(String::as_str)
    }

    fn settle_holders(&mut self) {
        self.holders.clear();
        let mut named_by_older: HashSet<&str> = HashSet::new();
        for (id, nodes) in &self.by_age {
            if nodes.iter().all(|node| !named_by_older.contains(node.as_str())) {
                self.holders.extend(nodes.iter().map(|node| (node.clone(), *id)));
            }
            named_by_older.extend(nodes.iter().map(String::as_str));
        }
    }
}
