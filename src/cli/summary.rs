//! The closing words about jobs: one line each, the first error, and for `run` the table of tasks.

use std::collections::BTreeMap;

use comfy_table::Cell;
use tokio_postgres::Client;

use super::output::{Output, cell, number, task_cell};
use super::{CliError, Exit, text};
use crate::db::inspect::jobs::{self, Job};
use crate::db::inspect::tasks::{self, Task};
use crate::model::{JobId, JobStatus, TaskStatus};

/// Rows of the closing table; failures come first.
const MAX_ROWS: i64 = 40;

/// Tells how each job ended (its error on standard error) and what that means for the exit code.
///
/// # Errors
/// See [`CliError`].
pub async fn ends(output: &Output, client: &Client, ids: &[JobId]) -> Result<Exit, CliError> {
    let mut exit = Exit::Well;
    let mut ended = Vec::new();
    for id in ids {
        let job = jobs::show(client, *id).await?.ok_or(CliError::Unknown { what: "job", id: id.0 })?;
        if !output.is_json() {
            output.line(&end_line(&job, &jobs::bad_endings(client, &job).await?))?;
        }
        if job.state != JobStatus::Finished {
            exit = Exit::WorkFailed;
            if let Some(task) = tasks::first_error(client, *id).await? {
                output.fail(&first_error(&task));
            }
        }
        ended.push(job);
    }
    if output.is_json() {
        match ended.as_slice() {
            [job] => output.json(job)?,
            all => output.json(&all)?,
        }
    }
    Ok(exit)
}

/// The closing table of `run` and `submit --wait`: what became of the tasks, failures first, at most `MAX_ROWS`.
///
/// # Errors
/// See [`CliError`].
pub async fn table(output: &Output, client: &Client, ids: &[JobId]) -> Result<(), CliError> {
    let rows = tasks::worst_first(client, ids, MAX_ROWS).await?;
    let mut total = 0;
    for id in ids {
        total += jobs::show(client, *id).await?.map_or(0, |job| job.tasks);
    }
    output.write(&task_table(output, &rows))?;
    output.write("\n")?;
    let more = total - i64::try_from(rows.len()).unwrap_or(i64::MAX);
    if more > 0 {
        output.line(&format!("… and {} more", text::count(more)))?;
    }
    Ok(())
}

fn task_table(output: &Output, rows: &[Task]) -> String {
    output.table(&["task", "name", "status", "attempts", "duration", "message"], rows.iter().map(row))
}

fn row(task: &Task) -> Vec<Cell> {
    vec![
        number(task.task_id),
        cell(task.name.as_deref().unwrap_or("-")),
        task_cell(task.status),
        number(task.attempt),
        number(took(task).unwrap_or_else(|| "-".to_owned())),
        cell(task.message.as_deref().map(text::headline).unwrap_or_default()),
    ]
}

/// How long the newest attempt of a task took, or takes so far.
pub fn took(task: &Task) -> Option<String> {
    let start = task.started_at?;
    match task.finished_at {
        Some(end) => Some(text::between(start, end)),
        None if task.status.is_terminal() || task.pid.is_none() => None,
        None => Some(text::between(start, task.now)),
    }
}

/// `job 7 failed: 9 of 12 tasks done, 1 failed, 2 unscheduled in 4.2s`. `endings` are those that are not done.
pub fn end_line(job: &Job, endings: &BTreeMap<TaskStatus, i64>) -> String {
    let start = job.started_at.unwrap_or(job.submitted_at);
    let length = text::between(start, job.finished_at.unwrap_or(job.now));
    let mut line = format!(
        "job {} {}: {} of {} done",
        job.job_id,
        job.state,
        text::count(job.tasks_done),
        text::plural(job.tasks, "task")
    );
    for (status, n) in endings {
        let word = if *status == TaskStatus::Error { "failed" } else { status.as_str() };
        line.push_str(&format!(", {} {word}", text::count(*n)));
    }
    line.push_str(&format!(" in {length}"));
    line
}

fn first_error(task: &Task) -> String {
    let title = text::task_title(task.task_id, task.name.as_deref());
    let code = task.sqlstate.as_deref().map(|code| format!(" ({})", text::inert(code))).unwrap_or_default();
    let message = task.message.as_deref().map(text::headline).unwrap_or_default();
    format!("{title} of job {} failed{code}: {message}", task.job_id)
}
