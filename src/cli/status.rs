//! `yardmaster status`: one screen about everything.

use clap::Args;
use jiff::SignedDuration;

use super::output::{Output, cell, maybe, number, task_cell};
use super::{CliError, Context, Exit, text};
use crate::db::inspect::service::{self, Leader, Overview};

/// Rows of running tasks; JSON has them all.
const MAX_ROWS: usize = 20;

const EXAMPLES: &str = "\
Jobs are counted as far as they are retained, tasks as far as their job has not ended.

Examples:
  yardmaster status
  watch -n 2 yardmaster status
  yardmaster status -o json | jq '.running[].task_id'";

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {}

pub(super) async fn status(context: &Context) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let overview = service::overview(&connection.client).await?;
    if context.output.is_json() {
        context.output.json(&overview)?;
    } else {
        context.output.write(&screen(&context.output, &overview))?;
    }
    Ok(Exit::Well)
}

/// Warns once if nobody would carry out a request, or work at a job that is waited for.
pub(super) fn warn_if_nobody_leads(output: &Output, leader: &Leader) {
    if !leader.alive {
        output.warn(&format!(
            "{}: nothing happens until `yardmaster serve` runs on this database",
            service_line(leader)
        ));
    }
}

fn service_line(leader: &Leader) -> String {
    let name = text::inert(&leader.instance);
    if !leader.ever() {
        "no service has ever run".to_owned()
    } else if leader.alive {
        format!("{name} leads since {} (epoch {})", text::moment(leader.since), leader.epoch)
    } else {
        let silence = text::duration(leader.silent_for);
        format!("no service is running (last was {name}, silent for {silence})")
    }
}

fn screen(output: &Output, overview: &Overview) -> String {
    let mut lines = vec![format!("service  {}", service_line(&overview.leader))];
    lines.push(format!("jobs     {}", counts(&overview.jobs)));
    lines.push(format!("tasks    {}", counts(&overview.tasks)));
    if let Some(oldest) = &overview.oldest_runnable {
        let wait = SignedDuration::try_from_secs_f64(oldest.seconds).unwrap_or_default();
        lines.push(format!(
            "waiting  task {} of job {}, runnable, submitted {} ago",
            oldest.task_id,
            oldest.job_id,
            text::duration(wait)
        ));
    }
    if !overview.running.is_empty() {
        let rows = overview.running.iter().take(MAX_ROWS).map(|task| {
            let age =
                task.seconds.and_then(|s| SignedDuration::try_from_secs_f64(s).ok()).map(text::duration);
            vec![
                number(task.task_id),
                number(task.job_id),
                maybe(task.name.as_deref()),
                task_cell(task.status),
                number(age.unwrap_or_else(|| "-".to_owned())),
                cell(task.node.as_deref().unwrap_or("home")),
                cell(&task.owner),
                number(task.attempt),
                number(task.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
            ]
        });
        lines.push(String::new());
        lines.push(
            output.table(&["task", "job", "name", "status", "age", "node", "owner", "attempt", "pid"], rows),
        );
        if overview.running.len() > MAX_ROWS {
            lines.push(format!("… and {} more", overview.running.len() - MAX_ROWS));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

fn counts<S: std::fmt::Display>(by: &std::collections::BTreeMap<S, i64>) -> String {
    if by.is_empty() {
        return "none".to_owned();
    }
    by.iter().map(|(status, n)| format!("{} {status}", text::count(*n))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobStatus;

    #[test]
    fn counts_come_in_the_order_of_a_life() {
        let by = [(JobStatus::Failed, 1), (JobStatus::Scheduled, 20_000)].into_iter().collect();
        assert_eq!(counts(&by), "20,000 scheduled, 1 failed");
        assert_eq!(counts::<JobStatus>(&std::collections::BTreeMap::new()), "none");
    }

    #[test]
    fn a_silent_leader_and_no_leader_are_told_apart() {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let mut leader = Leader {
            instance: "vm\u{1b}1".to_owned(),
            epoch: 4,
            since: now,
            renewed_at: now,
            alive: false,
            silent_for: SignedDuration::from_secs(184),
        };
        assert_eq!(service_line(&leader), "no service is running (last was vm\\u{1b}1, silent for 3m 04s)");
        leader.epoch = 0;
        assert_eq!(service_line(&leader), "no service has ever run");
    }
}
