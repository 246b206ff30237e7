//! Nodes where nothing new is started: they are down, or somebody drains them.

use std::collections::BTreeSet;

use crate::model::Lane;

/// The closed nodes, by name.
#[derive(Debug, Default)]
pub(super) struct Closed {
    down: BTreeSet<String>,
    draining: BTreeSet<String>,
}

impl Closed {
    /// May a task of this lane start? It needs every node that it runs on or burdens.
    pub(super) fn takes(&self, lane: &Lane) -> bool {
        let closed = |node: &String| self.down.contains(node) || self.draining.contains(node);
        !lane.nodes.iter().any(closed) && !closed(&lane.session.node)
    }

    /// A node was probed. Says whether that changes anything.
    pub(super) fn heard(&mut self, node: String, well: bool) -> bool {
        if well { self.down.remove(&node) } else { self.down.insert(node) }
    }

    /// These are drained now. Says whether that changes anything.
    pub(super) fn drained(&mut self, nodes: Vec<String>) -> bool {
        let nodes: BTreeSet<String> = nodes.into_iter().collect();
        let changed = nodes != self.draining;
        self.draining = nodes;
        changed
    }
}
