//! `yardmaster serve`: the service.

use clap::Args;

use super::{CliError, Context, Exit};

const EXAMPLES: &str = "\
SIGTERM ends it in order, SIGINT cancels its jobs first, SIGHUP reads the settings again.

Examples:
  yardmaster serve
  yardmaster serve --config /etc/yardmaster/Settings.toml
  yardmaster serve --set limits.max_task_executors=8 --set log.format=json";

/// Arguments of `serve`: everything is in the settings.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {}

/// SEAM, to be joined with `crate::app`.
///
/// # Errors
/// See [`CliError`].
pub fn serve(_context: &Context, _args: ServeArgs) -> Result<Exit, CliError> {
    Err(CliError::NotBuilt("`yardmaster serve`"))
}
