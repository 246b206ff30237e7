//! Waiting for jobs and tasks: looks by key, many times a second, over one connection.
//!
//! Waiting changes nothing. A status that came and went between two looks counts only if it was seen (SPEC section
//! 2). `run`, `job wait`, `submit --wait` and `cancel --wait` all come here.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;

use super::CliError;
use super::progress::Screen;
use crate::db::inspect::progress::Follower;
use crate::db::inspect::{jobs, tasks};
use crate::model::{JobId, JobStatus, TaskId, TaskStatus};

/// Between two looks by key.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between two looks that also draw progress.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// A look rests at least so many times its own length, so that watching a huge job costs at most a tenth of one core.
const REST_FACTOR: u32 = 9;

/// What a wait is for.
#[derive(Debug, Clone, Copy)]
pub struct Goal<S> {
    /// The status; none: any terminal one.
    pub desired: Option<S>,
    /// How long at most; none: for ever.
    pub timeout: Option<Duration>,
}

/// What a look means for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Waiting,
    Reached,
    Missed,
}

fn judge<S: PartialEq + Copy>(state: S, is_terminal: bool, desired: Option<S>) -> Verdict {
    match desired {
        Some(desired) if state == desired => Verdict::Reached,
        Some(_) if is_terminal => Verdict::Missed,
        None if is_terminal => Verdict::Reached,
        Some(_) | None => Verdict::Waiting,
    }
}

/// Waits until every job has reached the goal; says in which state each was seen then.
///
/// # Errors
/// [`CliError::Unknown`], [`CliError::Missed`], [`CliError::TimedOut`], or the connection's.
pub async fn jobs(
    client: &Client,
    ids: &[JobId],
    goal: Goal<JobStatus>,
    screen: &mut Screen,
) -> Result<Vec<(JobId, JobStatus)>, CliError> {
    let result = watch_jobs(client, ids, goal, screen).await;
    screen.finish();
    result
}

async fn watch_jobs(
    client: &Client,
    ids: &[JobId],
    goal: Goal<JobStatus>,
    screen: &mut Screen,
) -> Result<Vec<(JobId, JobStatus)>, CliError> {
    let start = Instant::now();
    let mut followers: Vec<Follower> = ids.iter().map(|id| Follower::new(*id, screen.from_start())).collect();
    let mut reached: BTreeMap<JobId, JobStatus> = BTreeMap::new();
    loop {
        let look_start = Instant::now();
        let seen = if screen.is_silent() {
            jobs::states(client, ids).await?
        } else {
            let mut looks = Vec::with_capacity(followers.len());
            for follower in &mut followers {
                looks.extend(follower.look(client).await?);
            }
            screen.show(&looks);
            looks.iter().map(|look| (look.job.job_id, look.job.state)).collect()
        };
        let look_length = look_start.elapsed();
        let mut open = None;
        for id in ids {
            if reached.contains_key(id) {
                continue;
            }
            let Some((_, state)) = seen.iter().find(|(seen, _)| seen == id) else {
                return Err(CliError::Unknown { what: "job", id: id.0 });
            };
            match judge(*state, state.is_terminal(), goal.desired) {
                Verdict::Reached => {
                    reached.insert(*id, *state);
                }
                Verdict::Missed => return Err(missed("job", id.0, *state, goal.desired)),
                Verdict::Waiting => open = open.or(Some((id.0, *state))),
            }
        }
        let Some((id, state)) = open else {
            return Ok(reached.into_iter().collect());
        };
        let every = if screen.is_silent() { LOOK_EVERY } else { DRAW_EVERY };
        rest("job", id, state, goal.timeout, start, every.max(look_length * REST_FACTOR)).await?;
    }
}

/// Waits until a task has reached the goal; says in which status it was seen then.
///
/// # Errors
/// As [`jobs()`].
pub async fn task(client: &Client, id: TaskId, goal: Goal<TaskStatus>) -> Result<TaskStatus, CliError> {
    let start = Instant::now();
    loop {
        let Some(status) = tasks::status_of(client, id).await? else {
            return Err(CliError::Unknown { what: "task", id: id.0 });
        };
        match judge(status, status.is_terminal(), goal.desired) {
            Verdict::Reached => return Ok(status),
            Verdict::Missed => return Err(missed("task", id.0, status, goal.desired)),
            Verdict::Waiting => rest("task", id.0, status, goal.timeout, start, LOOK_EVERY).await?,
        }
    }
}

fn missed<S: Display>(what: &'static str, id: i64, reached: S, desired: Option<S>) -> CliError {
    let desired = desired.map_or_else(String::new, |status| status.to_string());
    CliError::Missed { what, id, reached: reached.to_string(), desired }
}

/// Sleeps until the next look, but not beyond the limit; the last look comes at the limit.
async fn rest(
    what: &'static str,
    id: i64,
    state: impl Display,
    timeout: Option<Duration>,
    start: Instant,
    pause: Duration,
) -> Result<(), CliError> {
    let Some(timeout) = timeout else {
        tokio::time::sleep(pause).await;
        return Ok(());
    };
    let left = timeout.saturating_sub(start.elapsed());
    if left.is_zero() {
        return Err(CliError::TimedOut { what, id, state: state.to_string(), timeout });
    }
    tokio::time::sleep(pause.min(left)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_status_or_when_it_can_no_longer_come() {
        let verdict = |state: JobStatus, desired| judge(state, state.is_terminal(), desired);
        assert_eq!(verdict(JobStatus::Running, None), Verdict::Waiting);
        assert_eq!(verdict(JobStatus::Failed, None), Verdict::Reached);
        assert_eq!(verdict(JobStatus::Running, Some(JobStatus::Running)), Verdict::Reached);
        assert_eq!(verdict(JobStatus::Finished, Some(JobStatus::Running)), Verdict::Missed);
        assert_eq!(verdict(JobStatus::Failing, Some(JobStatus::Finished)), Verdict::Waiting);
    }
}
