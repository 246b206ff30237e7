//! The engine end to end: the real binary, a real PostgreSQL, real signals.
//!
//! Each test is a claim and names the acceptance scenario it belongs to. Delays are shortened by settings, and tasks
//! that must run for a while wait at a [`gate::Gate`] that the test opens. Limits of milliseconds are judged by the
//! best of a few trials, since the tests run beside one another.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod big;
mod cancelling;
mod commands;
mod gate;
mod graph;
mod identity;
mod large;
mod limits;
mod one_job;
mod prefetch;
mod processes;
mod retention;
mod retries;
mod schedules;
mod signals;
mod storm;
mod waiting;
