//! `yardmaster man`: manual pages, for packages. They are the help texts in another form.

use std::path::PathBuf;

use clap::{Args, Command};

use super::{CliError, Exit};

const EXAMPLES: &str = "\
Examples:
  yardmaster man /usr/share/man/man1";

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// The folder; it must exist.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(super) fn write(args: &ManArgs, command: Command) -> Result<Exit, CliError> {
    clap_mangen::generate_to(command, &args.folder)
        .map_err(|e| CliError::Usage(format!("{} cannot be written to: {e}", args.folder.display())))?;
    Ok(Exit::Well)
}
