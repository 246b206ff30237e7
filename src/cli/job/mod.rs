//! `yardmaster job …`: submit, watch and steer jobs.

mod logs;
mod plan;
mod show;
mod submit;
mod svg;

use std::time::Duration;

use clap::{Args, Subcommand};

use super::progress::Screen;
use super::steering::{self, is_somebody_leading};
use super::wait::{self, Goal};
use super::{CliError, Context, Exit, summary};
use crate::db::inspect::jobs;
use crate::db::inspect::steer::{self, JobRequest};
use crate::model::{JobId, JobStatus};

pub use submit::read_files;

const GROUP_EXAMPLES: &str = "\
Examples:
  yardmaster job plan nightly.toml
  yardmaster job submit nightly.toml --wait
  yardmaster job list --state running
  yardmaster job show 7";
const WAIT_EXAMPLES: &str = "\
Without --for it waits for any end and exits 1 if the job failed or was cancelled, with the first error printed. With
--for, an end other than the one named exits 1. Ctrl-C exits 130; the job goes on.

Examples:
  yardmaster job wait 7
  yardmaster job wait 7 --timeout 10m
  yardmaster job wait 7 --for running";
const CANCEL_EXAMPLES: &str = "\
Tasks that wait are cancelled at once, running ones get a cancel request, after cancel.grace their session is ended.

Examples:
  yardmaster job cancel 7
  yardmaster job cancel 7 --wait";
const RETRY_EXAMPLES: &str = "\
Runs the failed, cancelled and unscheduled tasks of a job again; done ones stay done.

Examples:
  yardmaster job retry 7
  yardmaster task retry --job 7 --sqlstate 40      only those that failed with class 40";
const PAUSE_EXAMPLES: &str = "\
What runs is left to end; nothing more is started until `job resume`.

Examples:
  yardmaster job pause 7";
const RESUME_EXAMPLES: &str = "\
Examples:
  yardmaster job resume 7";
const DELETE_EXAMPLES: &str = "\
Removes a job that has ended, with its tasks and their history, before its retention is over.

Examples:
  yardmaster job delete 7";
const CLEANUP_EXAMPLES: &str = "\
Drops the scratch schemas of a job that has ended, whatever its clean-up policy. A node that is down is cleaned when it is back.

Examples:
  yardmaster job cleanup 7";

/// The verbs of jobs.
#[derive(Debug, Subcommand)]
#[command(after_help = GROUP_EXAMPLES)]
pub enum JobVerb {
    /// Submit job files, all in one transaction.
    Submit(submit::SubmitArgs),
    /// Check a job file and show what it would do, without storing anything.
    Plan(plan::PlanArgs),
    /// List jobs, newest first.
    List(show::ListArgs),
    /// Show one job with its tasks.
    Show(show::ShowArgs),
    /// Wait for a job.
    #[command(after_help = WAIT_EXAMPLES)]
    Wait(WaitArgs),
    /// Cancel a job.
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel(CancelArgs),
    /// Run what did not go well again.
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(IdArgs),
    /// Start no more tasks of a job.
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(IdArgs),
    /// Start tasks of a paused job again.
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(IdArgs),
    /// Remove a job that has ended.
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(IdArgs),
    /// Remove what a job that has ended left behind.
    #[command(after_help = CLEANUP_EXAMPLES)]
    Cleanup(IdArgs),
    /// Print what PostgreSQL said in all attempts of all tasks, in order.
    Logs(logs::LogsArgs),
}

/// Arguments of verbs that take a job and nothing else.
#[derive(Debug, Args)]
pub struct IdArgs {
    /// The job.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(i64).range(1..))]
    id: i64,
}

/// Arguments of `job wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    job: IdArgs,
    /// The state to wait for; otherwise any end.
    #[arg(long = "for", value_name = "STATE", value_parser = steering::job_status())]
    desired: Option<JobStatus>,
    /// Give up after so long (exit code 4), as in 500ms, 30s, 10m.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// Arguments of `job cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    job: IdArgs,
    /// Wait until the job is cancelled; exit 1 if it ended otherwise.
    #[arg(long)]
    wait: bool,
}

pub(super) async fn job(context: &Context, verb: JobVerb) -> Result<Exit, CliError> {
    match verb {
        JobVerb::Submit(args) => submit::submit(context, args).await,
        JobVerb::Plan(args) => plan::plan(context, &args).await,
        JobVerb::List(args) => show::list(context, &args).await,
        JobVerb::Show(args) => show::show(context, &args).await,
        JobVerb::Wait(args) => wait_for(context, &args).await,
        JobVerb::Cancel(args) => cancel(context, &args).await,
        JobVerb::Retry(args) => request(context, JobRequest::Retry, "retry", &args).await,
        JobVerb::Pause(args) => request(context, JobRequest::Pause, "pause", &args).await,
        JobVerb::Resume(args) => request(context, JobRequest::Resume, "resume", &args).await,
        JobVerb::Delete(args) => request(context, JobRequest::Delete, "delete", &args).await,
        JobVerb::Cleanup(args) => request(context, JobRequest::Cleanup, "cleanup", &args).await,
        JobVerb::Logs(args) => logs::logs(context, &args).await,
    }
}

async fn request(context: &Context, what: JobRequest, verb: &str, args: &IdArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let request = steer::job(&connection.client, what, JobId(args.id)).await?;
    steering::tell(context, &connection.client, &format!("{verb} job {}", args.id), request).await?;
    Ok(Exit::Well)
}

async fn cancel(context: &Context, args: &CancelArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let id = JobId(args.job.id);
    let request = steer::job(&connection.client, JobRequest::Cancel, id).await?;
    steering::tell(context, &connection.client, &format!("cancel job {id}"), request).await?;
    if args.wait {
        let goal = Goal { desired: Some(JobStatus::Cancelled), timeout: None };
        wait::jobs(&connection.client, &[id], goal, &mut Screen::on_terminal(&context.output)).await?;
        if !context.output.is_json() {
            context.output.line(&format!("job {id} is cancelled"))?;
        }
    }
    Ok(Exit::Well)
}

async fn wait_for(context: &Context, args: &WaitArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let client = &connection.client;
    let id = JobId(args.job.id);
    if jobs::states(client, &[id]).await?.iter().any(|(_, state)| !state.is_terminal()) {
        is_somebody_leading(context, client).await?;
    }
    let goal = Goal { desired: args.desired, timeout: args.timeout };
    let reached = wait::jobs(client, &[id], goal, &mut Screen::on_terminal(&context.output)).await?;
    if args.desired.is_none() {
        return summary::ends(&context.output, client, &[id]).await;
    }
    for (id, state) in reached {
        if context.output.is_json() {
            context.output.json(&serde_json::json!({ "job_id": id.to_string(), "state": state }))?;
        } else {
            context.output.line(&format!("job {id} is {state}"))?;
        }
    }
    Ok(Exit::Well)
}
