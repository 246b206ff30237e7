//! How a command can end: exit codes, and errors that know theirs.

use std::process::ExitCode;

use crate::app::AppError;
use crate::cluster::ClusterError;
use crate::db::inspect::QueryError;
use crate::db::{ConnectError, ConnectFault};

/// The exit codes (SPEC section 6), by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Well = 0,
    /// The work failed: a job that was waited for failed or was cancelled, or what was asked is not so.
    WorkFailed = 1,
    /// Arguments, settings or a job file are wrong.
    Usage = 2,
    /// The database cannot be reached, refuses, or has no catalog.
    Database = 3,
    /// A wait timed out.
    TimedOut = 4,
    /// A fault of ours.
    Internal = 70,
    /// Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The catalog refused, or did not answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Arguments or settings are wrong; the text is complete.
    #[error("{0}")]
    Usage(String),
    /// Job files or settings with mistakes: each rendered with its place, one or more lines.
    #[error("{}", .0.join("\n"))]
    Mistakes(Vec<String>),
    /// The catalog refuses what a job file asks for.
    #[error("the database refuses the submission, nothing was stored: {0}")]
    Submission(#[source] QueryError),
    /// No such job or task, as far as the caller may see.
    #[error("{what} {id} does not exist")]
    Unknown {
        /// `job` or `task`.
        what: &'static str,
        /// Its id.
        id: i64,
    },
    /// What was waited for ended otherwise.
    #[error("{what} {id} is {reached} and will not become {desired}")]
    Missed {
        /// `job` or `task`.
        what: &'static str,
        /// Its id.
        id: i64,
        /// The terminal status that it has.
        reached: String,
        /// The status that was waited for.
        desired: String,
    },
    /// The wait's own limit was over.
    #[error("{what} {id} is still {state} after {}", humantime::format_duration(*.timeout))]
    TimedOut {
        /// `job` or `task`.
        what: &'static str,
        /// Its id.
        id: i64,
        /// The status that it has.
        state: String,
        /// The limit.
        timeout: std::time::Duration,
    },
    /// Nobody reads our output any more (`| head`): no fault.
    #[error("standard output is closed")]
    OutputClosed,
    /// The operating system refuses something.
    #[error("{0}")]
    System(std::io::Error),
    /// The service could not start, or had to end.
    #[error(transparent)]
    App(#[from] AppError),
    /// The page cannot be served.
    #[error(transparent)]
    Http(#[from] crate::http::HttpError),
    /// A part of the service died: a bug.
    #[error("the {0} actor died: this is a bug; a normal start recovers")]
    Died(&'static str),
}

impl From<std::io::Error> for CliError {
    fn from(e: std::io::Error) -> Self {
        if e.kind() == std::io::ErrorKind::BrokenPipe { Self::OutputClosed } else { Self::System(e) }
    }
}

impl CliError {
    /// Its exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Connect(e) => match e.fault {
                ConnectFault::BadUrl => Exit::Usage,
                ConnectFault::Tls
                | ConnectFault::UnknownHost
                | ConnectFault::NothingListening
                | ConnectFault::SocketDenied
                | ConnectFault::NoAnswer
                | ConnectFault::Network
                | ConnectFault::PasswordMissing
                | ConnectFault::WrongPassword
                | ConnectFault::HbaRefused
                | ConnectFault::LoginRefused
                | ConnectFault::NoDatabase
                | ConnectFault::TooMany
                | ConnectFault::NotReady
                | ConnectFault::Refused
                | ConnectFault::Protocol => Exit::Database,
            },
            Self::Query(e) => match e {
                QueryError::Lost(_) | QueryError::NoCatalog(_) | QueryError::Denied { .. } => Exit::Database,
                QueryError::Refused { sqlstate, .. } if is_about_the_arguments(sqlstate) => Exit::Usage,
                QueryError::Refused { .. } => Exit::Database,
                QueryError::Unexpected(_) => Exit::Internal,
            },
            Self::Usage(_)
            | Self::Mistakes(_)
            | Self::Submission(_)
            | Self::Http(_)
            | Self::Unknown { .. } => Exit::Usage,
            Self::Missed { .. } => Exit::WorkFailed,
            Self::TimedOut { .. } => Exit::TimedOut,
            Self::OutputClosed => Exit::Well,
            Self::App(_) => Exit::Database,
            Self::System(_) | Self::Died(_) => Exit::Internal,
        }
    }

    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect(e) => Some(e.fault.hint().to_owned()),
            Self::Query(e) | Self::Submission(e) => e.hint(),
            Self::Unknown { what, .. } => {
                Some(format!("`yardmaster {what} list` shows those that you may see"))
            }
            Self::TimedOut { what, .. } => {
                Some(format!("the {what} goes on; wait again, or give a longer --timeout"))
            }
            Self::Http(e) => Some(e.hint().to_owned()),
            Self::Usage(_)
            | Self::Mistakes(_)
            | Self::Missed { .. }
            | Self::OutputClosed
            | Self::System(_)
            | Self::Died(_) => None,
            Self::App(AppError::Cluster(ClusterError::InUse { .. })) => Some(
                "if a service runs there, hand the job to it: `yardmaster job submit FILE --wait`".to_owned(),
            ),
            Self::App(_) => None,
        }
    }
}

/// Does the catalog refuse what was typed (an id that does not exist, an empty command), rather than fail at it?
/// Classes: no data, data exception, constraint, wrong state of the object, unknown name.
fn is_about_the_arguments(sqlstate: &str) -> bool {
    ["02", "22", "23", "55000", "42704", "428C9", "P0002"].iter().any(|class| sqlstate.starts_with(class))
}

/// Sorts the catalog's answer to a submission: a refusal of the content is a mistake in the job file.
pub fn submission(e: QueryError) -> CliError {
    match e {
        QueryError::Refused { .. } => CliError::Submission(e),
        QueryError::Lost(_)
        | QueryError::NoCatalog(_)
        | QueryError::Denied { .. }
        | QueryError::Unexpected(_) => CliError::Query(e),
    }
}
