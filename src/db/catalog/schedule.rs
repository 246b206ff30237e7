//! Schedules: the leader looks which are due, lets [`crate::model::schedule`] decide, and makes the jobs.
//!
//! Beside the turns, on a connection of its own: each schedule is one statement under the fence, in which the jobs,
//! the ticks (a key: each is dealt with once, whoever leads) and the next tick commit together. The jobs then are new rows
//! like anybody's, found by the next look.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::{Client, Row};

use super::super::error::DbError;
use super::leadership::Office;
use crate::model::schedule::{CatchUp, Overlap, Plan, Schedule, Verdict};

/// The longest pause between two looks: so long a new schedule goes unnoticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Schedules that one look deals with.
const BATCH: i64 = 100;

/// Up to `$1` schedules that want something: a first tick, a job, or to be put to rest. A small table: as many rows as there
/// are schedules.
const DUE: &str = "
SELECT s.schedule_id, s.cron, extract(epoch FROM s.every)::float8, s.time_zone, s.overlap, s.catch_up, s.submitted_at,
       CASE WHEN s.resumed_at > s.next_tick THEN NULL ELSE s.next_tick END, s.resumed_at, s.paused,
       yardmaster.schedule_is_busy(s.schedule_id), clock_timestamp(), s.name
  FROM yardmaster.schedule_live s
 WHERE CASE WHEN s.paused THEN s.next_tick IS NOT NULL
            ELSE s.next_tick IS NULL OR s.next_tick <= clock_timestamp() OR s.resumed_at > s.next_tick END
 ORDER BY s.next_tick NULLS FIRST, s.schedule_id LIMIT $1";

/// Seconds to the next tick of all, if there is one; and whether something is to be removed.
const NEXT: &str = "
SELECT (SELECT extract(epoch FROM min(s.next_tick) - clock_timestamp())::float8 FROM yardmaster.schedule_live s
         WHERE NOT s.paused AND s.next_tick < 'infinity' AND s.next_tick > clock_timestamp()),
       (SELECT count(*) FROM yardmaster.schedule_spec) > (SELECT count(*) FROM yardmaster.schedule_live)";

/// One statement is one transaction: fence (`$1` to `$3`), and all that concerns one schedule.
const DEAL: &str = "SELECT yardmaster.schedule_deal($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Removes schedules that were deleted or replaced.
const REMOVE: &str = "SELECT yardmaster.schedule_remove($1, $2, $3)";

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[("DUE", DUE), ("NEXT", NEXT), ("DEAL", DEAL), ("REMOVE", REMOVE)];

/// A schedule that wants something.
struct Due {
    id: i64,
    rule: Result<Schedule, String>,
    submitted_at: Timestamp,
    next: Option<Timestamp>,
    resumed_at: Option<Timestamp>,
    is_paused: bool,
    is_busy: bool,
    now: Timestamp,
    name: String,
}

/// Deals with what is due; says when to look again.
///
/// # Errors
/// When home cannot be asked, or the office is over. What one schedule is refused is logged and stops no other.
pub async fn tend(client: &Client, office: Office) -> Result<Duration, DbError> {
    let failed = DbError::postgres;
    let rows = client.query(DUE, &[&BATCH]).await.map_err(failed("look for due schedules"))?;
    let mut refused = false;
    for due in rows.iter().map(read) {
        match deal(client, office, &due).await {
            Err(e) if e.sqlstate().is_some() && !client.is_closed() && !matches!(e, DbError::Deposed(_)) => {
                tracing::warn!(schedule = due.id, name = due.name, "a schedule was refused: {e}");
                refused = true;
            }
            result => result?,
        }
    }
    if refused {
        return Ok(LOOK_EVERY);
    }
    let row = client.query_one(NEXT, &[]).await.map_err(failed("look for the next tick"))?;
    let (next, has_gone): (Option<f64>, bool) = (row.get(0), row.get(1));
    if has_gone {
        client
            .execute(REMOVE, &[&office.epoch.0, &office.token, &office.term])
            .await
            .map_err(failed("remove deleted schedules"))?;
    }
    let pause = next.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(pause.map_or(LOOK_EVERY, |pause| pause.clamp(Duration::from_millis(5), LOOK_EVERY)))
}

async fn deal(client: &Client, office: Office, due: &Due) -> Result<(), DbError> {
    let (plan, error) = decide(due);
    let is_over = plan.next.is_none() && !due.is_paused;
    let outcomes: Vec<&str> = plan.ticks.iter().map(|(_, verdict)| outcome(*verdict)).collect();
    let ticks: Vec<Timestamp> = plan.ticks.iter().map(|(tick, _)| *tick).collect();
    let (epoch, token, term) = (office.epoch.0, office.token, office.term);
    let row = client
        .query_one(DEAL, &[&epoch, &token, &term, &due.id, &plan.next, &is_over, &error, &ticks, &outcomes])
        .await
        .map_err(DbError::postgres("make the jobs of a schedule"))?;
    let jobs: Vec<Option<i64>> = row.get(0);
    for ((tick, outcome), job) in ticks.iter().zip(outcomes).zip(jobs) {
        tracing::info!(schedule = due.id, name = due.name, %tick, job, "tick: {outcome}");
    }
    Ok(())
}

fn outcome(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fire => "made",
        Verdict::Overlaps => "overlaps",
        Verdict::Missed => "missed",
    }
}

/// What to do about a schedule, and what is wrong with its rule.
fn decide(due: &Due) -> (Plan, Option<String>) {
    if due.is_paused {
        return (Plan::default(), None);
    }
    let rule = match &due.rule {
        Ok(rule) => rule,
        Err(e) => return (Plan::default(), Some(e.clone())),
    };
    // The first tick comes after the submission, or after the pause.
    let base = due.resumed_at.map_or(due.submitted_at, |at| at.max(due.submitted_at));
    let Some(next) = due.next.or_else(|| rule.next_after(base, due.submitted_at)) else {
        return (Plan::default(), None);
    };
    (rule.plan(next, due.now, due.submitted_at, due.is_busy), None)
}

fn read(row: &Row) -> Due {
    let (overlap, catch_up): (&str, &str) = (row.get(4), row.get(5));
    let overlap = Overlap::ALL.iter().find(|(word, _)| *word == overlap).map_or(Overlap::Skip, |(_, o)| *o);
    let catch_up =
        CatchUp::ALL.iter().find(|(word, _)| *word == catch_up).map_or(CatchUp::Latest, |(_, c)| *c);
    let every: Option<f64> = row.get(2);
    let every = every.and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
    Due {
        id: row.get(0),
        rule: Schedule::new(row.get(1), every, row.get(3), overlap, catch_up).map_err(|e| e.to_string()),
        submitted_at: row.get(6),
        next: row.get(7),
        resumed_at: row.get(8),
        is_paused: row.get(9),
        is_busy: row.get(10),
        now: row.get(11),
        name: row.get(12),
    }
}
