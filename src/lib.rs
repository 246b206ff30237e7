//! Yardmaster runs background jobs of SQL tasks on PostgreSQL.
//!
//! Three ideas carry the crate: the database remembers, the Monitor decides, the Executors act.
//! `ARCHITECTURE.md` has the floors, the invariants and a walk from `INSERT` to `done`.

pub mod actors;
pub mod app;
pub mod cli;
pub mod cluster;
pub mod db;
pub mod http;
pub mod jobfile;
pub mod messages;
pub mod meters;
pub mod model;
pub mod settings;
pub mod sql;
pub mod telemetry;
