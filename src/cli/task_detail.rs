//! `task show`: everything about one task.

use super::output::{cell, maybe, number};
use super::{CliError, Context, Exit, summary, text};
use crate::db::inspect::tasks::{self, Attempt, TaskDetail};
use crate::model::TaskId;

/// Dependants named; JSON has them all.
const DEPENDANTS_SHOWN: usize = 20;

pub(super) async fn show(context: &Context, id: TaskId) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let detail =
        tasks::show(&connection.client, id).await?.ok_or(CliError::Unknown { what: "task", id: id.0 })?;
    if context.output.is_json() {
        context.output.json(&detail)?;
        return Ok(Exit::Well);
    }
    context.output.line(&fields(&detail).join("\n"))?;
    if !detail.attempts.is_empty() {
        let rows = detail.attempts.iter().map(attempt_row);
        let titles = ["attempt", "outcome", "started", "took", "node", "pid", "sqlstate", "message"];
        context.output.line(&format!("\n{}", context.output.table(&titles, rows)))?;
    }
    if let Some(message) = detail.task.message.as_deref().filter(|message| !message.is_empty()) {
        context.output.line(&format!("\nmessage\n{}", indented(message)))?;
    }
    context.output.line(&format!("\ncommand\n{}", indented(&detail.task.command)))?;
    Ok(Exit::Well)
}

fn indented(block: &str) -> String {
    text::inert_lines(block).trim_end().lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn fields(detail: &TaskDetail) -> Vec<String> {
    let task = &detail.task;
    let title = text::task_title(task.task_id, task.name.as_deref());
    let mut lines = vec![format!("{title} of job {}: {}", task.job_id, task.status)];
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("  {name:<14}{}", text::inert(&value)));
        }
    };
    field("owner", Some(task.owner.clone()));
    field("node", Some(task.node.clone().unwrap_or_else(|| "home".to_owned())));
    field(
        "takes slots on",
        task.nodes_involved.as_ref().filter(|nodes| !nodes.is_empty()).map(|nodes| nodes.join(", ")),
    );
    field("priority", (task.priority != 0).then(|| task.priority.to_string()));
    field("not before", task.not_before.clone());
    field("attempts", (task.attempt > 0).then(|| task.attempt.to_string()));
    field("failed", (task.retry_count > 0).then(|| task.retry_count.to_string()));
    field("interrupted", (task.interruptions > 0).then(|| task.interruptions.to_string()));
    field("backend", task.pid.map(|pid| pid.to_string()));
    field("started", task.started_at.map(text::moment));
    field("finished", task.finished_at.map(text::moment));
    field("took", summary::took(task));
    field("sqlstate", task.sqlstate.clone());
    for dependency in &detail.depends_on {
        let title = text::task_title(dependency.task_id, dependency.name.as_deref());
        let refused = dependency.refused.as_ref().map(|why| format!(", refused: {why}")).unwrap_or_default();
        field("depends on", Some(format!("{title} ({}{refused})", dependency.status)));
    }
    if !detail.dependants.is_empty() {
        let named =
            detail.dependants.iter().take(DEPENDANTS_SHOWN).map(ToString::to_string).collect::<Vec<_>>();
        let more = detail.dependants.len().saturating_sub(DEPENDANTS_SHOWN);
        let more = if more > 0 { format!(" … and {more} more") } else { String::new() };
        field("dependants", Some(format!("{}{more}", named.join(", "))));
    }
    lines
}

fn attempt_row(attempt: &Attempt) -> Vec<comfy_table::Cell> {
    let took = attempt.started_at.zip(attempt.ended_at).map(|(start, end)| text::between(start, end));
    vec![
        number(attempt.attempt),
        cell(attempt.outcome.as_deref().unwrap_or("running")),
        maybe(attempt.started_at.map(text::moment).as_deref()),
        number(took.unwrap_or_else(|| "-".to_owned())),
        cell(if attempt.node.is_empty() { "home" } else { &attempt.node }),
        number(attempt.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
        maybe(attempt.sqlstate.as_deref()),
        cell(attempt.message.as_deref().map(text::headline).unwrap_or_default()),
    ]
}
