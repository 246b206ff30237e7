//! Lanes: the unit in which dispatch thinks.

use super::{LaneId, TaskId};

/// Where a session is logged in, and as whom. Sessions are shared within one key only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionKey {
    /// The node's name; empty for home.
    pub node: String,
    /// The login role.
    pub owner: String,
    /// Its oid at home: a role that takes a dropped one's name is another.
    pub owner_oid: u32,
}

/// Everything about a task that matters to dispatch: where it runs, as whom, and whose slots it takes.
///
/// All ready tasks of one lane are interchangeable but for their order, so slots and sessions are found per
/// lane, and a crowd in one lane is never walked through for the sake of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Its id in the catalog.
    pub id: LaneId,
    /// Where its tasks run and as whom.
    pub session: SessionKey,
    /// The distinct nodes whose slots a task takes, sorted; may be empty (only the global limit counts then).
    pub nodes: Vec<String>,
}

/// The order of dispatch: higher priority first, then the smaller id. `rank` is minus the priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueKey {
    /// Minus the task's priority.
    pub rank: i32,
    /// The task.
    pub task: TaskId,
}
