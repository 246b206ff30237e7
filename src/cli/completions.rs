//! `yardmaster completions`: scripts for shells.

use clap::{Args, Command};
use clap_complete::Shell;

use super::{CliError, Context, Exit};

const EXAMPLES: &str = "\
Examples:
  yardmaster completions bash > /etc/bash_completion.d/yardmaster
  yardmaster completions zsh > ~/.zfunc/_yardmaster
  yardmaster completions fish > ~/.config/fish/completions/yardmaster.fish";

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

pub(super) fn print(
    context: &Context,
    args: &CompletionsArgs,
    mut command: Command,
) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "yardmaster", &mut script);
    context.output.write(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Well)
}
