//! A task: why it is as it is, what PostgreSQL said, its attempts, its command.

use actix_web::http::StatusCode;
use actix_web::web;
use jiff::Timestamp;
use maud::{Markup, html};

use super::super::error::Problem;
use super::super::query::id;
use super::super::state::State;
use super::frame::Frame;
use super::parts::{action, badge, moment, task_name, took};
use super::{Failed, Page};
use crate::db::inspect::tasks::{self, Attempt, TaskDetail};
use crate::model::{TaskId, text};

/// Dependants named; the API has them all.
const DEPENDANTS_SHOWN: usize = 50;

/// `/tasks/{task_id}`
pub(in super::super) async fn page(state: web::Data<State>, path: web::Path<String>) -> Page {
    let task = TaskId(id("task", &path)?);
    let found = state
        .readers
        .ask(async |client| match tasks::show(client, task).await? {
            Some(detail) => Ok(Some((detail, tasks::why(client, task).await?))),
            None => Ok(None),
        })
        .await?;
    let (detail, why) = found.ok_or_else(|| Failed(Problem::unknown("task", task)))?;
    let name = task_name(task, detail.task.name.as_deref());
    let body = html! {
        p.path { a href="/" { "Jobs" } " / " a href={ "/jobs/" (detail.task.job_id) } { "#" (detail.task.job_id) } " / #" (task) }
        h1 { (name) }
        section.card.summary id="summary" data-part {
            p.state { (badge(detail.task.status.as_str())) }
            p.why { (text::inert(&why)) }
            (facts(&detail))
        }
        @if state.token.is_some() { (actions(&detail)) }
        div id="message" data-part {
            @if let Some(message) = detail.task.message.as_deref().filter(|message| !message.is_empty()) {
                h2 { "What PostgreSQL said" }
                pre.message tabindex="0" { (text::inert_lines(message)) }
            }
        }
        h2 { "Command" }
        pre.command tabindex="0" { (text::inert_lines(&detail.task.command)) }
        div id="attempts" data-part {
            @if !detail.attempts.is_empty() {
                h2 { "Attempts" }
                @for attempt in detail.attempts.iter().rev() { (row(attempt, detail.task.now)) }
            }
        }
    };
    let live = format!("/live?job={}", detail.task.job_id);
    let frame = Frame {
        title: &name,
        live: Some(&live),
        now: Some(detail.task.now),
        steerable: state.token.is_some(),
        here: "",
    };
    Ok(super::page(StatusCode::OK, &frame, &body))
}

fn facts(detail: &TaskDetail) -> Markup {
    let task = &detail.task;
    html! {
        dl {
            @if let Some(sqlstate) = &task.sqlstate { div { dt { "SQLSTATE" } dd { code.sqlstate { (text::inert(sqlstate)) } } } }
            div { dt { "Owner" } dd { (text::inert(&task.owner)) } }
            div { dt { "Node" } dd { (text::inert(task.node.as_deref().unwrap_or("home"))) } }
            @if let Some(nodes) = task.nodes_involved.as_ref().filter(|nodes| !nodes.is_empty()) {
                div { dt { "Takes slots on" } dd { (text::inert(&nodes.join(", "))) } }
            }
            @if task.priority != 0 { div { dt { "Priority" } dd { (task.priority) } } }
            @if task.attempt > 0 { div { dt { "Attempts" } dd { (task.attempt) } } }
            @if task.retry_count > 0 { div { dt { "Failed" } dd { (task.retry_count) " times" } } }
            @if task.interruptions > 0 { div { dt { "Interrupted" } dd { (task.interruptions) " times" } } }
            @if let Some(pid) = task.pid { div { dt { "Backend" } dd { (pid) } } }
            @if let Some(at) = &task.not_before { div { dt { "Not before" } dd { (text::inert(at)) } } }
            @if let Some(at) = task.started_at { div { dt { "Started" } dd { (moment(at)) } } }
            @if let Some(at) = task.finished_at { div { dt { "Ended" } dd { (moment(at)) } } }
            @if !detail.depends_on.is_empty() {
                div.wide { dt { "Waits for" } dd {
                    @for (i, dependency) in detail.depends_on.iter().enumerate() {
                        @if i > 0 { ", " }
                        a href={ "/tasks/" (dependency.task_id) } { (task_name(dependency.task_id, dependency.name.as_deref())) }
                        " (" (dependency.status) @if let Some(why) = &dependency.refused { ", refused: " (text::inert(why)) } ")"
                    }
                } }
            }
            @if !detail.dependants.is_empty() {
                div.wide { dt { "Waited for by" } dd {
                    @for (i, task) in detail.dependants.iter().take(DEPENDANTS_SHOWN).enumerate() {
                        @if i > 0 { ", " }
                        a href={ "/tasks/" (task) } { "#" (task) }
                    }
                    @if detail.dependants.len() > DEPENDANTS_SHOWN { " and " (detail.dependants.len() - DEPENDANTS_SHOWN) " more" }
                } }
            }
        }
    }
}

fn actions(detail: &TaskDetail) -> Markup {
    let to = |what: &str| format!("/api/v1/tasks/{}/{what}", detail.task.task_id);
    html! {
        p.actions id="actions" data-part {
            @if detail.task.status.is_terminal() { (action("Retry", &to("retry"), None)) }
            @else { (action("Cancel", &to("cancel"), Some("Cancel this task?"))) }
        }
    }
}

fn row(attempt: &Attempt, now: Timestamp) -> Markup {
    html! {
        section.attempt {
            h3 {
                "Attempt " (attempt.attempt) " " (badge(attempt.outcome.as_deref().unwrap_or("running")))
                @if let Some(sqlstate) = &attempt.sqlstate { " " code.sqlstate { (text::inert(sqlstate)) } }
            }
            p.sub {
                @if let Some(at) = attempt.started_at { (moment(at)) " · " }
                (took(attempt.started_at, attempt.ended_at, now))
                " · " @if attempt.node.is_empty() { "home" } @else { (text::inert(&attempt.node)) }
                @if let Some(pid) = attempt.pid { " · backend " (pid) }
            }
            @if let Some(message) = attempt.message.as_deref().filter(|message| !message.is_empty()) {
                details id={ "attempt-" (attempt.attempt) } {
                    summary { "What it said" }
                    pre.message tabindex="0" { (text::inert_lines(message)) }
                }
            }
        }
    }
}
