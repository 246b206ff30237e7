//! Yardmaster runs background jobs of SQL tasks on PostgreSQL.
//!
//! Three ideas carry the crate: the database remembers, the Monitor decides, the Executors act.
//! `ARCHITECTURE.md` has the floors, the invariants and a walk from `INSERT` to `done`.

pub mod cli;
pub mod db;
pub mod model;
