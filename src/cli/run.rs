//! `yardmaster run`: job files to their end.

use std::path::PathBuf;

use clap::Args;

use super::{CliError, Context, Exit};

const EXAMPLES: &str = "\
Without a database of yours (--database, DATABASE_URL, settings) a private PostgreSQL is started and kept below
data_dir. Ctrl-C cancels the jobs and exits 130.

Examples:
  yardmaster run nightly.toml
  yardmaster run a.toml b.toml --database postgres://alice@db/yard
  yardmaster run nightly.toml --set limits.max_task_executors=8";

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Job files; each becomes one job.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// SEAM, to be joined with `crate::app`: start (or connect), `job::read_files`, `steer::submit`, the engine, then
/// `wait::jobs` with `Screen::everywhere`, `summary::table` and `summary::ends`.
///
/// # Errors
/// See [`CliError`].
pub fn run(_context: &Context, _args: RunArgs) -> Result<Exit, CliError> {
    Err(CliError::NotBuilt("`yardmaster run`"))
}
