//! Slots: the right to one running task, globally and on each of its nodes, all or nothing.
//!
//! Owned by the NodeLimiter actor, which is the only one to call it; everybody else holds what a [`SlotGrant`]
//! stands for. Invariants, each with a test in `tests/model/slots.rs`:
//! - slots in use are exactly those of the grants alive, globally and on every node;
//! - a grant by [`SlotTable::try_take`] never lifts a count above its limit at that instant; only
//!   [`SlotTable::adopt`] may, and lowering a limit leaves what runs alone;
//! - a refusal changes nothing, and nothing is refused that fits;
//! - a node that nobody uses takes no memory.
//!
//! Wants that wait for several nodes would starve beside a stream of tasks that take one of those nodes each.
//! Such a want gets its nodes kept: see [`reservations`], and [`desk`] for when.

pub mod desk;
pub mod reservations;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use reservations::Reservations;

/// How many tasks may run at once. The settings see to it that each limit is 1 to 1000.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Running tasks in all.
    pub max_task_executors: u32,
    /// Running tasks on each node that has no limit of its own, known or purely logical.
    pub max_task_executors_per_node: u32,
    /// The limits of single nodes, by name.
    pub per_node: BTreeMap<String, u32>,
}

impl Default for Limits {
    /// 4 in all and 1 on a node: Citus's defaults.
    fn default() -> Self {
        Self { max_task_executors: 4, max_task_executors_per_node: 1, per_node: BTreeMap::new() }
    }
}

impl Limits {
    /// Returns the limit of one node.
    pub fn on(&self, node: &str) -> u32 {
        self.per_node.get(node).copied().unwrap_or(self.max_task_executors_per_node)
    }
}

/// Why a task gets no slots now. An answer, not a fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// As many tasks run as may run in all.
    #[error("all slots of max_task_executors are in use")]
    Global,
    /// As many tasks run on this node as may run there.
    #[error("all slots of node \"{0}\" are in use")]
    Node(String),
    /// The node's last free slot is kept for a want that waited long for several nodes.
    #[error("the free slot of node \"{0}\" is kept for a task that waits for several nodes")]
    Reserved(String),
}

/// One global slot and one on each of some distinct nodes.
///
/// Not `Clone`: it goes back to its table once, by [`SlotTable::give_back`]. Dropping it instead leaves its slots
/// in use for ever, which is why only the actor's guard holds one.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "slots that are not given back stay in use"]
pub struct SlotGrant {
    /// Sorted, distinct.
    nodes: Box<[Arc<str>]>,
}

impl SlotGrant {
    /// Returns the distinct nodes, sorted.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.nodes.iter().map(AsRef::as_ref)
    }
}

/// What is in use and what is kept, under which limits.
#[derive(Clone, Default, Debug)]
pub struct SlotTable {
    limits: Limits,
    used: u32,
    /// Running tasks by node; never holds a zero. Grants share the names.
    on_node: HashMap<Arc<str>, u32>,
    reservations: Reservations,
}

impl SlotTable {
    /// Makes a table of which nothing is in use.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes one global slot and one on each distinct node, or nothing.
    ///
    /// # Errors
    /// Says what is full: the global limit first, else the first such node in the order given.
    pub fn try_take(&mut self, nodes: &[String]) -> Result<SlotGrant, Full> {
        self.check(None, nodes)?;
        Ok(self.adopt(nodes))
    }

    /// Does the same for the want that made reservation `id`, to whom what is kept for it is free.
    ///
    /// Success ends the reservation. Without one it is an ordinary [`SlotTable::try_take`].
    ///
    /// # Errors
    /// As [`SlotTable::try_take`]; the reservation then stays.
    pub fn try_take_reserved(&mut self, id: u64, nodes: &[String]) -> Result<SlotGrant, Full> {
        self.check(Some(id), nodes)?;
        self.reservations.release(id);
        Ok(self.adopt(nodes))
    }

    /// Would [`SlotTable::try_take`] succeed?
    ///
    /// # Errors
    /// As [`SlotTable::try_take`].
    pub fn fits(&self, nodes: &[String]) -> Result<(), Full> {
        self.check(None, nodes)
    }

    /// Would [`SlotTable::try_take_reserved`] succeed?
    ///
    /// # Errors
    /// As [`SlotTable::try_take_reserved`].
    pub fn fits_reserved(&self, id: u64, nodes: &[String]) -> Result<(), Full> {
        self.check(Some(id), nodes)
    }

