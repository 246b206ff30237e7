//! `yardmaster task …`: watch and steer single tasks.

use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::Cell;

use super::output::{Output, cell, maybe, number, task_cell};
use super::steering::{self, is_somebody_leading};
use super::wait::{self, Goal};
use super::{CliError, Context, Exit, summary, task_detail, text};
use crate::db::inspect::steer;
use crate::db::inspect::tasks::{self, Task, TaskFilter};
use crate::model::{JobId, TaskId, TaskStatus};

const GROUP_EXAMPLES: &str = "\
Examples:
  yardmaster task list --job 7
  yardmaster task list --status error
  yardmaster task show 31";
const LIST_EXAMPLES: &str = "\
Tasks of one job come in order of their id, others by job, newest first.

Examples:
  yardmaster task list --job 7
  yardmaster task list --job 7 --after 180             the next page
  yardmaster task list --status running --status cancelling
  yardmaster task list --job 7 --status error --all -o json | jq -r '.[].task_id'";
const SHOW_EXAMPLES: &str = "\
Examples:
  yardmaster task show 31
  yardmaster task show 31 -o json | jq .attempts";
const WAIT_EXAMPLES: &str = "\
Without --for it waits for any end and exits 1 if that is not done. Ctrl-C exits 130; the task goes on.

Examples:
  yardmaster task wait 31 --timeout 5s
  yardmaster task wait 31 --for running";
const CANCEL_EXAMPLES: &str = "\
The tasks that depend on it become unscheduled.

Examples:
  yardmaster task cancel 31";
const RETRY_EXAMPLES: &str = "\
Takes one task, or with --job those of a job that ended with one of the statuses (error unless told otherwise).

Examples:
  yardmaster task retry 31
  yardmaster task retry 31 --command 'VACUUM accounts'
  yardmaster task retry --job 7 --sqlstate 40          those that failed with class 40
  yardmaster task retry --job 7 --status cancelled";
const WHY_EXAMPLES: &str = "\
One sentence: which dependency, which full node and who holds it, not before when, after which error, paused, no leader.

Examples:
  yardmaster task why 31";

/// The verbs of tasks.
#[derive(Debug, Subcommand)]
#[command(after_help = GROUP_EXAMPLES)]
pub enum TaskVerb {
    /// List tasks.
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Show one task with its command, dependencies, attempts and message.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(IdArgs),
    /// Say why a task is not running.
    #[command(after_help = WHY_EXAMPLES)]
    Why(IdArgs),
    /// Wait for a task.
    #[command(after_help = WAIT_EXAMPLES)]
    Wait(WaitArgs),
    /// Cancel a task.
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel(IdArgs),
    /// Run tasks that did not go well again.
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(RetryArgs),
}

/// Arguments of verbs that take a task and nothing else.
#[derive(Debug, Args)]
pub struct IdArgs {
    /// The task.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(i64).range(1..))]
    id: i64,
}

/// Arguments of `task list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only tasks of this job.
    #[arg(long, value_name = "ID")]
    job: Option<i64>,
    /// Only tasks with this status; can be repeated.
    #[arg(long = "status", value_name = "STATUS", value_parser = steering::task_status())]
    statuses: Vec<TaskStatus>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..))]
    limit: i64,
    /// Continue after this task: the next page.
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
    /// Without a limit.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Arguments of `task wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    task: IdArgs,
    /// The status to wait for; otherwise any end.
    #[arg(long = "for", value_name = "STATUS", value_parser = steering::task_status())]
    desired: Option<TaskStatus>,
    /// Give up after so long (exit code 4), as in 500ms, 30s, 10m.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// Arguments of `task retry`.
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// The task.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(i64).range(1..), required_unless_present = "job")]
    id: Option<i64>,
    /// Another command to run instead; needs the right to become the task's owner.
    #[arg(long, value_name = "SQL", requires = "id")]
    command: Option<String>,
    /// The tasks of this job.
    #[arg(long, value_name = "ID", conflicts_with = "id")]
    job: Option<i64>,
    /// Only those with this status; can be repeated.
    #[arg(long = "status", value_name = "STATUS", requires = "job", value_parser = steering::task_status())]
    statuses: Vec<TaskStatus>,
    /// Only those whose SQLSTATE begins so (a class of two characters, or all five).
    #[arg(long, value_name = "CODE", requires = "job", value_parser = sqlstate)]
    sqlstate: Option<String>,
}

fn sqlstate(text: &str) -> Result<String, String> {
    let fits =
        matches!(text.len(), 2 | 5) && text.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    if fits {
        Ok(text.to_owned())
    } else {
        Err("a class of two or a code of five digits and capitals".to_owned())
    }
}

