//! What the Ledger, the one actor that reads and writes the catalog, is asked and tells.

use std::path::PathBuf;
use std::time::Duration;

use actix::Message;

use crate::model::{Backend, ClaimedTask, Epoch, JobId, LiveAttempt, TaskId, Turn, TurnReply};
use crate::settings::Settings;

/// Take a turn. Turns do not overlap.
#[derive(Message, Debug)]
#[rtype(result = "Result<TurnReply, TurnError>")]
pub struct RunTurn {
    /// The turn.
    pub turn: Turn,
    /// The term it is meant for, from [`TookOffice`]. In a later one it is refused: whoever reads the catalog on taking
    /// office must know that nothing of an earlier term can still happen.
    pub term: u64,
}

/// Why a turn came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TurnError {
    /// The server refused it as a whole; nothing happened.
    #[error("the turn was refused: {0}")]
    Refused(String),
    /// The connection was lost meanwhile: it may have happened. A [`TookOffice`] or [`LostOffice`] follows.
    #[error("the turn is in doubt: {0}")]
    Doubt(String),
    /// No office is held, or another term of it than the turn was meant for.
    #[error("no office is held in the turn's term")]
    NoOffice,
}

/// This process decides from now on, or again after the connection was lost. Lists what the catalog holds alive.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct TookOffice {
    /// The epoch.
    pub epoch: Epoch,
    /// Counts how often this process took or resumed office.
    pub term: u64,
    /// The process's random token.
    pub token: uuid::Uuid,
    /// True when the epoch is the one held before: attempts under way go on.
    pub resumed: bool,
    /// What the catalog holds to be alive.
    pub live: Vec<LiveAttempt>,
    /// Nobody may know the ticket keys; they make the tickets of this home.
    pub tickets: TicketMaker,
}

type MakeTicket = dyn Fn(&ClaimedTask, &str) -> Vec<u8> + Send + Sync;

/// Makes the ticket of an attempt that runs at home, from the claim and the owner's name.
#[derive(Clone)]
pub struct TicketMaker(pub std::sync::Arc<MakeTicket>);

impl std::fmt::Debug for TicketMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketMaker(…)")
    }
}

/// The office is over: another process decides, and what runs here is no longer ours.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct LostOffice;

/// Find out what became of an attempt whose end nobody witnessed. Answers when it is certain, however long that takes.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Resolved")]
pub struct Resolve {
    /// The attempt.
    pub task: ClaimedTask,
    /// The node it was claimed for; empty for home.
    pub node: String,
    /// How long its backend may go on before it is ended: zero for a transactional command.
    pub patience: Duration,
}

/// The answer to [`Resolve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// Its effects are committed.
    Committed,
    /// Its backend is gone and `revoked` stands under its key: a transactional attempt never happened.
    Revoked {
        /// The start of the node's server, to tell a restart from somebody's `pg_terminate_backend`.
        server_started: Option<jiff::Timestamp>,
    },
    /// The office is over; another leader decides.
    Unknown,
}

/// End a backend of an attempt, if it is still the one that is meant.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct EndBackend {
    /// The backend.
    pub backend: Backend,
    /// The node of the attempt.
    pub node: String,
    /// The database in which it runs; `None` is home.
    pub site: Option<uuid::Uuid>,
}

/// Record that an attempt is about to use its job's scratch schema, and name it.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "Result<String, String>")]
pub struct UseScratch {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// The node of the attempt; empty for home.
    pub node: String,
    /// The database in which it runs; `None` is home.
    pub site: Option<uuid::Uuid>,
}

/// Make the folder for a job's output files; answers it, and the largest file in bytes.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "Result<(PathBuf, u64), String>")]
pub struct PrepareOutput(pub JobId);

/// Make sure that whatever was committed at home before is on its disk: the claim of a command whose effects no crash
/// takes back. Answers whether it is.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "bool")]
pub struct Flush;

/// Ask for the cancellation of jobs, as `job_cancel` does. Answers whether the requests were committed.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "bool")]
pub struct RequestCancel(pub Vec<JobId>);

/// Publish nodes, limits and settings in the catalog.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Publish(pub Box<Settings>);

/// Give up the office and close; answers when the lock is free.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct Release;
