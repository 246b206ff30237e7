//! Plain data and pure functions: the vocabulary of the yard and everything it decides.
//!
//! Nothing here knows actix, tokio or PostgreSQL. Every enum is matched by name, without `_ =>`, so that a new
//! variant fails to compile wherever somebody must think about it.

pub mod ids;
pub mod lane;
pub mod status;
pub mod task;
pub mod transcript;

pub use ids::{Epoch, JobId, LaneId, TaskId};
pub use lane::{Lane, QueueKey, SessionKey};
pub use status::{JobStatus, TaskStatus};
pub use task::{Backend, ClaimedTask, Ending, Outcome, Settlement};
pub use transcript::{Report, Transcript};
