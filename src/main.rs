//! The `yardmaster` binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    yardmaster::cli::main(std::env::args_os())
}
