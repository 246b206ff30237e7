//! `yardmaster node …`: see how nodes are, drain them.

use clap::{Args, Subcommand};

use super::output::{cell, maybe, number};
use super::{CliError, Context, Exit, steering, text};
use crate::db::inspect::{nodes, scratch};

const GROUP_EXAMPLES: &str = "\
Examples:
  yardmaster node list
  yardmaster node drain east
  yardmaster node resume east";
const LIST_EXAMPLES: &str = "\
A node that is down heals by itself: it is probed until it answers.

Examples:
  yardmaster node list
  yardmaster node list -o json | jq -r '.[] | select(.state == \"down\").name'";
const SCRATCH_EXAMPLES: &str = "\
They are dropped when their job has ended, as its cleanup says; one on a node that is down when it is back.

Examples:
  yardmaster node scratch
  yardmaster job cleanup 7";
const DRAIN_EXAMPLES: &str = "\
What runs there ends in peace; nothing new starts until it is resumed. Needs membership in yardmaster_admin.

Examples:
  yardmaster node drain east";
const RESUME_EXAMPLES: &str = "\
Examples:
  yardmaster node resume east";

/// The verbs of nodes.
#[derive(Debug, Subcommand)]
#[command(after_help = GROUP_EXAMPLES)]
pub enum NodeVerb {
    /// List the declared nodes with their state, slots and limits.
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// List the scratch schemas of jobs, and why they are not dropped yet.
    #[command(after_help = SCRATCH_EXAMPLES)]
    Scratch,
    /// Start nothing more on a node.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(NameArgs),
    /// Start tasks on a node again.
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(NameArgs),
}

/// Arguments of verbs that take a node and nothing else.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// The node.
    #[arg(value_name = "NAME")]
    name: String,
}

pub(super) async fn node(context: &Context, verb: NodeVerb) -> Result<Exit, CliError> {
    match verb {
        NodeVerb::List => list(context).await,
        NodeVerb::Scratch => list_scratch(context).await,
        NodeVerb::Drain(NameArgs { name }) => drain(context, &name, true).await,
        NodeVerb::Resume(NameArgs { name }) => drain(context, &name, false).await,
    }
}

async fn list(context: &Context) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let nodes = nodes::list(&connection.client).await?;
    if context.output.is_json() {
        context.output.json(&nodes)?;
        return Ok(Exit::Well);
    }
    let rows = nodes.iter().map(|node| {
        let slots = format!("{}/{}", node.slots_used, node.max_task_executors);
        vec![
            cell(&node.name),
            cell(&node.state),
            number(slots),
            number(node.max_tracked_tasks.map_or_else(
                || node.tasks_tracked.to_string(),
                |most| format!("{}/{most}", node.tasks_tracked),
            )),
            cell(node.since.map_or_else(|| "-".to_owned(), text::moment)),
            maybe(node.reason.as_deref()),
        ]
    });
    let header = ["node", "state", "slots", "tracked", "since", "reason"];
    context.output.write(&format!("{}\n", context.output.table(&header, rows)))?;
    Ok(Exit::Well)
}

async fn list_scratch(context: &Context) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let schemas = scratch::list(&connection.client).await?;
    if context.output.is_json() {
        context.output.json(&schemas)?;
        return Ok(Exit::Well);
    }
    let rows = schemas.iter().map(|schema| {
        vec![
            number(schema.job_id.to_string()),
            cell(if schema.node.is_empty() { "(home)" } else { &schema.node }),
            cell(&schema.owner),
            cell(&schema.schema_name),
            cell(&schema.state),
            cell(text::moment(schema.since)),
            cell(&schema.reason),
        ]
    });
    let header = ["job", "node", "owner", "schema", "state", "since", "reason"];
    context.output.write(&format!("{}\n", context.output.table(&header, rows)))?;
    Ok(Exit::Well)
}

async fn drain(context: &Context, name: &str, drain: bool) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let request = nodes::drain(&connection.client, name, drain).await?;
    let verb = if drain { "drain" } else { "resume" };
    steering::tell(context, &connection.client, &format!("{verb} node {}", text::inert(name)), request)
        .await?;
    Ok(Exit::Well)
}
