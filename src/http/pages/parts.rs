//! Small things that several pages show.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use crate::db::inspect::jobs::Job;
use crate::model::{TaskStatus, text};

/// A status as a badge: sign, word and colour, so that no one of them is needed.
pub(super) fn badge(status: &str) -> Markup {
    html! { span class={ "badge s-" (status) } { span.sign aria-hidden="true" { (sign(status)) } (status) } }
}

/// The sign of a status.
pub(super) fn sign(status: &str) -> &'static str {
    match status {
        "done" | "finished" | "active" => "✓",
        "error" | "failed" | "failing" | "down" => "✕",
        "running" => "▶",
        "runnable" | "scheduled" => "◦",
        "cancelled" | "cancelling" => "⊘",
        "interrupted" => "↻",
        "paused" => "‖",
        "unscheduled" => "–",
        _ => "·",
    }
}

/// The progress of a job: done, failed, and the rest.
pub(super) fn bar(job: &Job) -> Markup {
    let all = job.tasks.max(1) as f64;
    let (done, bad) = (job.tasks_done as f64 * 100.0 / all, job.tasks_failed as f64 * 100.0 / all);
    let says = format!("{} of {} tasks done, {} failed", job.tasks_done, job.tasks, job.tasks_failed);
    html! {
        svg.bar viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label=(says) {
            rect.rest x="0" y="0" width="100" height="1" {}
            rect.done x="0" y="0" width=(format!("{done:.2}")) height="1" {}
            rect.bad x=(format!("{done:.2}")) y="0" width=(format!("{bad:.2}")) height="1" {}
        }
    }
}

/// How far a job is, in words.
pub(super) fn share(job: &Job) -> Markup {
    html! {
        (text::count(job.tasks_done)) "/" (text::count(job.tasks))
        @if job.tasks_failed > 0 { " · " span.bad { (text::count(job.tasks_failed)) " failed" } }
        @if let Some(eta) = job.eta().filter(|eta| eta.as_secs() > 0) { " · about " (text::duration(eta)) " left" }
    }
}

/// A moment, to the second, in UTC; the whole of it as a title.
pub(super) fn moment(at: Timestamp) -> Markup {
    html! { time datetime=(at) title=(at) { (at.strftime("%Y-%m-%d %H:%M:%S").to_string()) " UTC" } }
}

/// How long ago, as of now; it does not tick.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(at) { (text::between(at, now)) " ago" } }
}

/// How long something took, or has been running; the latter ticks in the browser.
pub(super) fn took(start: Option<Timestamp>, end: Option<Timestamp>, now: Timestamp) -> Markup {
    match (start, end) {
        (Some(start), Some(end)) => {
            html! { (text::duration(end.duration_since(start).max(SignedDuration::ZERO))) }
        }
        (Some(start), None) => {
            html! { span data-since=(start.as_millisecond()) { (text::between(start, now)) } }
        }
        (None, _) => html! { "–" },
    }
}

/// A task's name, or its number.
pub(super) fn task_name(id: impl std::fmt::Display, name: Option<&str>) -> String {
    name.map_or_else(|| format!("task {id}"), |name| text::inert(name).into_owned())
}

/// The statuses of tasks in the order in which they are told.
pub(super) const STATUSES: [TaskStatus; 8] = [
    TaskStatus::Error,
    TaskStatus::Running,
    TaskStatus::Cancelling,
    TaskStatus::Runnable,
    TaskStatus::Blocked,
    TaskStatus::Unscheduled,
    TaskStatus::Cancelled,
    TaskStatus::Done,
];

/// Asks for an action, if the page may steer.
pub(super) fn action(label: &str, to: &str, confirm: Option<&str>) -> Markup {
    html! { button type="button" data-action=(to) data-confirm=[confirm] { (label) } }
}