pub(super) async fn task(context: &Context, verb: TaskVerb) -> Result<Exit, CliError> {
    match verb {
        TaskVerb::List(args) => list(context, &args).await,
        TaskVerb::Show(args) => task_detail::show(context, TaskId(args.id)).await,
        TaskVerb::Why(args) => why(context, TaskId(args.id)).await,
        TaskVerb::Wait(args) => wait_for(context, &args).await,
        TaskVerb::Cancel(args) => cancel(context, TaskId(args.id)).await,
        TaskVerb::Retry(args) => retry(context, &args).await,
    }
}

async fn list(context: &Context, args: &ListArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let limit = (!args.all).then_some(args.limit);
    // One more than is shown tells whether there is a next page.
    let filter = TaskFilter {
        job: args.job.map(JobId),
        statuses: args.statuses.clone(),
        after: args.after.map(TaskId),
        limit: limit.map(|n| n.saturating_add(1)),
    };
    let mut found = tasks::list(&connection.client, &filter).await?;
    let has_more = limit.is_some_and(|n| found.len() as u64 > n.unsigned_abs()) && found.pop().is_some();
    if context.output.is_json() {
        context.output.json(&found)?;
        return Ok(Exit::Well);
    }
    context.output.line(&table(&context.output, &found))?;
    if let (true, Some(last)) = (has_more, found.last()) {
        context.output.line(&format!("… more: --after {}", last.task_id))?;
    }
    Ok(Exit::Well)
}

/// The table of tasks, also below `job show`.
pub(super) fn table(output: &Output, found: &[Task]) -> String {
    output.table(
        &["task", "job", "name", "status", "attempt", "took", "node", "message"],
        found.iter().map(row),
    )
}

fn row(task: &Task) -> Vec<Cell> {
    vec![
        number(task.task_id),
        number(task.job_id),
        maybe(task.name.as_deref()),
        task_cell(task.status),
        number(task.attempt),
        number(summary::took(task).unwrap_or_else(|| "-".to_owned())),
        cell(task.node.as_deref().unwrap_or("home")),
        cell(task.message.as_deref().map(text::headline).unwrap_or_default()),
    ]
}

async fn wait_for(context: &Context, args: &WaitArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let id = TaskId(args.task.id);
    if tasks::status_of(&connection.client, id).await?.is_some_and(|status| !status.is_terminal()) {
        is_somebody_leading(context, &connection.client).await?;
    }
    let goal = Goal { desired: args.desired, timeout: args.timeout };
    let status = wait::task(&connection.client, id, goal).await?;
    if context.output.is_json() {
        context.output.json(&serde_json::json!({ "task_id": id.to_string(), "status": status }))?;
    } else {
        context.output.line(&format!("task {id} is {status}"))?;
    }
    if args.desired.is_some() || status == TaskStatus::Done {
        return Ok(Exit::Well);
    }
    if let Some(detail) = tasks::show(&connection.client, id).await?
        && let Some(message) = &detail.task.message
    {
        context.output.fail(&format!("task {id}: {}", text::headline(message)));
    }
    Ok(Exit::WorkFailed)
}

async fn why(context: &Context, id: TaskId) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let reason = tasks::why(&connection.client, id).await?;
    if context.output.is_json() {
        context.output.json(&serde_json::json!({ "task_id": id.to_string(), "why": reason }))?;
    } else {
        context.output.line(&format!("task {id}: {}", text::inert(&reason)))?;
    }
    Ok(Exit::Well)
}

async fn cancel(context: &Context, id: TaskId) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let request = steer::cancel_task(&connection.client, id).await?;
    steering::tell(context, &connection.client, &format!("cancel task {id}"), request).await?;
    Ok(Exit::Well)
}

async fn retry(context: &Context, args: &RetryArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let client = &connection.client;
    if let Some(id) = args.id {
        let request = steer::retry_task(client, TaskId(id), args.command.as_deref()).await?;
        steering::tell(context, client, &format!("retry task {id}"), request).await?;
        return Ok(Exit::Well);
    }
    let job = JobId(args.job.unwrap_or_default());
    let statuses = if args.statuses.is_empty() { vec![TaskStatus::Error] } else { args.statuses.clone() };
    let requests = steer::retry_tasks_of_job(client, job, &statuses, args.sqlstate.as_deref()).await?;
    if !requests.is_empty() {
        is_somebody_leading(context, client).await?;
    }
    if context.output.is_json() {
        context.output.json(&requests)?;
    } else {
        let n = i64::try_from(requests.len()).unwrap_or(i64::MAX);
        context.output.line(&format!("retry of {} of job {job} requested", text::plural(n, "task")))?;
    }
    Ok(Exit::Well)
}
