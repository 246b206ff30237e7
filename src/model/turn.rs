//! A turn: one transaction of the leader, sent whole, and what it tells.
//!
//! A turn carries out requests, admits new rows, settles ended attempts, releases or unschedules their dependants,
//! rolls jobs up, and claims for the sessions that are free. A *look* before it (one read-only statement) says
//! what is new since the last look and fixes the snapshot up to which the turn admits.

use std::time::Duration;

use uuid::Uuid;

use super::{Backend, ClaimedTask, JobId, JobStatus, Lane, LaneId, QueueKey, Settlement, TaskId};

/// A ready session offered to a lane: the claim records its backend before a byte of the command is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The lane to claim from.
    pub lane: LaneId,
    /// The session's backend; `None` when the owner cannot log in, and the claimed task is to fail with that reason.
    pub backend: Option<Backend>,
    /// The site of the backend; `None` is home.
    pub site: Option<Uuid>,
    /// How many tasks may be prefetched behind the first: claimed for the same session, to run one after another.
    pub prefetch: u32,
}

/// Asks for the next ready tasks of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowRequest {
    /// The lane.
    pub lane: LaneId,
    /// Only tasks after this one; `None`: from the start.
    pub after: Option<QueueKey>,
    /// At most this many.
    pub limit: u32,
}

/// The next ready tasks of a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// The lane.
    pub lane: LaneId,
    /// In order of dispatch.
    pub keys: Vec<QueueKey>,
    /// Were there more than the limit?
    pub more: bool,
}

/// What the Monitor wants done in one transaction.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Turn {
    /// Look for new rows and requests first.
    pub look: bool,
    /// Make delayed tasks ready whose time has come.
    pub promote: bool,
    /// Ended attempts.
    pub settlements: Vec<Settlement>,
    /// Free sessions, each with a slot.
    pub offers: Vec<Offer>,
    /// Where the tasks of an offer's lane are known to begin: nothing ready precedes it. Parallel to `offers`.
    pub floors: Vec<Option<QueueKey>>,
    /// Prefetched tasks, with their attempts, that have begun and take long: from now on they are shown as running.
    pub begun: Vec<(TaskId, i32)>,
    /// Lanes whose next tasks should be told.
    pub windows: Vec<WindowRequest>,
}

impl Turn {
    /// Does it ask for nothing but what a look finds?
    pub fn only_looks(&self) -> bool {
        self.look
            && self.settlements.is_empty()
            && self.offers.is_empty()
            && self.begun.is_empty()
            && self.windows.is_empty()
    }
}

/// What came of a turn.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TurnReply {
    /// The claimed tasks, each with the index of its offer; those of one offer in their order.
    pub claimed: Vec<(usize, ClaimedTask)>,
    /// Lanes in which tasks became ready, each with the first of them.
    pub readied: Vec<(LaneId, QueueKey)>,
    /// Answers to the window requests.
    pub windows: Vec<Window>,
    /// Lanes made since the last turn.
    pub lanes: Vec<Lane>,
    /// Live attempts that were asked to be cancelled.
    pub cancelling: Vec<TaskId>,
    /// Jobs that were paused: nothing of theirs is to start.
    pub paused: Vec<JobId>,
    /// Jobs whose state changed, with the new one.
    pub jobs: Vec<(JobId, JobStatus)>,
    /// The nodes that somebody drains, if that may have changed.
    pub draining: Option<Vec<String>>,
    /// How long until the next delayed task is due.
    pub next_due: Option<Duration>,
    /// There is more to admit: another turn with `look` should follow at once.
    pub more_to_admit: bool,
}

/// An attempt that the catalog holds to be alive. Recovery is to resolve those that nobody runs.
#[derive(Clone, PartialEq, Debug)]
pub struct LiveAttempt {
    /// The claim as it was made.
    pub claimed: ClaimedTask,
    /// The node it was claimed for; empty for home.
    pub node: String,
    /// The nodes whose slots it holds.
    pub nodes: Vec<String>,
    /// Was cancel requested meanwhile?
    pub cancelling: bool,
}