    /// Records a task that runs already, whatever the limits say: a predecessor's backend that may still be alive.
    pub fn adopt(&mut self, nodes: &[String]) -> SlotGrant {
        self.used += 1;
        let mut names: Vec<Arc<str>> = nodes.iter().map(|node| self.shared_name(node)).collect();
        if !names.is_sorted_by(|a, b| a < b) {
            names.sort_unstable();
            names.dedup();
        }
        for name in &names {
            *self.on_node.entry(Arc::clone(name)).or_insert(0) += 1;
        }
        SlotGrant { nodes: names.into_boxed_slice() }
    }

    /// Takes the slots of a grant back.
    pub fn give_back(&mut self, grant: SlotGrant) {
        debug_assert!(self.used > 0, "a grant of another table came back");
        self.used = self.used.saturating_sub(1);
        for name in grant.nodes {
            match self.on_node.get_mut(&name) {
                Some(used) if *used > 1 => *used -= 1,
                Some(_) => drop(self.on_node.remove(&name)),
                None => debug_assert!(false, "a grant of another table came back: nothing runs on {name}"),
            }
        }
    }

    /// Replaces the limits. Raised ones can be used at once; under lowered ones the running tasks end in their time.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Asks that one slot of each node be kept for want `id` as it frees; asking again changes nothing.
    ///
    /// Returns whether the nodes are kept from now on; if not, an older reservation comes first (or
    /// [`reservations::MAX_RESERVATIONS`] are waiting: ask again later).
    pub fn reserve(&mut self, id: u64, nodes: &[String]) -> bool {
        self.reservations.add(id, nodes)
    }

    /// Ends a reservation, if there is one: its want was cancelled, or no longer waits.
    pub fn release_reservation(&mut self, id: u64) {
        self.reservations.release(id);
    }

    /// Returns how many tasks hold slots.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Returns how many tasks hold a slot of this node.
    pub fn used_on(&self, node: &str) -> u32 {
        self.on_node.get(node).copied().unwrap_or(0)
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Describes the table for people: every node that is in use, kept for somebody, or limited on its own.
    pub fn snapshot(&self) -> SlotSnapshot {
        let in_use = self.on_node.keys().map(AsRef::as_ref);
        let limited = self.limits.per_node.keys().map(String::as_str);
        let names: BTreeSet<&str> = in_use.chain(limited).chain(self.reservations.kept_nodes()).collect();
        let describe = |name| NodeSlots {
            used: self.used_on(name),
            limit: self.limits.on(name),
            reserved_for: self.reservations.holder(name),
        };
        SlotSnapshot {
            used: self.used,
            limit: self.limits.max_task_executors,
            nodes: names.into_iter().map(|name| (name.to_owned(), describe(name))).collect(),
        }
    }

    /// A node named twice needs one slot only, and looking twice does no harm.
    fn check(&self, want: Option<u64>, nodes: &[String]) -> Result<(), Full> {
        if self.used >= self.limits.max_task_executors {
            return Err(Full::Global);
        }
        for node in nodes {
            let free = self.limits.on(node).saturating_sub(self.used_on(node));
            let kept = self.reservations.holder(node).is_some_and(|holder| want != Some(holder));
            match free {
                0 => return Err(Full::Node(node.clone())),
                1 if kept => return Err(Full::Reserved(node.clone())),
                _ => {}
            }
        }
        Ok(())
    }

    fn shared_name(&self, node: &str) -> Arc<str> {
        match self.on_node.get_key_value(node) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(node),
        }
    }
}

/// The table at one moment, for status pages and tests.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct SlotSnapshot {
    /// Tasks that hold slots.
    pub used: u32,
    /// How many may; smaller than `used` after lowering or adopting.
    pub limit: u32,
    /// The nodes worth showing, by name.
    pub nodes: BTreeMap<String, NodeSlots>,
}

/// One node's part of a [`SlotSnapshot`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct NodeSlots {
    /// Tasks that hold a slot of this node.
    pub used: u32,
    /// How many may; smaller than `used` after lowering or adopting.
    pub limit: u32,
    /// The want for which one slot is kept.
    pub reserved_for: Option<u64>,
}
