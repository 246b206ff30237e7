//! All SQL, sessions and migrations. Knows the model; knows neither actors nor messages.
//!
//! The service's own connections: [`connect`] opens them, [`migrate`] brings the catalog up to date, [`listen`] hears
//! hints, [`catalog`] is the leader's work, sent by [`pipeline`]s.
//!
//! [`node`] is what the service knows of a database where commands run: its records and backends.
//!
//! People's connections: [`client`] opens one and says precisely why it cannot; [`inspect`] is what the command line and
//! the page ask. [`reader`] lends the page its few connections; [`gauge`] has the figures of the whole yard.
//!
//! Owners' sessions, bottom up: [`target`] says where a node is, [`dial`] connects to it, by [`tls`] where wanted; [`report`] reads error fields;
//! [`frames`] cuts the server's byte stream into messages and filters it into [`replies`]; [`tap`] puts that
//! between the socket and tokio-postgres; [`login`] opens a session; [`session`] runs an attempt in it; [`verdict`]
//! says from the replies how it ended; [`cancel`] interrupts it; [`outside`] is what is asked around a command without a
//! transaction. [`record`] is the ticket of the completion record.

pub mod attempt;
pub mod bootstrap;
pub mod cancel;
pub mod catalog;
pub mod client;
mod client_error;
pub mod connect;
pub mod dial;
pub mod error;
pub mod frames;
pub mod gauge;
pub mod inspect;
pub mod listen;
pub mod login;
pub mod migrate;
pub mod node;
pub mod output;
pub mod outside;
mod parameters;
pub mod passwords;
pub mod pipeline;
pub mod reader;
pub mod record;
pub mod replies;
pub mod report;
pub mod scratch;
pub mod session;
pub mod tap;
pub mod target;
pub mod tls;
pub mod verdict;

pub use attempt::{AttemptEnd, AttemptName, Completion, Order};
pub use cancel::Canceller;
pub use client_error::{ConnectError, ConnectFault, Place};
pub use error::DbError;
pub use login::{OpenError, open};
pub use node::{Node, Nodes, Site};
pub use output::{Output, OutputError};
pub use record::TicketKeys;
pub use session::Session;
pub use target::{Target, TargetError};
