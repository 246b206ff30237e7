//! The life of a task, as a table: its status and what happened give its next status, or a refusal that says why.
//!
//! ```text
//! blocked ─ all dependencies done ─▶ runnable ─ claimed ─▶ running ─▶ done
//!    │                                ▲  ▲                   ├─ failed, retries left ─▶ runnable
//!    │                                │  └─ interrupted ─────┤─ failed for good ─▶ error
//!    └─ a dependency ended badly ─▶ unscheduled              └─ cancel requested ─▶ cancelling ─▶ cancelled
//! ```
//! Asked before a change is written, and by tests that watch what was. A refusal is an answer, not a fault: a late
//! writer lost a race, and what it knows no longer matters. Invariants:
//! - `done`, `error`, `unscheduled` and `cancelled` are left by a retry request only, `done` never;
//! - only `running` and `cancelling` hold an attempt, and its end takes the task out of them;
//! - a cancelled attempt whose effects are committed is `done`: what the tables say is what the status says;
//! - asking for a cancel again, or too late, is no mistake and changes nothing.

use std::fmt;

use super::{Ending, TaskStatus};

/// What happens to a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// All its dependencies are done (also: it has none, and is admitted).
    DependenciesDone,
    /// A dependency ended badly, or its job failed before the task was admitted.
    DependencyEndedBadly,
    /// It got another dependency, which is not done. Raised only for a task without an attempt.
    DependencyAdded,
    /// Its row or one of its edges was refused at admission. Raised only for a task without an attempt.
    AdmissionRefused,
    /// An attempt was claimed.
    Claimed,
    /// The attempt's effects are committed.
    Committed,
    /// The attempt failed; retries are left.
    FailedRetry,
    /// The attempt failed for good: the last retry, a permanent SQLSTATE, or one interruption too many.
    FailedForGood,
    /// The attempt was interrupted, and its key revoked or its command never sent.
    Interrupted,
    /// Somebody wants it cancelled.
    CancelRequested,
    /// The cancelled attempt is known to have left no effect.
    AttemptRolledBack,
    /// Somebody wants it tried again.
    RetryRequested {
        /// Is a dependency not done, so that it waits again?
        waits: bool,
    },
}

impl Event {
    /// Every event.
    pub const ALL: [Event; 13] = [
        Event::DependenciesDone,
        Event::DependencyEndedBadly,
        Event::DependencyAdded,
        Event::AdmissionRefused,
        Event::Claimed,
        Event::Committed,
        Event::FailedRetry,
        Event::FailedForGood,
        Event::Interrupted,
        Event::CancelRequested,
        Event::AttemptRolledBack,
        Event::RetryRequested { waits: true },
        Event::RetryRequested { waits: false },
    ];
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::DependenciesDone => "dependencies done",
            Event::DependencyEndedBadly => "dependency ended badly",
            Event::DependencyAdded => "dependency added",
            Event::AdmissionRefused => "admission refused",
            Event::Claimed => "claimed",
            Event::Committed => "committed",
            Event::FailedRetry => "failed, to be retried",
            Event::FailedForGood => "failed for good",
            Event::Interrupted => "interrupted",
            Event::CancelRequested => "cancel requested",
            Event::AttemptRolledBack => "attempt rolled back",
            Event::RetryRequested { waits: true } => "retry requested, to wait",
            Event::RetryRequested { waits: false } => "retry requested",
        })
    }
}

impl From<Ending> for Event {
    /// The ending of an attempt, as an event of its task.
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Done => Event::Committed,
            Ending::Error => Event::FailedForGood,
            Ending::Retry(_) => Event::FailedRetry,
            Ending::Again(_) => Event::Interrupted,
        }
    }
}

/// An event that does not apply to a task in this status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{event}\" does not apply to a task that is {status}: {reason}")]
pub struct Refusal {
    /// The status, which stays.
    pub status: TaskStatus,
    /// What was to happen.
    pub event: Event,
    /// Why it may not.
    pub reason: Reason,
}

