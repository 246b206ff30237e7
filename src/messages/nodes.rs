//! How nodes are.

use std::collections::BTreeMap;

use actix::Message;

/// A node was probed and found down, for this reason, or well. Told when it changes.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct NodeHeard {
    /// The node.
    pub node: String,
    /// Why it is down; `None` when it is well.
    pub fault: Option<String>,
}

/// To the NodeWatch: something went wrong there; probe it now.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct Suspect(pub String);

/// To the NodeWatch: other nodes are declared than before.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct NodesDeclared;

/// Home names these nodes, by name with their urls. Told again and again, and before the office is taken.
#[derive(Message, Clone, PartialEq, Eq)]
#[rtype(result = "()")]
pub struct NodesFound(pub BTreeMap<String, String>);

impl std::fmt::Debug for NodesFound {
    /// Without the urls, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// To the Ledger: write on the nodes how they are.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct PublishHealth(pub Vec<NodeHeard>);
