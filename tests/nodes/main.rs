//! Nodes: the real service with a home and databases on other servers. Each test names the scenario of the acceptance
//! list that it carries.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../support/mod.rs"]
mod support;

mod candidates;
mod chaos;
mod citus;
#[allow(dead_code, reason = "one sequence is enough here")]
#[path = "../chaos/dice.rs"]
mod dice;
mod doubt;
mod exactly_once;
mod example;
mod health;
mod limits;
mod node;
mod output;
mod scratch;
mod targets;
mod tracked;
