//! Private clusters against real servers: life, locks, and what kills leave behind.
//!
//! They pass as root and as an ordinary user; as root, one test starts another as an ordinary user.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod account;
mod crash;
mod fixture;
mod life;
