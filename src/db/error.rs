//! What can go wrong between the service and a database, and what a SQLSTATE means for us.

use tokio_postgres::error::SqlState;

/// A failure of the service's own work on a database (never of a task's command: that is an outcome).
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The database URL cannot be used.
    #[error("database URL: {0}")]
    Url(String),
    /// Nothing answered, or the connection ended before it was usable.
    #[error("connect to {place}: {reason}")]
    Unreachable {
        /// Host, port and user; never a password.
        place: String,
        /// What the system or the server said.
        reason: String,
    },
    /// The server has no room for another connection (class 53).
    #[error("connect to {place}: {reason}")]
    NoRoom {
        /// Host, port and user.
        place: String,
        /// What the server said.
        reason: String,
    },
    /// The server answered with an error.
    #[error("{context}: {}", super::connect::describe(source))]
    Postgres {
        /// What was being done.
        context: &'static str,
        /// The driver's error, with the server's text.
        source: tokio_postgres::Error,
    },
    /// No answer in time; the connection is not to be used any more.
    #[error("{context}: no answer within {seconds} s")]
    Timeout {
        /// What was being done.
        context: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Another leader has taken office.
    #[error("epoch {0} is over: another leader has taken office")]
    Deposed(i64),
    /// Somebody is in the way, or the work was cut short; it will pass.
    #[error("{0}")]
    Busy(String),
    /// A key was revoked by another leader whose epoch is not below ours: one of the two has lost its home.
    #[error("{0}")]
    TwoHomes(String),
    /// The server or catalog is not one we can work with.
    #[error("{0}")]
    Unsuitable(String),
}

/// SQLSTATE of [`crate::db`]'s fence: the epoch is over.
pub const EPOCH_IS_OVER: &str = "YM003";

impl DbError {
    /// Wraps a driver error with what was being done.
    pub fn postgres(context: &'static str) -> impl FnOnce(tokio_postgres::Error) -> DbError {
        move |source| match source.code().map(SqlState::code) {
            Some(EPOCH_IS_OVER) => DbError::Deposed(-1),
            _ => DbError::Postgres { context, source },
        }
    }

    /// The server's SQLSTATE, if it gave one.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            DbError::Postgres { source, .. } => source.code().map(SqlState::code),
            DbError::Deposed(_) => Some(EPOCH_IS_OVER),
            DbError::Url(_)
            | DbError::Unreachable { .. }
            | DbError::NoRoom { .. }
            | DbError::Timeout { .. }
            | DbError::Busy(_)
            | DbError::TwoHomes(_)
            | DbError::Unsuitable(_) => None,
        }
    }

    /// Will it pass by itself, so that trying again for ever is right?
    pub fn is_transient(&self) -> bool {
        match self {
            DbError::Unreachable { .. }
            | DbError::NoRoom { .. }
            | DbError::Timeout { .. }
            | DbError::Busy(_) => true,
            DbError::Postgres { source, .. } => match source.code().map(SqlState::code) {
                // Read-only for a while (25006), resources (53), operator intervention (57), serialization and
                // deadlock (40), a lock not available (55P03), connection exceptions (08).
                Some(code) => {
                    code == "25006" || code == "55P03" || ["53", "57", "40", "08"].contains(&&code[..2])
                }
                None => true,
            },
            DbError::Url(_) | DbError::Deposed(_) | DbError::TwoHomes(_) | DbError::Unsuitable(_) => false,
        }
    }
}
