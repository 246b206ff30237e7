//! Looking at the yard from outside: for status pages and for tests.

use actix::Message;

use crate::model::yard::Mode;
use crate::model::{Epoch, TaskId};

/// How does the yard stand?
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Snapshot")]
pub struct GetSnapshot;

/// How the yard stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The epoch, if this process decides.
    pub epoch: Option<Epoch>,
    /// What the yard is up to.
    pub mode: Mode,
    /// The tasks whose attempts are alive here, sorted.
    pub running: Vec<TaskId>,
    /// Settlements that wait for the next turn.
    pub unsettled: usize,
    /// Sessions that wait for work.
    pub idle_sessions: usize,
}
