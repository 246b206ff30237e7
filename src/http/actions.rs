//! Steering: a POST with the token becomes a request row, and the leader's word on it is the answer.
//!
//! The token comes in a header that no form and no foreign page can send (nothing here answers a preflight, and there are
//! no cookies), so a browser cannot be tricked into steering; a foreign `Origin` is refused besides.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;
use tokio_postgres::Client;

use super::error::Problem;
use super::query::id;
use super::state::State;
use crate::db::inspect::QueryError;
use crate::db::inspect::steer::{self, JobRequest, Request};
use crate::model::{JobId, TaskId};

/// The leader is given so long to answer; a request without an answer by then is carried out later.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Cancels, retries, pauses, resumes or deletes a job.
pub(super) async fn job(
    state: web::Data<State>,
    request: HttpRequest,
    path: web::Path<(String, String)>,
) -> Result<HttpResponse, Problem> {
    let (job, action) = path.into_inner();
    let what = match action.as_str() {
        "cancel" => JobRequest::Cancel,
        "retry" => JobRequest::Retry,
        "pause" => JobRequest::Pause,
        "resume" => JobRequest::Resume,
        "delete" => JobRequest::Delete,
        other => return Err(unknown(other, "cancel, retry, pause, resume, delete")),
    };
    permit(&state, &request)?;
    let job = JobId(id("job", &job)?);
    tracing::info!(job = job.0, "{action} asked for by the API");
    carry_out(&state, async |client| steer::job(client, what, job).await).await
}

/// Cancels or retries a task.
pub(super) async fn task(
    state: web::Data<State>,
    request: HttpRequest,
    path: web::Path<(String, String)>,
) -> Result<HttpResponse, Problem> {
    let (task, action) = path.into_inner();
    if !["cancel", "retry"].contains(&action.as_str()) {
        return Err(unknown(&action, "cancel, retry"));
    }
    permit(&state, &request)?;
    let task = TaskId(id("task", &task)?);
    tracing::info!(task = task.0, "{action} asked for by the API");
    carry_out(&state, async |client| match action.as_str() {
        "cancel" => steer::cancel_task(client, task).await,
        _ => steer::retry_task(client, task, None).await,
    })
    .await
}

fn unknown(action: &str, known: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("unknown action {action:?}: known are {known}"))
}

/// Is whoever asks allowed to?
fn permit(state: &State, request: &HttpRequest) -> Result<(), Problem> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let Some(token) = &state.token else {
        return Err(Problem::new(StatusCode::FORBIDDEN, "this page is read-only")
            .hint("set [http] token_file to a file with a token, and restart"));
    };
    let host = header("host").unwrap_or_default();
    let foreign = header("origin")
        .is_some_and(|origin| origin.split_once("://").is_none_or(|(_, authority)| authority != host));
    if foreign || header("sec-fetch-site").is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "the request comes from another site"));
    }
    match header("authorization").and_then(|value| value.strip_prefix("Bearer ")) {
        Some(given) if token.is(given.trim()) => Ok(()),
        Some(_) => Err(Problem::new(StatusCode::UNAUTHORIZED, "this is not the token")),
        None => Err(Problem::new(StatusCode::UNAUTHORIZED, "steering needs the token").hint(
            "send the header Authorization: Bearer TOKEN, with what the file of [http] token_file holds",
        )),
    }
}

async fn carry_out(
    state: &State,
    ask: impl AsyncFnOnce(&Client) -> Result<Request, QueryError>,
) -> Result<HttpResponse, Problem> {
    let connection = state.readers.writer().await?;
    let asked = ask(&connection.client).await?;
    let answered = tokio::time::timeout(ANSWER_LIMIT, async {
        loop {
            if let Some(outcome) = steer::outcome(&connection.client, asked.request_id).await? {
                return Ok::<_, QueryError>(outcome);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    });
    let outcome = answered.await.ok().transpose()?;
    let answer = json!({ "request_id": asked.request_id.to_string(), "outcome": outcome });
    Ok(if outcome.is_some() { HttpResponse::Ok() } else { HttpResponse::Accepted() }.json(answer))
}
