//! Everything that speaks to PostgreSQL: all SQL, all connections.

pub mod client;
mod client_error;
pub mod inspect;

pub use client_error::{ConnectError, ConnectFault, Place};
