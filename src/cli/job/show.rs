//! `job list` and `job show`: reading.

use clap::Args;
use comfy_table::Cell;

use super::IdArgs;
use crate::cli::output::{cell, job_cell, number};
use crate::cli::{CliError, Context, Exit, steering, summary, task, text};
use crate::db::inspect::jobs::{self, Job, JobFilter};
use crate::db::inspect::tasks::{self, TaskFilter};
use crate::model::{JobId, JobStatus};

/// Tasks below `job show`; `task list --job` pages through all.
const TASKS_SHOWN: i64 = 50;

const LIST_EXAMPLES: &str = "\
The column OTHER counts tasks that ended, but not as done: error, unscheduled or cancelled.

Examples:
  yardmaster job list
  yardmaster job list --state running --state failing
  yardmaster job list --after 1207                 the next page
  yardmaster job list --all -o json | jq length";
const SHOW_EXAMPLES: &str = "\
Examples:
  yardmaster job show 7
  yardmaster job show 7 -o json | jq .state";
/// Arguments of `job list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ListArgs {
    /// Only jobs in this state; can be repeated.
    #[arg(long = "state", value_name = "STATE", value_parser = steering::job_status())]
    states: Vec<JobStatus>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..))]
    limit: i64,
    /// Only jobs older than this one: the next page.
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
    /// Without a limit.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Arguments of `job show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub struct ShowArgs {
    #[command(flatten)]
    job: IdArgs,
}

pub(super) async fn list(context: &Context, args: &ListArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let limit = (!args.all).then_some(args.limit);
    // One more than is shown tells whether there is a next page.
    let filter = JobFilter {
        states: args.states.clone(),
        search: None,
        after: args.after.map(JobId),
        limit: limit.map(|n| n.saturating_add(1)),
    };
    let mut found = jobs::list(&connection.client, &filter).await?;
    let has_more = limit.is_some_and(|n| found.len() as u64 > n.unsigned_abs()) && found.pop().is_some();
    if context.output.is_json() {
        context.output.json(&found)?;
        return Ok(Exit::Well);
    }
    let titles = ["job", "state", "done", "other", "age", "took", "owner", "description"];
    context.output.line(&context.output.table(&titles, found.iter().map(row)))?;
    if let (true, Some(last)) = (has_more, found.last()) {
        context.output.line(&format!("… more: --after {}", last.job_id))?;
    }
    Ok(Exit::Well)
}

fn row(job: &Job) -> Vec<Cell> {
    let took = job.started_at.map(|start| text::between(start, job.finished_at.unwrap_or(job.now)));
    vec![
        number(job.job_id),
        job_cell(job.state),
        number(format!("{}/{}", job.tasks_done, job.tasks)),
        number(job.tasks_failed),
        number(text::between(job.submitted_at, job.now)),
        number(took.unwrap_or_else(|| "-".to_owned())),
        cell(&job.owner),
        cell(job.description.as_deref().map(text::headline).unwrap_or_default()),
    ]
}

pub(super) async fn show(context: &Context, args: &ShowArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let id = JobId(args.job.id);
    let job = jobs::show(&connection.client, id).await?.ok_or(CliError::Unknown { what: "job", id: id.0 })?;
    if context.output.is_json() {
        context.output.json(&job)?;
        return Ok(Exit::Well);
    }
    let endings = jobs::bad_endings(&connection.client, &job).await?;
    let mut lines = vec![summary::end_line(&job, &endings)];
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("  {name:<13}{}", text::inert(&value)));
        }
    };
    field("description", job.description.clone());
    field("type", job.job_type.clone());
    field("owner", Some(job.owner.clone()));
    field("submitted by", (job.submitted_by != job.owner).then(|| job.submitted_by.clone()));
    field("key", job.key.clone());
    field("priority", (job.priority != 0).then(|| job.priority.to_string()));
    field("paused", job.paused.then(|| format!("yes: `yardmaster job resume {id}` starts its tasks again")));
    field("submitted", Some(text::moment(job.submitted_at)));
    field("started", job.started_at.map(text::moment));
    field("finished", job.finished_at.map(text::moment));
    context.output.line(&lines.join("\n"))?;
    let filter = TaskFilter { job: Some(id), limit: Some(TASKS_SHOWN), ..TaskFilter::default() };
    let tasks = tasks::list(&connection.client, &filter).await?;
    if !tasks.is_empty() {
        context.output.line(&format!("\n{}", task::table(&context.output, &tasks)))?;
    }
    if let Some(last) = tasks.last().filter(|_| tasks.len() as i64 == TASKS_SHOWN) {
        context.output.line(&format!("… more: yardmaster task list --job {id} --after {}", last.task_id))?;
    }
    Ok(Exit::Well)
}
