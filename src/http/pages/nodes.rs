//! The nodes with their slots, and what runs.

use actix_web::http::StatusCode;
use actix_web::web;
use maud::{Markup, html};

use super::super::state::State;
use super::Page;
use super::frame::Frame;
use super::parts::{badge, task_name, took};
use crate::db::gauge::{self, NodeSlots};
use crate::db::inspect::service;
use crate::model::text;

/// Slots that are drawn one by one; more are drawn as a bar.
const MOST_SQUARES: i64 = 60;

/// `/nodes`
pub(in super::super) async fn page(state: web::Data<State>) -> Page {
    let (nodes, overview) = state
        .readers
        .ask(async |client| Ok((gauge::nodes(client).await?, service::overview(client).await?)))
        .await?;
    let now = jiff::Timestamp::now();
    let body = html! {
        h1 { "Nodes" }
        div.cards id="nodes" data-part { @for node in &nodes { (card(node, now)) } }
        h2 { "Running now" }
        div id="running" data-part {
            @if overview.running.is_empty() { p.empty { "Nothing runs." } }
            @else {
                div.scroll tabindex="0" role="region" aria-label="Running tasks" {
                    table {
                        thead { tr { th { "Task" } th { "Job" } th { "Node" } th { "Owner" } th { "Backend" } th.n { "For" } } }
                        tbody {
                            @for task in &overview.running {
                                tr {
                                    td { a href={ "/tasks/" (task.task_id) } { (task_name(task.task_id, task.name.as_deref())) } }
                                    td { a href={ "/jobs/" (task.job_id) } { "#" (task.job_id) } }
                                    td { (text::inert(task.node.as_deref().unwrap_or("home"))) }
                                    td { (text::inert(&task.owner)) }
                                    td { @if let Some(pid) = task.pid { (pid) } }
                                    td.n { (took(task.started_at, None, now)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    let frame = Frame {
        title: "Nodes",
        live: Some("/live"),
        now: Some(now),
        steerable: state.token.is_some(),
        here: "/nodes",
    };
    Ok(super::page(StatusCode::OK, &frame, &body))
}

fn card(node: &NodeSlots, now: jiff::Timestamp) -> Markup {
    let all = node.node.is_empty();
    html! {
        section.card {
            h2 { @if all { "All nodes" } @else { (text::inert(&node.node)) } }
            p.sub {
                @if all { "max_task_executors" }
                @else if node.declared {
                    (badge(&node.state))
                    @if let Some(since) = node.since { " for " (text::between(since, now)) }
                    @if let Some(reason) = &node.reason { ": " (text::inert(reason)) }
                } @else { "a name whose slots are counted" }
            }
            (squares(node))
            p { strong { (node.used) } " of " (node.limit) " slots in use" }
        }
    }
}

fn squares(node: &NodeSlots) -> Markup {
    let shown = node.limit.max(node.used);
    if shown > MOST_SQUARES {
        let share = node.used as f64 * 100.0 / shown as f64;
        return html! {
            svg.bar viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" {
                rect.rest x="0" y="0" width="100" height="1" {}
                rect.used x="0" y="0" width=(format!("{share:.2}")) height="1" {}
            }
        };
    }
    html! {
        p.squares aria-hidden="true" {
            @for slot in 0..shown { span.slot.used[slot < node.used] {} }
        }
    }
}
