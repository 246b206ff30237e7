//! A job: how far it is, its graph, its timeline, its tasks.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use actix_web::web;
use maud::{Markup, html};

use super::super::error::Problem;
use super::super::query::{TasksQuery, id};
use super::super::state::State;
use super::frame::Frame;
use super::parts::{STATUSES, action, ago, badge, bar, moment, share, task_name, took};
use super::{Failed, Page, gantt, graph};
use crate::db::inspect::jobs::{self, Job};
use crate::db::inspect::picture;
use crate::db::inspect::tasks::{self, Task};
use crate::model::{JobId, TaskStatus, text};

/// `/jobs/{job_id}`
pub(in super::super) async fn page(
    state: web::Data<State>,
    path: web::Path<String>,
    query: web::Query<TasksQuery>,
) -> Page {
    let job = JobId(id("job", &path)?);
    let (filter, shown) = query.filter(job)?;
    let found = state
        .readers
        .ask(async |client| {
            let Some(found) = jobs::show(client, job).await? else { return Ok(None) };
            let drawn = found.tasks <= graph::MOST_LAID_OUT;
            let graph = match drawn {
                true => Some(picture::graph(client, job, graph::MOST_LAID_OUT).await?),
                false => None,
            };
            let bars = if drawn { picture::bars(client, job, gantt::MOST_BARS).await? } else { Vec::new() };
            Ok(Some((found, graph, bars, tasks::list(client, &filter).await?)))
        })
        .await?;
    let (found, picture, bars, mut listed) = found.ok_or_else(|| Failed(Problem::unknown("job", job)))?;
    let more = listed.len() > shown;
    listed.truncate(shown);
    let title =
        found.description.clone().or_else(|| found.job_type.clone()).unwrap_or_else(|| format!("Job {job}"));
    let body = html! {
        p.path { a href="/" { "Jobs" } " / #" (job) }
        h1 { (text::inert(&title)) }
        (summary(&found))
        @if state.token.is_some() { (actions(&found)) }
        section aria-labelledby="graph-title" {
            h2 id="graph-title" { "Graph" }
            div id="graph" data-part {
                @match &picture {
                    Some(picture) => (graph::drawn(picture)),
                    None => p.note { "A job of " (text::count(found.tasks)) " tasks is not drawn; its tasks are listed below." }
                }
            }
        }
        @if !bars.is_empty() {
            section aria-labelledby="time-title" {
                h2 id="time-title" { "Timeline" }
                div id="timeline" data-part { (gantt::drawn(&bars, found.now)) }
            }
        }
        section aria-labelledby="tasks-title" {
            h2 id="tasks-title" { "Tasks" }
            (chips(job, &query, picture.as_ref()))
            div id="tasks" data-part { (table(&listed)) }
            @if let (true, Some(last)) = (more, listed.last()) {
                p.pager { a rel="next" href={ "/jobs/" (job) "?status=" (query.status) "&after=" (last.task_id) "#tasks-title" } { "Later tasks" } }
            }
        }
    };
    let live = format!("/live?job={job}");
    let frame = Frame {
        title: &text::inert(&title),
        live: Some(&live),
        now: Some(found.now),
        steerable: state.token.is_some(),
        here: "",
    };
    Ok(super::page(StatusCode::OK, &frame, &body))
}

fn summary(job: &Job) -> Markup {
    html! {
        section.card.summary id="summary" data-part {
            p.state { (badge(job.state.as_str())) @if job.paused { " " (badge("paused")) } }
            div.progress { (bar(job)) p.sub { (share(job)) } }
            dl {
                div { dt { "Took" } dd { (took(job.started_at, job.finished_at, job.now)) } }
                div { dt { "Submitted" } dd { (ago(job.submitted_at, job.now)) " by " (text::inert(&job.submitted_by)) } }
                div { dt { "Owner" } dd { (text::inert(&job.owner)) } }
                @if job.priority != 0 { div { dt { "Priority" } dd { (job.priority) } } }
                @if let Some(kind) = &job.job_type { div { dt { "Type" } dd { (text::inert(kind)) } } }
                @if let Some(key) = &job.key { div { dt { "Key" } dd { code { (text::inert(key)) } } } }
                @if let Some(at) = job.finished_at { div { dt { "Ended" } dd { (moment(at)) } } }
            }
        }
    }
}

fn actions(job: &Job) -> Markup {
    let to = |what: &str| format!("/api/v1/jobs/{}/{what}", job.job_id);
    html! {
        p.actions id="actions" data-part {
            @if job.state.is_terminal() {
                @if job.tasks_failed > 0 { (action("Retry", &to("retry"), None)) }
                (action("Delete", &to("delete"), Some("Delete this job and its history?")))
            } @else {
                @if job.paused { (action("Resume", &to("resume"), None)) } @else { (action("Pause", &to("pause"), None)) }
                @if job.tasks_failed > 0 { (action("Retry what failed", &to("retry"), None)) }
                (action("Cancel", &to("cancel"), Some("Cancel this job? What runs is ended.")))
            }
        }
    }
}

/// Filters by status, with numbers where the whole job has been read.
fn chips(job: JobId, query: &TasksQuery, picture: Option<&picture::Graph>) -> Markup {
    let mut counts: BTreeMap<TaskStatus, usize> = BTreeMap::new();
    for task in picture.iter().flat_map(|picture| &picture.tasks) {
        *counts.entry(task.status).or_default() += 1;
    }
    html! {
        nav.chips id="chips" data-part aria-label="Filter by status" {
            a href={ "/jobs/" (job) "#tasks-title" } aria-current=[query.status.is_empty().then_some("true")] { "all" }
            @for status in STATUSES {
                @if picture.is_none() || counts.contains_key(&status) || query.status == status.as_str() {
                    a href={ "/jobs/" (job) "?status=" (status.as_str()) "#tasks-title" }
                        aria-current=[(query.status == status.as_str()).then_some("true")] {
                        (status) @if let Some(n) = counts.get(&status) { " " span.count { (n) } }
                    }
                }
            }
        }
    }
}

fn table(listed: &[Task]) -> Markup {
    html! {
        @if listed.is_empty() { p.empty { "No task fits." } }
        div.rows {
            @for task in listed {
                a.row.task href={ "/tasks/" (task.task_id) } {
                    span.what {
                        span.title { (task_name(task.task_id, task.name.as_deref())) }
                        span.sub {
                            @match task.message.as_deref().filter(|_| task.status != TaskStatus::Done) {
                                Some(message) => { (text::headline(message)) }
                                None => { code { (text::headline(&task.command)) } }
                            }
                        }
                    }
                    span.state { (badge(task.status.as_str())) }
                    span.facts {
                        @if let Some(sqlstate) = &task.sqlstate { code.sqlstate { (text::inert(sqlstate)) } " " }
                        @if task.attempt > 1 { "attempt " (task.attempt) " " }
                        @if let Some(node) = &task.node { "on " (text::inert(node)) }
                    }
                    span.took { (took(task.started_at, task.finished_at.or_else(|| (!is_live(task.status)).then_some(task.started_at).flatten()), task.now)) }
                }
            }
        }
    }
}

/// Does its time still run?
pub(super) fn is_live(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::Running | TaskStatus::Cancelling)
}
