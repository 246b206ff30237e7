//! The catalog as the leader sees it: one query family a file, and the turn that strings them into a transaction.
//!
//! The leader is the only writer of the `*_state` tables, so its statements need no locks against one another; each
//! transaction begins with the fence, which refuses it when the epoch is over. Rows that users insert are found by
//! their transaction ids (see [`look`]) and admitted up to a snapshot, so that a dependency counts from exactly the
//! turn that admitted it.

pub mod admit;
pub mod citus;
pub mod claim;
pub mod leadership;
pub mod look;
pub mod publish;
pub mod recover;
pub mod request;
pub mod retention;
pub mod schedule;
pub mod scratch;
pub mod settle;
pub mod turn;

pub use leadership::Office;
pub use turn::{Catalog, sql_statements};
