//! Waking, starting, cancelling, ending.

use std::time::Duration;

use actix::Message;

use super::slots::SlotPermit;
use crate::model::{Backend, Outcome, SessionKey, TaskId};

/// Something may have changed: a hint without a payload. Any number of them are as good as one.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct Wake;

/// To the Waker: send a Wake after this long, for the next delayed task. A later one replaces an earlier one.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct WakeAt(pub Option<Duration>);

/// To an Executor: cancel is requested; ask the backend to stop, and end it when the grace of its assignment is over.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct CancelTask;

/// To an Executor: the service is leaving; end the attempt now, as an interruption.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct InterruptTask;

/// An attempt ended, its slots are free and its backend is idle or gone. Exactly one per Executor.
#[derive(Message, Clone, PartialEq, Debug)]
#[rtype(result = "()")]
pub struct TaskFinished {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// How it ended.
    pub outcome: Outcome,
    /// The backend that ran it, if any.
    pub backend: Option<Backend>,
}

/// The Executor let go of an attempt that goes on without it: whoever holds office next finds out what became of it.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct TaskLeft {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: i32,
}

/// An Executor ended without a word (a panic): the attempt is in doubt and its slots are still taken.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Crashed {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// Its slots, to be held until the backend is known gone.
    pub permit: Option<SlotPermit>,
}

/// To an Executor: another leader decides about the attempt; let go of it and say nothing.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct AbandonTask;

/// Sessions of this key may be opened again: the back-off after a failure is over.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct SessionsRetried(pub SessionKey);
