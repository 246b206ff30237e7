//! Failures and hostile input, end to end: the real service on a real PostgreSQL, with something going wrong. Nothing
//! may be lost, nothing doubled, nothing stuck; each test names the scenario of the acceptance list that it carries.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../support/mod.rs"]
mod support;

mod connections;
mod crashes;
mod hostile;
mod ledger;
mod network;
mod outages;
mod outside;
mod requests;
mod rows;
mod signals;
mod texts;
