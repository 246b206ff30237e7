//! The list of jobs.

use actix_web::http::StatusCode;
use actix_web::web;
use maud::{Markup, html};

use super::super::query::JobsQuery;
use super::super::state::State;
use super::frame::Frame;
use super::parts::{ago, badge, bar, share, took};
use super::{Failed, Page};
use crate::db::gauge::{self, NodeSlots};
use crate::db::inspect::jobs::{self, Job};
use crate::db::inspect::service::{self, Leader};
use crate::model::{JobStatus, text};

/// `/`
pub(super) async fn shown(
    state: &State,
    query: &JobsQuery,
) -> Result<(Vec<Job>, bool, Leader, Vec<NodeSlots>), Failed> {
    let (filter, shown) = query.filter()?;
    let (mut found, leader, nodes) = state
        .readers
        .ask(async |client| {
            Ok((
                jobs::list(client, &filter).await?,
                service::leader(client).await?,
                gauge::nodes(client).await?,
            ))
        })
        .await?;
    let more = found.len() > shown;
    found.truncate(shown);
    Ok((found, more, leader, nodes))
}

/// The page.
pub(in super::super) async fn page(state: web::Data<State>, query: web::Query<JobsQuery>) -> Page {
    let (found, more, leader, nodes) = shown(&state, &query).await?;
    let body = html! {
        h1 { "Jobs" }
        p.strip id="strip" data-part { (leads(&leader)) (slots(&nodes)) }
        (filters(&query))
        div.rows id="jobs" data-part {
            @if found.is_empty() {
                p.empty {
                    @if query.search.is_empty() && query.state.is_empty() && query.after.is_none() {
                        "No job yet. Submit one: " code { "yardmaster job submit examples/first-minute.toml" }
                    } @else { "No job fits." }
                }
            }
            @for job in &found { (row(job)) }
        }
        @if let (true, Some(last)) = (more, found.last()) {
            p.pager { a href=(address(&query, &query.state, Some(last.job_id.0))) rel="next" { "Older jobs" } }
        }
    };
    let now = found.first().map(|job| job.now);
    let frame =
        Frame { title: "Jobs", live: Some("/live"), now, steerable: state.token.is_some(), here: "/" };
    Ok(super::page(StatusCode::OK, &frame, &body))
}

fn leads(leader: &Leader) -> Markup {
    html! {
        @if leader.alive {
            span { span.dot.good aria-hidden="true" {} "led by " strong { (text::inert(&leader.instance)) } }
        } @else if leader.ever() {
            span { span.dot.wrong aria-hidden="true" {} "no leader for " (text::duration(leader.silent_for)) }
        } @else {
            span { span.dot.wrong aria-hidden="true" {} "no service has led yet" }
        }
    }
}

fn slots(nodes: &[NodeSlots]) -> Markup {
    html! {
        @if let Some(all) = nodes.iter().find(|node| node.node.is_empty()) {
            span { strong { (all.used) } " of " (all.limit) " slots in use" }
        }
    }
}

fn filters(query: &JobsQuery) -> Markup {
    let chips = [
        ("all", String::new()),
        (
            "active",
            [JobStatus::Scheduled, JobStatus::Running, JobStatus::Failing, JobStatus::Cancelling]
                .map(JobStatus::as_str)
                .join(","),
        ),
        ("finished", JobStatus::Finished.as_str().to_owned()),
        ("failed", JobStatus::Failed.as_str().to_owned()),
        ("cancelled", JobStatus::Cancelled.as_str().to_owned()),
    ];
    html! {
        form.filters method="get" action="/" role="search" {
            input type="search" name="search" value=(query.search) placeholder="Search description, type, key, owner, id"
                aria-label="Search jobs" maxlength="200";
            @if !query.state.is_empty() { input type="hidden" name="state" value=(query.state); }
            button type="submit" { "Search" }
            nav.chips aria-label="Filter by state" {
                @for (label, state) in &chips {
                    a href=(address(query, state, None)) aria-current=[(*state == query.state).then_some("true")] { (label) }
                }
            }
        }
    }
}

fn address(query: &JobsQuery, state: &str, after: Option<i64>) -> String {
    let mut url = form_urlencoded::Serializer::new(String::new());
    if !state.is_empty() {
        url.append_pair("state", state);
    }
    if !query.search.is_empty() {
        url.append_pair("search", &query.search);
    }
    if let Some(after) = after {
        url.append_pair("after", &after.to_string());
    }
    format!("/?{}", url.finish())
}

fn row(job: &Job) -> Markup {
    let title = job.description.as_deref().or(job.job_type.as_deref()).unwrap_or("without a description");
    html! {
        a.row.job href={ "/jobs/" (job.job_id) } {
            span.what {
                span.title { (text::inert(title)) }
                span.sub { "#" (job.job_id) " · " (text::inert(&job.owner)) " · " (ago(job.submitted_at, job.now)) }
            }
            span.state { (badge(job.state.as_str())) @if job.paused { " " (badge("paused")) } }
            span.progress { (bar(job)) span.sub { (share(job)) } }
            span.took { (took(job.started_at, job.finished_at, job.now)) }
        }
    }
}
