//! `job logs`: what PostgreSQL said, attempt by attempt, and what it says from now on.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use futures::TryStreamExt;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::IdArgs;
use crate::cli::steering::is_somebody_leading;
use crate::cli::{CliError, Context, Exit, text};
use crate::db::inspect::jobs;
use crate::db::inspect::progress::OVERLAP;
use crate::db::inspect::tasks::{self, Attempt};
use crate::model::{JobId, TaskId};

/// Between two looks of `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A look rests at least so many times its own length.
const REST_FACTOR: u32 = 9;

const EXAMPLES: &str = "\
With --follow it goes on until the job has ended, printing each attempt as it ends; Ctrl-C exits 130, the job goes on.
In JSON, --follow prints one attempt a line instead of a list.

Examples:
  yardmaster job logs 7 | less
  yardmaster job logs 7 --follow
  yardmaster job logs 7 -o json | jq -r '.[] | select(.outcome == \"failed\") | .message'";

/// Arguments of `job logs`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LogsArgs {
    #[command(flatten)]
    job: IdArgs,
    /// Go on until the job has ended.
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn logs(context: &Context, args: &LogsArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let id = JobId(args.job.id);
    let Some(job) = jobs::show(&connection.client, id).await? else {
        return Err(CliError::Unknown { what: "job", id: id.0 });
    };
    if args.follow {
        if !job.state.is_terminal() {
            is_somebody_leading(context, &connection.client).await?;
        }
        return follow(context, &connection.client, id).await;
    }
    let mut attempts = std::pin::pin!(tasks::logs(&connection.client, id, Timestamp::UNIX_EPOCH).await?);
    let mut is_first = true;
    while let Some(attempt) = attempts.try_next().await? {
        if context.output.is_json() {
            let item = serde_json::to_string(&attempt).map_err(std::io::Error::from)?;
            context.output.write(&format!("{}\n{item}", if is_first { "[" } else { "," }))?;
        } else {
            context.output.write(&log_entry(&attempt))?;
        }
        is_first = false;
    }
    if context.output.is_json() {
        context.output.write(if is_first { "[]\n" } else { "\n]\n" })?;
    }
    Ok(Exit::Well)
}

/// Prints what has ended and then what ends, each attempt once, until the job is at its end.
async fn follow(context: &Context, client: &Client, id: JobId) -> Result<Exit, CliError> {
    let mut told: HashSet<(TaskId, i32)> = HashSet::new();
    let mut since = Timestamp::UNIX_EPOCH;
    loop {
        let look_start = Instant::now();
        // The job first: attempts that end after this look are seen by the next one, and there is one.
        let job = jobs::show(client, id).await?.ok_or(CliError::Unknown { what: "job", id: id.0 })?;
        let mut seen = HashSet::new();
        let mut attempts = std::pin::pin!(tasks::logs(client, id, since).await?);
        while let Some(attempt) = attempts.try_next().await? {
            if attempt.ended_at.is_none() {
                continue;
            }
            let mark = (attempt.task_id, attempt.attempt);
            seen.insert(mark);
            if told.contains(&mark) {
                continue;
            }
            if context.output.is_json() {
                context.output.line(&serde_json::to_string(&attempt).map_err(std::io::Error::from)?)?;
            } else {
                context.output.write(&log_entry(&attempt))?;
            }
        }
        if job.state.is_terminal() {
            return Ok(Exit::Well);
        }
        // What the next look cannot see again need not be remembered.
        told = seen;
        since = job.now.saturating_sub(OVERLAP).unwrap_or(since);
        tokio::time::sleep(LOOK_EVERY.max(look_start.elapsed() * REST_FACTOR)).await;
    }
}

fn log_entry(attempt: &Attempt) -> String {
    let mut head = format!("── {}", text::task_title(attempt.task_id, attempt.name.as_deref()));
    if attempt.attempt > 0 {
        head.push_str(&format!(", attempt {}", attempt.attempt));
    }
    head.push_str(&format!(", {}", attempt.outcome.as_deref().unwrap_or("running")));
    if let Some(code) = &attempt.sqlstate {
        head.push_str(&format!(" {}", text::inert(code)));
    }
    if let Some(end) = attempt.ended_at {
        head.push_str(&format!(", {}", text::moment(end)));
        if let Some(start) = attempt.started_at {
            head.push_str(&format!(", {}", text::between(start, end)));
        }
    }
    head.push('\n');
    if let Some(message) = attempt.message.as_deref().filter(|message| !message.is_empty()) {
        head.push_str(text::inert_lines(message).trim_end());
        head.push('\n');
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TaskId;

    #[test]
    fn a_log_entry_is_inert_and_says_which_attempt_spoke() {
        let start: jiff::Timestamp = "2026-11-30T12:03:04Z".parse().unwrap();
        let mut attempt = Attempt {
            task_id: TaskId(9_007_199_254_740_993),
            name: Some("fill".to_owned()),
            attempt: 2,
            node: String::new(),
            pid: Some(1),
            outcome: Some("failed".to_owned()),
            sqlstate: Some("22012".to_owned()),
            message: Some("NOTICE: \u{1b}]0;hi\u{7}\nERROR: division by zero\n".to_owned()),
            started_at: Some(start),
            ended_at: Some(start + jiff::SignedDuration::from_secs(2)),
        };
        let entry = log_entry(&attempt);
        assert!(entry.starts_with("── task 9007199254740993 fill, attempt 2, failed 22012, "), "{entry}");
        assert!(entry.ends_with(", 2.0s\nNOTICE: \\u{1b}]0;hi\\u{7}\nERROR: division by zero\n"), "{entry}");
        attempt = Attempt { outcome: None, sqlstate: None, message: None, ended_at: None, ..attempt };
        assert!(log_entry(&attempt).ends_with(", attempt 2, running\n"));
    }
}
