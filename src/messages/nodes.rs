//! How nodes are.

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

/// To the Ledger: write on the nodes how they are.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct PublishHealth(pub Vec<NodeHeard>);
