//! The engine end to end: the real binary, a real PostgreSQL, real signals.
//!
//! Each test is a claim and names the scenario it belongs to. Delays are shortened by settings; where a test waits, it
//! waits for a condition.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod basics;
