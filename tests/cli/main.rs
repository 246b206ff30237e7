//! The command line against a real catalog, with the tests' hand in the place of the leader.

mod cluster;
mod connecting;
mod looking;
mod steering;
mod waiting;
mod yard;