/// Why an event does not apply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Reason {
    /// The task has ended.
    #[error("it has ended")]
    Ended,
    /// No attempt is alive that could be meant.
    #[error("no attempt of it is alive")]
    NoAttempt,
    /// An attempt is alive already.
    #[error("an attempt of it is alive")]
    AttemptAlive,
    /// It still waits for dependencies.
    #[error("it waits for dependencies")]
    Waiting,
    /// It waits for no dependency any more.
    #[error("all its dependencies are done")]
    NotWaiting,
    /// Nobody asked for a cancel, so a rollback is a failure or an interruption.
    #[error("its cancel was not requested")]
    NotCancelled,
    /// It is done, and stays done.
    #[error("what is done is never run again")]
    Done,
    /// It has not ended, so it can still run by itself.
    #[error("it has not ended")]
    NotEnded,
}

/// Returns the status that follows, which may be the same one.
///
/// # Errors
/// Says why the event does not apply; the status then stays.
pub fn next(status: TaskStatus, event: Event) -> Result<TaskStatus, Refusal> {
    use TaskStatus::{Blocked, Cancelled, Cancelling, Done, Error, Runnable, Running, Unscheduled};
    let answer = match (status, event) {
        (Blocked, Event::DependenciesDone) => Ok(Runnable),
        (Blocked, Event::DependencyEndedBadly) => Ok(Unscheduled),
        (Blocked | Runnable, Event::DependencyAdded) => Ok(Blocked),
        (Blocked | Runnable, Event::AdmissionRefused) => Ok(Error),
        (Blocked, Event::Claimed) => Err(Reason::Waiting),
        (Runnable, Event::DependenciesDone | Event::DependencyEndedBadly) => Err(Reason::NotWaiting),
        (Runnable, Event::Claimed) => Ok(Running),

        (Running, Event::Committed) => Ok(Done),
        (Running, Event::FailedRetry | Event::Interrupted) => Ok(Runnable),
        (Running, Event::FailedForGood) => Ok(Error),
        (Running, Event::AttemptRolledBack) => Err(Reason::NotCancelled),
        (Cancelling, Event::Committed) => Ok(Done),
        (
            Cancelling,
            Event::FailedRetry | Event::FailedForGood | Event::Interrupted | Event::AttemptRolledBack,
        ) => Ok(Cancelled),
        (Running | Cancelling, Event::Claimed | Event::DependencyAdded | Event::AdmissionRefused) => {
            Err(Reason::AttemptAlive)
        }
        (Running | Cancelling, Event::DependenciesDone | Event::DependencyEndedBadly) => {
            Err(Reason::NotWaiting)
        }
        (
            Blocked | Runnable,
            Event::Committed
            | Event::FailedRetry
            | Event::FailedForGood
            | Event::Interrupted
            | Event::AttemptRolledBack,
        ) => Err(Reason::NoAttempt),

        (Blocked | Runnable, Event::CancelRequested) => Ok(Cancelled),
        (Running | Cancelling, Event::CancelRequested) => Ok(Cancelling),
        (Done | Error | Unscheduled | Cancelled, Event::CancelRequested) => Ok(status),

        (Error | Unscheduled | Cancelled, Event::RetryRequested { waits: true }) => Ok(Blocked),
        (Error | Unscheduled | Cancelled, Event::RetryRequested { waits: false }) => Ok(Runnable),
        (Done, Event::RetryRequested { .. }) => Err(Reason::Done),
        (Blocked | Runnable | Running | Cancelling, Event::RetryRequested { .. }) => Err(Reason::NotEnded),
        (
            Done | Error | Unscheduled | Cancelled,
            Event::DependenciesDone
            | Event::DependencyEndedBadly
            | Event::DependencyAdded
            | Event::AdmissionRefused
            | Event::Claimed
            | Event::Committed
            | Event::FailedRetry
            | Event::FailedForGood
            | Event::Interrupted
            | Event::AttemptRolledBack,
        ) => Err(Reason::Ended),
    };
    answer.map_err(|reason| Refusal { status, event, reason })
}
