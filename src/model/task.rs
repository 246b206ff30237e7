//! A claimed task, the outcome of its attempt, and the settlement that follows from it.

use std::time::Duration;

use uuid::Uuid;

use super::{JobId, LaneId, TaskId};

/// Can a task's output file be called so? No name that leads out of its folder can, nor one that is hidden.
pub fn is_output_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    (1..=100).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with(['.', '-'])
}

/// A server process, identified beyond reuse of its pid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Backend {
    /// Its process id on the server.
    pub pid: i32,
    /// When it started, by the server's clock.
    pub start: jiff::Timestamp,
}

/// A task of which this process holds the live attempt. Only a claim makes one.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimedTask {
    /// Its job.
    pub job: JobId,
    /// The task.
    pub task: TaskId,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// The series of its completion key; grows only after `revoked` stands under the old one.
    pub series: i32,
    /// The task's random key.
    pub task_key: Uuid,
    /// The lane it was claimed from.
    pub lane: LaneId,
    /// The SQL command string.
    pub command: String,
    /// Its retry policy as given with the task and job (JSON of the job file's `retry`), if any.
    pub retry: Option<serde_json::Value>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// Forced into or out of a transaction; `None`: recognised from the command.
    pub transactional: Option<bool>,
    /// A query, for commands outside a transaction: true when what the command does is done already.
    pub verify: Option<String>,
    /// What takes back what an earlier attempt outside a transaction may have left.
    pub undo: Option<String>,
    /// Failed attempts so far.
    pub retry_count: i32,
    /// Interrupted attempts so far.
    pub interruptions: i32,
    /// The server process that runs the attempt.
    pub backend: Option<Backend>,
    /// Why the owner, as the catalog finds it at the claim, may not run tasks any more: dropped, renamed, not allowed
    /// to log in or to connect. A session that is still open says nothing about that.
    pub owner_trouble: Option<String>,
    /// The site of that server process; `None` is home.
    pub site: Option<Uuid>,
    /// How long it could have run before it was claimed: since its submission, its `not_before` or the end of its last
    /// dependency, whichever was last. Of first attempts only.
    pub waited: Option<Duration>,
    /// Does its job have a scratch schema on each node?
    pub scratch: bool,
    /// The file in the job's folder that what it copies is streamed to.
    pub output: Option<String>,
}

/// How an attempt ended, as its Executor learned it. Data, not an error.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The command succeeded; its effects, if any, are committed.
    Done {
        /// What PostgreSQL said.
        message: String,
        /// Should the news be lost, can it be had again: from the completion record, or by running again what wrote
        /// nothing? Otherwise it must reach the disk.
        recorded: bool,
    },
    /// The command failed and nothing of it was committed (or it ran outside a transaction and failed).
    Failed {
        /// The SQLSTATE, five characters.
        sqlstate: String,
        /// What PostgreSQL said, the error last.
        message: String,
        /// Was `revoked` inserted under the attempt's key, so that the next attempt needs a new series?
        revoked: bool,
    },
    /// The attempt was ended from outside, and its key was revoked (or its command never sent): it never happened.
    Interrupted {
        /// Was `revoked` inserted under the attempt's key, so that the next attempt needs a new series?
        revoked: bool,
        /// Why, for people.
        message: String,
    },
    /// The attempt was prefetched and given back before a byte of it was sent: it leaves no trace.
    Withdrawn,
}

impl Outcome {
    /// Its name, for figures.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Done { .. } => "done",
            Outcome::Failed { .. } => "failed",
            Outcome::Interrupted { .. } => "interrupted",
            Outcome::Withdrawn => "withdrawn",
        }
    }
}

/// What becomes of the task when an attempt has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// `done`.
    Done,
    /// Failed for good: `error`.
    Error,
    /// Failed, retries left: `runnable` after the delay.
    Retry(Duration),
    /// Interrupted or withdrawn: `runnable` after the delay (zero at first).
    Again(Duration),
}

/// What one ended attempt does to the catalog. A task that is `cancelling` becomes `cancelled` whatever the
/// ending says, unless it is done.
#[derive(Clone, PartialEq, Debug)]
pub struct Settlement {
    /// The job.
    pub job: JobId,
    /// The task.
    pub task: TaskId,
    /// The attempt that ended.
    pub attempt: i32,
    /// Where it ran; empty for home.
    pub node: String,
    /// The backend that ran it.
    pub pid: Option<i32>,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it ran, of one that was prefetched: it began later than it was claimed.
    pub ran: Option<Duration>,
    /// What becomes of the task.
    pub ending: Ending,
}
