//! Schedules as the catalog shows them, and steering them.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::{QueryError, id_text};
use crate::model::schedule::{BadSchedule, CatchUp, Overlap, Schedule as Rule};

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schedule {
    /// Its id.
    #[serde(serialize_with = "id_text")]
    pub schedule_id: i64,
    /// Its name, unique for its owner.
    pub name: String,
    /// Whose jobs it makes.
    pub owner: String,
    /// The pattern of its ticks; else `every_seconds`.
    pub cron: Option<String>,
    /// The interval between its ticks.
    pub every_seconds: Option<f64>,
    /// In which the pattern is meant.
    pub time_zone: String,
    /// What happens when the job before has not ended: skip, queue or allow.
    pub overlap: String,
    /// What happens after an absence: latest, all or none.
    pub catch_up: String,
    /// Does it rest?
    pub paused: bool,
    /// The next tick, unless it rests or there is none.
    pub next_tick: Option<Timestamp>,
    /// Why the rule, or the last job, was refused.
    pub error: Option<String>,
    /// The newest tick.
    pub last_tick: Option<Timestamp>,
    /// What came of it: made, overlaps, missed or refused.
    pub last_outcome: Option<String>,
    /// Its job, as text.
    pub last_job_id: Option<String>,
    /// Where intervals begin.
    pub submitted_at: Timestamp,
}

impl Schedule {
    /// The next `count` ticks after a moment, were it not for pauses.
    ///
    /// # Errors
    /// If the rule is none.
    pub fn preview(&self, after: Timestamp, count: usize) -> Result<Vec<Timestamp>, BadSchedule> {
        let every = self.every_seconds.and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
        let (overlap, catch_up) = (Overlap::Skip, CatchUp::Latest);
        let rule = Rule::new(self.cron.as_deref(), every, &self.time_zone, overlap, catch_up)?;
        Ok(rule.preview(after, self.submitted_at, count))
    }
}

/// What can be asked for a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Make no more jobs until it is resumed.
    Pause,
    /// Go on with the next tick.
    Resume,
    /// Remove it; its jobs stay.
    Delete,
}

/// `$1`: an id or a name; NULL for all.
const LIST: &str = "
    SELECT s.schedule_id, s.name, s.owner::text, s.cron, extract(epoch FROM s.every)::float8, s.time_zone, s.overlap,
           s.catch_up, s.paused, s.next_tick, s.error, s.last_tick, s.last_outcome, s.last_job_id::text, s.submitted_at
      FROM yardmaster.schedule s
     WHERE $1 IS NULL OR s.name = $1 OR s.schedule_id::text = $1
     ORDER BY s.name, s.schedule_id";
const PAUSE: &str = "SELECT yardmaster.schedule_pause($1)";
const RESUME: &str = "SELECT yardmaster.schedule_resume($1)";
const DELETE: &str = "SELECT yardmaster.schedule_delete($1)";

/// All that the caller may see, by name.
///
/// # Errors
/// See [`QueryError`].
pub async fn list(client: &Client) -> Result<Vec<Schedule>, QueryError> {
    find(client, None).await
}

/// The one with this id or name.
///
/// # Errors
/// [`QueryError::Refused`] if there is none, or several of different owners.
pub async fn one(client: &Client, word: &str) -> Result<Schedule, QueryError> {
    let mut found = find(client, Some(word)).await?;
    let refused = |sqlstate: &str, message: String, hint: &str| QueryError::Refused {
        sqlstate: sqlstate.to_owned(),
        message,
        hint: Some(hint.to_owned()),
    };
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let hint = "`yardmaster schedule list` shows those that you may see";
            Err(refused("42704", format!("schedule \"{word}\" does not exist"), hint))
        }
        n => {
            let hint = "name it by its id: see `yardmaster schedule list`";
            Err(refused("42725", format!("{n} schedules of different owners are named \"{word}\""), hint))
        }
    }
}

async fn find(client: &Client, word: Option<&str>) -> Result<Vec<Schedule>, QueryError> {
    client.query_typed(LIST, &[(&word, Type::TEXT)]).await?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Schedule, QueryError> {
    Ok(Schedule {
        schedule_id: row.try_get(0)?,
        name: row.try_get(1)?,
        owner: row.try_get(2)?,
        cron: row.try_get(3)?,
        every_seconds: row.try_get(4)?,
        time_zone: row.try_get(5)?,
        overlap: row.try_get(6)?,
        catch_up: row.try_get(7)?,
        paused: row.try_get(8)?,
        next_tick: row.try_get(9)?,
        error: row.try_get(10)?,
        last_tick: row.try_get(11)?,
        last_outcome: row.try_get(12)?,
        last_job_id: row.try_get(13)?,
        submitted_at: row.try_get(14)?,
    })
}

/// Pauses, resumes or deletes a schedule; it counts from the commit on.
///
/// # Errors
/// [`QueryError::Refused`] for one that the caller may not steer.
pub async fn change(client: &Client, what: Change, schedule_id: i64) -> Result<(), QueryError> {
    let sql = match what {
        Change::Pause => PAUSE,
        Change::Resume => RESUME,
        Change::Delete => DELETE,
    };
    client.query_typed(sql, &[(&schedule_id, Type::INT8)]).await?;
    Ok(())
}
