//! Rollup: the counts of a job's tasks say what state the job is in.
//!
//! The leader rolls jobs up in SQL (`yardmaster.job_status_of`, migration V5), in the turn that settles their
//! tasks; this is the same function for everybody who thinks in Rust. [`cases`] lists inputs and answers so that
//! one database test can hold the two together.

use super::JobStatus;

/// Returns the state of a job with `tasks` tasks, of which `done` are done and `bad` ended badly (error, unscheduled
/// or cancelled). `started`: was there any attempt of any task?
///
/// The first of these that applies: cancel requested → cancelling while a task is open, else cancelled; all done
/// (also: no task at all) → finished; any bad → failing while a task is open, else failed; no attempt yet →
/// scheduled; else running. Counts are not negative, and `done + bad` is at most `tasks`.
///
/// When a task ends badly its dependants become unscheduled in the same turn, so every open task can still run.
pub fn job_status(cancel_requested: bool, tasks: i64, done: i64, bad: i64, started: bool) -> JobStatus {
    let open = tasks.saturating_sub(done) > bad;
    if cancel_requested {
        if open { JobStatus::Cancelling } else { JobStatus::Cancelled }
    } else if tasks == done {
        JobStatus::Finished
    } else if !open {
        JobStatus::Failed
    } else if bad > 0 {
        JobStatus::Failing
    } else if started {
        JobStatus::Running
    } else {
        JobStatus::Scheduled
    }
}

/// The arguments of [`job_status`], in its order.
pub type JobCounts = (bool, i64, i64, i64, bool);

/// Lists every possible input of [`job_status`] with up to `max_tasks` tasks, and its answer.
pub fn cases(max_tasks: i64) -> impl Iterator<Item = (JobCounts, JobStatus)> {
    let counts = (0..=max_tasks).flat_map(|tasks| {
        (0..=tasks).flat_map(move |done| (0..=tasks - done).map(move |bad| (tasks, done, bad)))
    });
    counts.flat_map(|(tasks, done, bad)| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(cancel_requested, started)| {
            let answer = job_status(cancel_requested, tasks, done, bad, started);
            ((cancel_requested, tasks, done, bad, started), answer)
        })
    })
}
