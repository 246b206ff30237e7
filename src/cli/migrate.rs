//! `yardmaster migrate`: create or upgrade the catalog.

use clap::Args;

use super::{CliError, Context, Exit};

const EXAMPLES: &str = "\
Needs a role that may create roles and a schema. Does nothing if the catalog is up to date; refuses one that is newer
than this program.

Examples:
  yardmaster migrate --database postgres://postgres@db/yard
  PGHOST=/run/postgresql PGDATABASE=yard yardmaster migrate";

/// Arguments of `migrate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MigrateArgs {}

/// SEAM, to be joined with `crate::db::migrate::migrate(&url)`. The connection is tried already, so that a wrong
/// address is told apart from a missing part.
pub(super) async fn migrate(context: &Context) -> Result<Exit, CliError> {
    context.connect().await?;
    Err(CliError::NotBuilt("`yardmaster migrate`"))
}
