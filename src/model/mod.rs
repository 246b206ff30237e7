//! Plain data and pure functions about jobs and tasks.

pub mod graph;
