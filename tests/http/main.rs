//! The page, the API, the probes and the figures of the real binary, over real sockets, the page also in a real browser; and
//! what the service manager hears.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod actions;
mod api;
mod browser;
mod client;
mod driver;
mod live;
mod probes;
mod screenshots;
mod systemd;
