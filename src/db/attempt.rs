//! What a session is asked to run, and how that can end.

use std::fmt::Write as _;

use uuid::Uuid;

use crate::model::{ClaimedTask, Epoch, JobId, TaskId};

/// The largest command, in bytes: PostgreSQL's limit for one message (1 GB), less room for what is put in front.
pub const MAX_COMMAND_BYTES: usize = (1 << 30) - 4096;

/// Which attempt this is. Made of numbers only, so that what is derived from it can be written into SQL as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttemptName {
    /// Its job.
    pub job: JobId,
    /// Its task.
    pub task: TaskId,
    /// The number of the attempt, from 1.
    pub attempt: i32,
    /// The task's random key.
    pub task_key: Uuid,
    /// The series of its completion key.
    pub series: i32,
}

impl From<&ClaimedTask> for AttemptName {
    fn from(task: &ClaimedTask) -> Self {
        Self {
            job: task.job,
            task: task.task,
            attempt: task.attempt,
            task_key: task.task_key,
            series: task.series,
        }
    }
}

impl AttemptName {
    /// What `pg_stat_activity` shows: `yardmaster <job>/<task>/<attempt>`.
    pub fn application_name(&self) -> String {
        format!("yardmaster {}/{}/{}", self.job, self.task, self.attempt)
    }

    /// What the command can read as `current_setting('yardmaster.attempt_key')` and pass on to other systems to
    /// recognise a repetition: `<task_key>/<series>/<attempt>`.
    pub fn attempt_key(&self) -> String {
        format!("{}/{}/{}", self.task_key, self.series, self.attempt)
    }

    /// Appends the two as settings of the transaction or, in a session of its own, of the session.
    pub(super) fn write_settings(&self, set: &str, sql: &mut String) {
        let _ = write!(
            sql,
            "{set} application_name = '{}'; {set} yardmaster.attempt_key = '{}'; ",
            self.application_name(),
            self.attempt_key()
        );
    }
}

/// A command to run.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// For which attempt.
    pub name: AttemptName,
    /// The SQL command string.
    pub command: &'a str,
}

impl Order<'_> {
    /// Why the command cannot even be sent, as (SQLSTATE, message).
    pub(super) fn unsendable(&self) -> Option<(&'static str, String)> {
        if self.command.contains('\0') {
            Some((
                "22021",
                "ERROR: the command contains a NUL character, which PostgreSQL cannot take".into(),
            ))
        } else if self.command.len() > MAX_COMMAND_BYTES {
            Some((
                "54000",
                format!(
                    "ERROR: the command has {} bytes; one message to PostgreSQL holds {MAX_COMMAND_BYTES}: split it",
                    self.command.len()
                ),
            ))
        } else {
            None
        }
    }
}

/// What the completion record of a transactional attempt says, beside its name.
#[derive(Clone)]
pub struct Completion {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The leader's random token.
    pub token: Uuid,
    /// See [`super::TicketKeys::ticket`].
    pub ticket: Vec<u8>,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// How an attempt ended, as far as its own session can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttemptEnd {
    /// The server confirmed the commit of a transactional command.
    Committed {
        /// Was a completion record written? If not, the transaction had no xid and wrote nothing.
        recorded: bool,
        /// What PostgreSQL said.
        message: String,
    },
    /// A command outside a transaction succeeded.
    Succeeded {
        /// What PostgreSQL said.
        message: String,
    },
    /// The server confirmed that it failed. A transactional command had no effect.
    Failed {
        /// Five characters.
        sqlstate: String,
        /// What PostgreSQL said, the error last.
        message: String,
    },
    /// Not a byte of the command was sent.
    NotSent {
        /// Why.
        message: String,
    },
    /// Unknown: the caller must read the completion record elsewhere, or revoke it.
    Doubt {
        /// The FATAL or PANIC with which the server ended the session, as (SQLSTATE, text), if it said one.
        fatal: Option<(String, String)>,
        /// What PostgreSQL said, then why there is doubt.
        message: String,
    },
}
