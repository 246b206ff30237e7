//! Plain data and pure functions: the vocabulary of the yard and everything it decides.
//!
//! Nothing here knows actix, tokio or PostgreSQL. Every enum is matched by name, without `_ =>`, so that a new
//! variant fails to compile wherever somebody must think about it.

pub mod drawing;
pub mod graph;
pub mod health;
pub mod ids;
pub mod lane;
pub mod plan;
pub mod retry;
pub mod rollup;
pub mod schedule;
pub mod slots;
pub mod status;
pub mod task;
pub mod text;
pub mod timeline;
pub mod tracking;
pub mod transcript;
pub mod transition;
pub mod turn;
pub mod yard;

pub use health::Health;
pub use ids::{Epoch, JobId, LaneId, TaskId};
pub use lane::{Lane, QueueKey, SessionKey};
pub use retry::RetryPolicy;
pub use rollup::job_status;
pub use slots::desk::{Crossing, SlotDesk};
pub use slots::{Full, Limits, SlotGrant, SlotTable};
pub use status::{JobStatus, TaskStatus};
pub use task::{Backend, ClaimedTask, Ending, Outcome, Settlement, is_output_name};
pub use transcript::{Report, Transcript};
pub use turn::{LiveAttempt, Offer, Turn, TurnReply, Window, WindowRequest};
