//! `yardmaster run`: job files to their end.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_postgres::Client;

use super::context::parse_variable;
use super::error::submission;
use super::progress::Screen;
use super::wait::{self, Goal};
use super::{CliError, Context, Exit, job, serve, summary};
use crate::app::{AppError, Home, Service};
use crate::db::inspect::scratch;
use crate::db::inspect::steer::{self, JobRequest};
use crate::db::{DbError, client};
use crate::messages::Terminate;
use crate::model::JobId;
use crate::telemetry;

const EXAMPLES: &str = "\
Without a database of yours (--database, DATABASE_URL, settings) a private PostgreSQL is started and kept below
data_dir. Ctrl-C cancels the jobs and exits 130.

Examples:
  yardmaster run nightly.toml
  yardmaster run a.toml b.toml --database postgres://alice@db/yard
  yardmaster run nightly.toml --set limits.max_task_executors=8";

/// How long the service may take to reach and migrate the catalog before `run` gives up.
const REACH_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// How long `run` stays for the sake of scratch schemas.
const CLEAN_UP_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);
/// Between two looks whether they are gone.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(100);

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Job files; each becomes one job.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Set a variable that the files declare in [vars]; may be repeated.
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub variables: Vec<(String, String)>,
}

/// Submits the files, runs a service until their jobs have ended, and tells how.
///
/// # Errors
/// See [`CliError`].
pub fn run(context: &Context, args: RunArgs) -> Result<Exit, CliError> {
    let mut settings = context.settings()?;
    // Mistakes in the files are told before anything is started.
    let jobs = job::read_files(&args.files, &args.variables)?;
    if settings.log.level == "info" {
        // The progress tells what happens; the log only what is wrong.
        "warn,yardmaster::actors::node_limiter=error".clone_into(&mut settings.log.level);
    }
    telemetry::start(&settings.log).map_err(|e| CliError::Usage(e.to_string()))?;
    actix_rt::System::new().block_on(async {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let mut home = tokio::select! {
            home = Home::prepare(&mut settings) => home?,
            _ = interrupts.recv() => return Ok(Exit::Interrupted),
        };
        if !home.is_private() {
            // Tried as a person's connection first: that one says within 5 s, and precisely, what is wrong.
            client::connect(&home.submit_url).await?;
        }
        let submit_url = home.submit_url.clone();
        let mut service = Service::start(home.config()?, home.service_url.clone(), &settings, Rc::new(|_| ()));
        let (terminate, reached) = (service.terminate(), service.reached());
        let outcome = tokio::select! {
            outcome = async {
                tokio::time::timeout(REACH_LIMIT, reached).await.map_err(|_| AppError::Db(DbError::Busy(format!(
                    "the catalog was not ready within {} s: see the warnings above; does the role have the rights of a service?",
                    REACH_LIMIT.as_secs()
                ))))?;
                watch(context, &submit_url, &jobs, &mut interrupts).await
            } => Some(outcome),
            () = home.keep() => unreachable!("keeping home never ends"),
            _ = terminations.recv() => None,
            ended = service.failed() => return serve::exit(ended),
        };
        terminate.do_send(Terminate);
        if outcome.is_none() {
            // Told to leave by SIGTERM: what runs has its grace, as in `serve`.
            tracing::warn!("terminated; the jobs go on with the next start");
        }
        let ended = tokio::select! {
            ended = service.ended() => ended,
            _ = async { interrupts.recv().await; terminate.do_send(Terminate); std::future::pending::<()>().await } => unreachable!("pending never ends"),
        };
        home.close().await;
        match outcome {
            Some(outcome) => outcome,
            None => serve::exit(ended).map(|_| Exit::Interrupted),
        }
    })
}

/// Submits and follows the jobs; the first Ctrl-C cancels them, the second one leaves at once.
async fn watch(
    context: &Context,
    url: &str,
    jobs: &[Value],
    interrupts: &mut Signal,
) -> Result<Exit, CliError> {
    let mut connection = client::connect(url).await?;
    let submitted = steer::submit(&mut connection.client, jobs).await.map_err(submission)?;
    for known in submitted.iter().filter(|submitted| !submitted.is_new) {
        context.output.warn(&format!("job {} exists already: its key was submitted before", known.job));
    }
    let ids: Vec<JobId> = submitted.iter().map(|submitted| submitted.job).collect();
    let goal = Goal { desired: None, timeout: None };
    let mut screen = Screen::everywhere(&context.output);
    let interrupted = tokio::select! {
        ended = wait::jobs(&connection.client, &ids, goal, &mut screen) => { ended?; false }
        _ = interrupts.recv() => true,
    };
    screen.finish();
    if !interrupted {
        await_clean_up(context, &connection.client, &ids).await?;
    }
    if interrupted {
        context.output.warn("interrupted: cancelling; once more to leave at once");
        tokio::select! {
            cancelled = cancel(&connection.client, &ids) => cancelled?,
            _ = interrupts.recv() => return Ok(Exit::Interrupted),
        }
    }
    if !context.output.is_json() {
        summary::table(&context.output, &connection.client, &ids).await?;
    }
    let exit = summary::ends(&context.output, &connection.client, &ids).await?;
    Ok(if interrupted { Exit::Interrupted } else { exit })
}

/// Stays until the scratch schemas of the jobs are dropped, since nobody is there to do that afterwards.
async fn await_clean_up(context: &Context, client: &Client, ids: &[JobId]) -> Result<(), CliError> {
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < CLEAN_UP_LIMIT {
        if scratch::left(client, ids).await? == 0 {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    context.output.warn("scratch schemas are left: SELECT * FROM yardmaster.scratch says why; the next start goes on dropping them");
    Ok(())
}

async fn cancel(client: &Client, ids: &[JobId]) -> Result<(), CliError> {
    for id in ids {
        steer::job(client, JobRequest::Cancel, *id).await?;
    }
    let goal = Goal { desired: None, timeout: None };
    wait::jobs(client, ids, goal, &mut Screen::silent()).await?;
    Ok(())
}
