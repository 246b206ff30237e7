//! What requests ask for, read strictly: an unknown filter or a word that is no status is an error, not ignored.

use std::str::FromStr;

use serde::Deserialize;

use super::error::Problem;
use crate::db::inspect::jobs::JobFilter;
use crate::db::inspect::tasks::TaskFilter;
use crate::model::{JobId, JobStatus, TaskId, TaskStatus};

/// Rows of a page unless asked otherwise.
const USUAL: i64 = 50;
/// The most rows of a page.
const MOST: i64 = 200;

/// Which jobs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsQuery {
    /// States, separated by commas.
    #[serde(default)]
    pub state: String,
    /// Text to look for.
    #[serde(default)]
    pub search: String,
    /// Only older jobs than this one.
    pub after: Option<i64>,
    /// Rows.
    pub limit: Option<i64>,
}

/// Which tasks of a job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TasksQuery {
    /// Statuses, separated by commas.
    #[serde(default)]
    pub status: String,
    /// Only later tasks than this one.
    pub after: Option<i64>,
    /// Rows.
    pub limit: Option<i64>,
}

impl JobsQuery {
    /// One row more than is shown, which tells whether there is a next page; and how many are shown.
    pub(super) fn filter(&self) -> Result<(JobFilter, usize), Problem> {
        let (limit, shown) = limit(self.limit)?;
        let search = self.search.trim();
        let filter = JobFilter {
            states: words::<JobStatus>(&self.state)?,
            search: (!search.is_empty()).then(|| search.to_owned()),
            after: self.after.map(JobId),
            limit: Some(limit),
        };
        Ok((filter, shown))
    }
}

impl TasksQuery {
    /// As [`JobsQuery::filter`].
    pub(super) fn filter(&self, job: JobId) -> Result<(TaskFilter, usize), Problem> {
        let (limit, shown) = limit(self.limit)?;
        let statuses = words::<TaskStatus>(&self.status)?;
        Ok((
            TaskFilter { job: Some(job), statuses, after: self.after.map(TaskId), limit: Some(limit) },
            shown,
        ))
    }
}

fn limit(limit: Option<i64>) -> Result<(i64, usize), Problem> {
    match limit.unwrap_or(USUAL) {
        n @ 1..=MOST => Ok((n + 1, usize::try_from(n).unwrap_or(usize::MAX))),
        n => Err(Problem::bad(format!("limit = {n} is out of range: 1 to {MOST}"))),
    }
}

fn words<S: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Vec<S>, Problem> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|e: S::Err| Problem::bad(e.to_string()))).collect()
}

/// Reads an id of the path.
pub(super) fn id(what: &str, text: &str) -> Result<i64, Problem> {
    text.parse().map_err(|_| Problem::bad(format!("{what} {text:?} is not a number")))
}
