//! Owners' sessions against a real server: what they say, what they keep apart, and how attempts end.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests

mod cancelling;
mod cluster;
mod cuts;
mod exactly_once;
mod hostile;
mod messages;
mod opening;
mod plain;
mod sizes;
mod tls;
