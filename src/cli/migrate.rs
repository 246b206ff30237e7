//! `yardmaster migrate`: create or upgrade the catalog.

use clap::Args;

use super::{CliError, Context, Exit};
use crate::app::AppError;
use crate::db::connect;
use crate::db::migrate::{self, Migrated};

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

pub(super) async fn migrate(context: &Context) -> Result<Exit, CliError> {
    let url = context.database_url()?;
    // Tried as a person's connection first: that one says precisely what is wrong with an address.
    context.connect().await?;
    let config = connect::parse_url(&url).map_err(AppError::from)?;
    let Migrated { from, to } = migrate::migrate(&config).await.map_err(AppError::from)?;
    let line = match from {
        0 => format!("catalog created, version {to}"),
        _ if from == to => format!("catalog is up to date, version {to}"),
        _ => format!("catalog upgraded from version {from} to {to}"),
    };
    if context.output.is_json() {
        context.output.json(&serde_json::json!({ "from": from, "to": to }))?;
    } else {
        context.output.line(&line)?;
    }
    Ok(Exit::Well)
}
