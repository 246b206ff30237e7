//! The Monitor's mind in a simulated world: what it must never do, and what it must always come to.

mod claims;
mod histories;
mod world;
