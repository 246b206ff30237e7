//! The `yardmaster` binary.
fn main() {}
