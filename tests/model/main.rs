//! The proofs of the model: every pair in its table, and properties over random inputs and histories.

mod retry;
mod rollup;
mod slots;
mod starvation;
mod transition;
mod yard;
