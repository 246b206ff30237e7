//! Messages in, messages out: the actors on a paused clock, over a catalog in memory and sessions without a server.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

mod attempts;
mod leaving;
mod office;
mod outside;
mod prefetch;
mod rounds;
mod support;
mod waker;
