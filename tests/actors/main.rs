//! Messages in, messages out: the actors on a paused clock, over a catalog in memory and sessions without a server.

mod attempts;
mod leaving;
mod office;
mod rounds;
mod support;
mod waker;
