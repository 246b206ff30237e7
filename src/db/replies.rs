//! What the server said, in memory of a bounded size: written by the tap, read by the session.
//!
//! An attempt is a fixed sequence of *phases*; each ReadyForQuery of the server ends one. Phase 0 is the command.
//! What counts is kept per phase (last tag, error, transaction status), so that how an attempt ended is read from the
//! server's own frames and not from what a client library made of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::output::Sink;
use crate::model::{Report, Transcript};

/// The transaction status that a ReadyForQuery reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    /// No transaction is open.
    Idle,
    /// In a transaction block.
    Open,
    /// In a transaction block that can only roll back.
    Aborted,
}

/// What is known of one phase.
#[derive(Clone, Default, Debug)]
pub struct Phase {
    /// The last command tag.
    pub tag: Option<String>,
    /// Its error.
    pub error: Option<Report>,
    /// Set by the ReadyForQuery that ended it; `None`: it never ended.
    pub status: Option<TransactionStatus>,
}

/// What the server said during one attempt.
#[derive(Debug)]
pub struct Heard {
    /// Ended phases in order, then the one that was under way.
    pub phases: Vec<Phase>,
    /// Notices in order, and the command's tags.
    pub transcript: Transcript,
    /// Did the command end a transaction itself, by its tags?
    pub ended_transaction: bool,
    /// Did the command copy to the client? Its data was dropped.
    pub copied_out: bool,
    skip_tags: usize,
    spoken_phases: usize,
}

impl Heard {
    /// The phase of this number, if it was reached.
    pub fn phase(&self, number: usize) -> Option<&Phase> {
        self.phases.get(number)
    }

    fn in_command(&self) -> bool {
        self.phases.len() == 1
    }

    /// Once something failed or the transaction is gone, what follows (warnings that there is none…) is only the
    /// echo of our own pipeline.
    fn speaks(&self) -> bool {
        let goes_on = |phase: &Phase| phase.error.is_none() && phase.status != Some(TransactionStatus::Idle);
        self.phases.len() <= self.spoken_phases && self.phases.iter().all(goes_on)
    }

    fn current(&mut self) -> Option<&mut Phase> {
        self.phases.last_mut()
    }
}

/// Why no more bytes will come, and what the server said last outside an attempt.
#[derive(Default, Debug)]
pub struct Replies {
    attempt: Option<Heard>,
    /// The last error outside an attempt: of the login, or of an idle session's end.
    pub error: Option<Report>,
    /// The FATAL or PANIC with which the server ended the session.
    pub fatal: Option<Report>,
    /// The server asked for COPY data, which nobody has.
    pub copy_in: bool,
    /// Why the connection ended, as seen on the socket.
    pub end: Option<String>,
    /// Where the command's COPY data goes; without one it is dropped.
    pub sink: Option<Sink>,
}

/// The replies of one connection, shared by its tap and its session.
pub type SharedReplies = Arc<Mutex<Replies>>;

/// Locks them. A panic elsewhere cannot leave them half written in a way that matters, so poison is ignored.
pub fn lock(replies: &SharedReplies) -> MutexGuard<'_, Replies> {
    replies.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replies {
    /// Begins an attempt. `skip_tags`: the tags of our own statements in front of the command, in the same message;
    /// `spoken_phases`: how many phases belong to the message (the reset does not).
    pub fn begin_attempt(&mut self, max_message_bytes: usize, skip_tags: usize, spoken_phases: usize) {
        self.attempt = Some(Heard {
            phases: vec![Phase::default()],
            transcript: Transcript::new(max_message_bytes),
            ended_transaction: false,
            copied_out: false,
            skip_tags,
            spoken_phases,
        });
    }

    /// Ends it and hands out what was heard.
    pub fn end_attempt(&mut self) -> Option<Heard> {
        self.attempt.take()
    }

    /// Is the command of an attempt being answered? Its rows are dropped while they arrive.
    pub fn in_command(&self) -> bool {
        self.attempt.as_ref().is_some_and(Heard::in_command)
    }

    /// Takes a notice.
    pub fn notice(&mut self, report: &Report) {
        if let Some(heard) = self.attempt.as_mut().filter(|heard| heard.speaks()) {
            heard.transcript.notice(report);
        }
    }

    /// Takes an error.
    pub fn error(&mut self, report: Report) {
        if report.is_fatal() {
            self.fatal = Some(report.clone());
        }
        match self.attempt.as_mut().and_then(Heard::current) {
            Some(phase) => phase.error = phase.error.take().or(Some(report)),
            None => self.error = Some(report),
        }
    }

    /// Takes a command tag.
    pub fn tag(&mut self, tag: String) {
        let Some(heard) = &mut self.attempt else { return };
        if heard.in_command() {
            if heard.skip_tags > 0 {
                heard.skip_tags -= 1;
                return;
            }
            heard.ended_transaction |= matches!(tag.as_str(), "COMMIT" | "ROLLBACK" | "PREPARE TRANSACTION");
            heard.transcript.tag(&tag);
        }
        if let Some(phase) = heard.current() {
            phase.tag = Some(tag);
        }
    }

    /// Takes note that the command copies to the client.
    pub fn copy_out(&mut self) {
        if let Some(heard) = &mut self.attempt {
            heard.copied_out = true;
        }
    }

    /// Takes a ReadyForQuery.
    pub fn ready(&mut self, status: TransactionStatus) {
        if let Some(heard) = &mut self.attempt {
            if let Some(phase) = heard.current() {
                phase.status = Some(status);
            }
            heard.phases.push(Phase::default());
        }
    }
}
