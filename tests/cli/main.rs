//! The command line against a real catalog, with the tests' hand in the place of the leader.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail the test")]

mod cluster;
mod connecting;
mod looking;
mod planning;
mod schedules;
mod steering;
mod waiting;
mod yard;
