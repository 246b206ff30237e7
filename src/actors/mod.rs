//! The actors: shells around pure decisions. A handler translates its message, asks, and carries out the answer.
//!
//! Long-lived actors (Monitor, Ledger, NodeLimiter, NodeWatch, Waker) are not restarted in place: if one dies, the app ends the
//! process with a code of its own, and a normal start is the recovery.

mod coordinator;
pub mod executor;
pub mod guards;
mod job_folders;
pub mod ledger;
pub mod monitor;
pub mod node_limiter;
pub mod node_watch;
mod outside;
mod resolving;
pub mod runner;
mod scrubbing;
pub mod sessions;
pub mod siding;
pub mod signals;
pub mod waker;

/// A random number from 0 to 1, for jitter.
fn chance() -> f64 {
    f64::from(u32::try_from(uuid::Uuid::new_v4().as_u128() & 0xffff_ffff).unwrap_or(0)) / f64::from(u32::MAX)
}
