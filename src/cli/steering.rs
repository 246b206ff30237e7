//! What all steering verbs share: the request is recorded, the leader gets a moment to carry it out, and what came
//! of it is told.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::status::warn_if_nobody_leads;
use super::{CliError, Context, text};
use crate::db::inspect::service;
use crate::db::inspect::steer::{self, Request};
use crate::model::{JobStatus, TaskStatus};

/// A live leader carries out a request within 100 ms (SPEC section 2); this is generous.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at a request.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Parses a job's state, with the known ones in help, completions and suggestions.
pub(super) fn job_status() -> impl TypedValueParser<Value = JobStatus> {
    PossibleValuesParser::new(JobStatus::ALL.iter().map(|s| s.as_str()))
        .try_map(|label| label.parse::<JobStatus>())
}

/// Parses a task's status, likewise.
pub(super) fn task_status() -> impl TypedValueParser<Value = TaskStatus> {
    PossibleValuesParser::new(TaskStatus::ALL.iter().map(|s| s.as_str()))
        .try_map(|label| label.parse::<TaskStatus>())
}

/// Is a service there to carry out what is asked? Warns if not.
pub(super) async fn is_somebody_leading(context: &Context, client: &Client) -> Result<bool, CliError> {
    let leader = service::leader(client).await?;
    warn_if_nobody_leads(&context.output, &leader);
    Ok(leader.alive)
}

#[derive(Serialize)]
struct Told<'a> {
    asked: &'a str,
    #[serde(flatten)]
    request: &'a Request,
}

/// Tells what came of a request: `asked` is a phrase such as `cancel job 7`.
pub(super) async fn tell(
    context: &Context,
    client: &Client,
    asked: &str,
    mut request: Request,
) -> Result<Request, CliError> {
    if is_somebody_leading(context, client).await? {
        let start = Instant::now();
        while request.outcome.is_none() && start.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK_EVERY).await;
            request.outcome = steer::outcome(client, request.request_id).await?;
        }
    }
    if context.output.is_json() {
        context.output.json(&Told { asked, request: &request })?;
    } else {
        context.output.line(&line(asked, &request))?;
    }
    Ok(request)
}

fn line(asked: &str, request: &Request) -> String {
    match request.outcome.as_deref() {
        None => format!("{asked}: requested (request {}), not carried out yet", request.request_id),
        Some("") => format!("{asked}: carried out"),
        Some(outcome) => format!("{asked}: {}", text::inert(outcome)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_with_what_came_of_it() {
        let request = |outcome: Option<&str>| Request { request_id: 12, outcome: outcome.map(str::to_owned) };
        assert_eq!(
            line("cancel job 7", &request(None)),
            "cancel job 7: requested (request 12), not carried out yet"
        );
        assert_eq!(line("cancel job 7", &request(Some("job is finished"))), "cancel job 7: job is finished");
    }
}
