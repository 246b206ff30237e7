//! Wiring: prepares home, starts the actors bottom-up, and returns when they are gone.

pub mod home;
pub mod service;
pub mod systemd;

pub use home::Home;
pub use service::{Ended, Service};
pub use systemd::Systemd;

use crate::cluster::ClusterError;
use crate::db::DbError;

/// Why the service could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The private PostgreSQL.
    #[error("private PostgreSQL: {0}")]
    Cluster(#[from] ClusterError),
    /// The home database.
    #[error(transparent)]
    Db(#[from] DbError),
    /// Listening to signals.
    #[error("listen to signals: {0}")]
    Signals(std::io::Error),
}
