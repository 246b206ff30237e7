//! All SQL, sessions and migrations. Knows the model; knows neither actors nor messages.
//!
//! Owners' sessions, bottom up: [`target`] says where a node is, [`dial`] connects to it; [`report`] reads error fields;
//! [`frames`] cuts the server's byte stream into messages and filters it into [`replies`]; [`tap`] puts that
//! between the socket and tokio-postgres; [`login`] opens a session; [`session`] runs an attempt in it; [`verdict`]
//! says from the replies how it ended; [`cancel`] interrupts it. [`record`] is the ticket of the completion record.

pub mod attempt;
pub mod cancel;
pub mod dial;
pub mod frames;
pub mod login;
pub mod record;
pub mod replies;
pub mod report;
pub mod session;
pub mod tap;
pub mod target;
pub mod verdict;

pub use attempt::{AttemptEnd, AttemptName, Completion, Order};
pub use cancel::Canceller;
pub use login::{OpenError, open};
pub use record::TicketKeys;
pub use session::Session;
pub use target::{Target, TargetError};
