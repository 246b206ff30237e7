//! The catalog on a real server, without actors: migrations, and what Rust and SQL say of the same things.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod costs;
mod interface;
mod migrations;
mod rights;
mod twins;
