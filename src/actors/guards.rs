//! Endings that cannot be forgotten.

use actix::Recipient;

use crate::messages::{Crashed, SlotPermit};
use crate::model::TaskId;

/// Reports an Executor that ends without a word, and keeps its slots taken until somebody has found out what its
/// backend does.
#[derive(Debug)]
pub struct OutcomeGuard {
    task: TaskId,
    attempt: i32,
    permit: Option<SlotPermit>,
    monitor: Option<Recipient<Crashed>>,
}

impl OutcomeGuard {
    /// Arms the guard.
    pub fn new(task: TaskId, attempt: i32, permit: SlotPermit, monitor: Recipient<Crashed>) -> OutcomeGuard {
        OutcomeGuard { task, attempt, permit: Some(permit), monitor: Some(monitor) }
    }

    /// The attempt ended in order, and its slots go to the next of its line: says nothing.
    pub fn hand_over(mut self) -> Option<SlotPermit> {
        self.monitor = None;
        self.permit.take()
    }

    /// The attempt ended in order: gives the slots back and says nothing.
    pub fn disarm(mut self) {
        self.monitor = None;
    }
}

impl Drop for OutcomeGuard {
    fn drop(&mut self) {
        // May run while unwinding: send, never insist.
        if let Some(monitor) = self.monitor.take() {
            monitor.do_send(Crashed { task: self.task, attempt: self.attempt, permit: self.permit.take() });
        }
    }
}
