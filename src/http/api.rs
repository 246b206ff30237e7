//! `/api/v1`: what can be read, as JSON.
//!
//! Ids are strings, as in the command line's JSON: JavaScript rounds numbers above 2^53. Moments are ISO 8601 in UTC,
//! durations seconds. Lists page by key: `next` is the `after` of the next page.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::json;

use super::error::Problem;
use super::query::{JobsQuery, TasksQuery, id};
use super::state::State;
use crate::db::gauge;
use crate::db::inspect::jobs::{self, Job};
use crate::db::inspect::{picture, service, steer, tasks};
use crate::model::{JobId, TaskId};

/// The most tasks of a graph, and attempts of a timeline, that one answer has.
pub(super) const MOST_DRAWN: i64 = 5000;

/// A job with what is left of it.
#[derive(Serialize)]
struct JobView<'a> {
    #[serde(flatten)]
    job: &'a Job,
    eta_seconds: Option<f64>,
}

impl<'a> JobView<'a> {
    fn of(job: &'a Job) -> JobView<'a> {
        JobView { job, eta_seconds: job.eta().map(|eta| eta.as_secs_f64()) }
    }
}

type Answer = Result<HttpResponse, Problem>;

/// Who leads, what runs, how much there is.
pub(super) async fn overview(state: web::Data<State>) -> Answer {
    Ok(HttpResponse::Ok().json(state.readers.ask(async |client| service::overview(client).await).await?))
}

/// Jobs, newest first.
pub(super) async fn jobs(state: web::Data<State>, query: web::Query<JobsQuery>) -> Answer {
    let (filter, shown) = query.filter()?;
    let mut found = state.readers.ask(async |client| jobs::list(client, &filter).await).await?;
    let more = found.len() > shown;
    found.truncate(shown);
    let next = found.last().filter(|_| more).map(|job| job.job_id.to_string());
    let jobs: Vec<JobView<'_>> = found.iter().map(JobView::of).collect();
    Ok(HttpResponse::Ok().json(json!({ "jobs": jobs, "next": next })))
}

/// One job.
pub(super) async fn job(state: web::Data<State>, path: web::Path<String>) -> Answer {
    let job = found(&state, &path).await?;
    Ok(HttpResponse::Ok().json(JobView::of(&job)))
}

/// The tasks of a job, in order of id.
pub(super) async fn tasks(
    state: web::Data<State>,
    path: web::Path<String>,
    query: web::Query<TasksQuery>,
) -> Answer {
    let job = found(&state, &path).await?;
    let (filter, shown) = query.filter(job.job_id)?;
    let mut tasks = state.readers.ask(async |client| tasks::list(client, &filter).await).await?;
    let more = tasks.len() > shown;
    tasks.truncate(shown);
    let next = tasks.last().filter(|_| more).map(|task| task.task_id.to_string());
    Ok(HttpResponse::Ok().json(json!({ "tasks": tasks, "next": next })))
}

/// The graph of a job: its tasks, and which waits for which.
pub(super) async fn graph(state: web::Data<State>, path: web::Path<String>) -> Answer {
    let job = found(&state, &path).await?;
    let graph =
        state.readers.ask(async |client| picture::graph(client, job.job_id, MOST_DRAWN).await).await?;
    let complete = job.tasks <= MOST_DRAWN;
    Ok(HttpResponse::Ok().json(json!({ "tasks": graph.tasks, "edges": graph.edges, "complete": complete })))
}

/// The latest attempts of a job, the newest first.
pub(super) async fn attempts(state: web::Data<State>, path: web::Path<String>) -> Answer {
    let job = found(&state, &path).await?;
    let bars = state.readers.ask(async |client| picture::bars(client, job.job_id, MOST_DRAWN).await).await?;
    Ok(HttpResponse::Ok().json(json!({ "attempts": bars })))
}

/// One task with its dependencies and attempts, and why it is not running.
pub(super) async fn task(state: web::Data<State>, path: web::Path<String>) -> Answer {
    let task = TaskId(id("task", &path)?);
    let (detail, why) = state
        .readers
        .ask(async |client| match tasks::show(client, task).await? {
            Some(detail) => Ok((Some(detail), tasks::why(client, task).await?)),
            None => Ok((None, String::new())),
        })
        .await?;
    let detail = detail.ok_or_else(|| Problem::unknown("task", task))?;
    let mut view = serde_json::to_value(&detail).map_err(|e| Problem::internal(&e))?;
    view["why"] = why.into();
    Ok(HttpResponse::Ok().json(view))
}

/// The nodes with their slots; the one without a name is all together.
pub(super) async fn nodes(state: web::Data<State>) -> Answer {
    let nodes = state.readers.ask(async |client| gauge::nodes(client).await).await?;
    Ok(HttpResponse::Ok().json(json!({ "nodes": nodes })))
}

/// What came of a request.
pub(super) async fn request(state: web::Data<State>, path: web::Path<String>) -> Answer {
    let request = id("request", &path)?;
    let outcome = state.readers.ask(async |client| steer::outcome(client, request).await).await?;
    Ok(HttpResponse::Ok().json(json!({ "request_id": request.to_string(), "outcome": outcome })))
}

async fn found(state: &State, path: &str) -> Result<Job, Problem> {
    let job = JobId(id("job", path)?);
    let found = state.readers.ask(async |client| jobs::show(client, job).await).await?;
    found.ok_or_else(|| Problem::unknown("job", job))
}
