//! All SQL of people's questions: looking at jobs and tasks, and steering them by request.
//!
//! It reads the interface views only (never the tables behind them), with the rights of whoever typed the
//! command, so it shows exactly what that person may see (the page asks with those of the service). Every statement is unnamed and sent with typed
//! parameters: one round trip, planned for the very values. Called by `cli` and `http`.

pub mod doctor;
pub mod jobs;
pub mod nodes;
pub mod picture;
pub mod plan;
pub mod progress;
pub mod schedules;
pub mod scratch;
pub mod service;
pub mod steer;
pub mod tasks;

use serde::Serializer;

/// A question that PostgreSQL did not answer as hoped.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The connection ended.
    #[error("lost the connection to PostgreSQL: {0}")]
    Lost(String),
    /// The schema is not there, or too old for this program.
    #[error("the database has no Yardmaster catalog that fits this version: {0}")]
    NoCatalog(String),
    /// Rights are missing.
    #[error("not permitted: {message}")]
    Denied {
        /// PostgreSQL's message, or the catalog's.
        message: String,
        /// What would mend it, if that is known.
        hint: Option<String>,
    },
    /// The catalog's own rules refuse it.
    #[error("{message}")]
    Refused {
        /// Five characters.
        sqlstate: String,
        /// PostgreSQL's message, with its detail if any.
        message: String,
        /// PostgreSQL's hint.
        hint: Option<String>,
    },
    /// An answer that does not have the expected shape: a fault of ours.
    #[error("unexpected answer from the catalog: {0}")]
    Unexpected(String),
}

impl QueryError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Lost(_) => {
                Some("check the server, then repeat the command; jobs go on without it".to_owned())
            }
            Self::NoCatalog(_) => Some("run `yardmaster migrate`, or start the service once".to_owned()),
            Self::Denied { hint, .. } | Self::Refused { hint, .. } => hint.clone(),
            Self::Unexpected(_) => None,
        }
    }
}

impl From<tokio_postgres::Error> for QueryError {
    fn from(e: tokio_postgres::Error) -> Self {
        let Some(refusal) = e.as_db_error() else {
            let source = std::error::Error::source(&e);
            return if e.is_closed() || source.is_some_and(|s| s.is::<std::io::Error>()) {
                Self::Lost(source.map_or_else(|| e.to_string(), ToString::to_string))
            } else {
                Self::Unexpected(source.map_or_else(|| e.to_string(), |s| format!("{e}: {s}")))
            };
        };
        let message = refusal.message().to_owned();
        match refusal.code().code() {
            // Undefined schema, table, function and column: the names we use are all the catalog's.
            "3F000" | "42P01" | "42883" | "42703" => Self::NoCatalog(message),
            "42501" => {
                // PostgreSQL itself refuses a function, table or schema of ours: a membership is missing. The catalog's
                // own refusals come with the hint that fits.
                let is_grant = message.starts_with("permission denied for");
                let join = "an administrator can GRANT yardmaster_user TO your role (yardmaster_monitor: to look only)";
                let hint = refusal.hint().map(str::to_owned).or_else(|| is_grant.then(|| join.to_owned()));
                Self::Denied { message, hint }
            }
            code if code.starts_with("57P") || code.starts_with("08") => Self::Lost(message),
            code => Self::Refused {
                sqlstate: code.to_owned(),
                message: match refusal.detail() {
                    Some(detail) => format!("{message}\n  {detail}"),
                    None => message,
                },
                hint: refusal.hint().map(str::to_owned),
            },
        }
    }
}

/// Reads a status from its label.
fn status<S: std::str::FromStr<Err: std::fmt::Display>>(label: &str) -> Result<S, QueryError> {
    label.parse().map_err(|e: S::Err| QueryError::Unexpected(e.to_string()))
}

/// Ids in JSON are text: JavaScript rounds numbers above 2^53.
fn id_text<T: std::fmt::Display, S: Serializer>(id: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// The same for lists.
fn ids_text<T: std::fmt::Display, S: Serializer>(ids: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ids.iter().map(ToString::to_string))
}
