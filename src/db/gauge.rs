//! The figures of the whole yard, for `/metrics` and for the page, by the service's own right.
//!
//! Unlike [`super::inspect`] this reads the tables: what runs and what is ready are partial indexes, what ended is in the
//! jobs' counters, so no statement here walks the tasks.

use serde::Serialize;
use tokio_postgres::Client;

use super::inspect::QueryError;

/// Runnable tasks are counted so far, those that are due and those that are not; a longer queue shows as this.
pub const MOST_RUNNABLE: i64 = 100_000;

/// What the figures are.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Tasks by status. `failed` are those that ended as error, unscheduled or cancelled; tasks of a job that is paused
    /// count as blocked.
    pub tasks: [(&'static str, i64); 6],
    /// Jobs that have not ended.
    pub open_jobs: i64,
    /// Jobs that are kept and have ended.
    pub ended_jobs: i64,
    /// Seconds since the ready task with the smallest id could have run; an upper bound for one with dependencies.
    pub oldest_runnable: Option<f64>,
}

/// A node with its slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeSlots {
    /// Its name; empty for all nodes together.
    pub node: String,
    /// Slots in use, by anybody's tasks.
    pub used: i64,
    /// Slots that may be in use.
    pub limit: i64,
    /// Was it declared in the settings? An undeclared node is only a name whose slots are counted.
    pub declared: bool,
    /// `active`, `draining` or `down`.
    pub state: String,
    /// Why, if there is something to say.
    pub reason: Option<String>,
    /// Since when it has that state.
    pub since: Option<jiff::Timestamp>,
}

/// A look at `/metrics`: one row a job, and what runs. Wants `task_state_live` and `task_state_ready`.
const FIGURES: &str = "
    WITH job AS (
        SELECT count(*) FILTER (WHERE j.finished_at IS NULL) AS open, count(*) FILTER (WHERE j.finished_at IS NOT NULL) AS ended,
               coalesce(sum(j.n_tasks), 0) AS n, coalesce(sum(j.n_done), 0) AS done, coalesce(sum(j.n_bad), 0) AS bad
          FROM yardmaster.job_state j
    ), live AS (
        SELECT count(*) FILTER (WHERE s.status = 'running') AS running, count(*) FILTER (WHERE s.status = 'cancelling') AS cancelling
          FROM yardmaster.task_state s WHERE s.status IN ('running', 'cancelling') AND NOT s.prefetched
    ), ready AS (
        SELECT count(*) AS n, min(r.task_id) AS oldest
          FROM (SELECT s.task_id FROM yardmaster.task_state s WHERE s.ready ORDER BY s.lane, s.queue_rank, s.task_id LIMIT $1) r
    ), delayed AS (
        SELECT count(*) AS n FROM (SELECT 1 FROM yardmaster.task_state s
            WHERE s.status = 'runnable' AND NOT s.ready AND s.not_before IS NOT NULL LIMIT $1) d
    )
    SELECT job.open, job.ended, job.n::bigint, job.done::bigint, job.bad::bigint, live.running, live.cancelling, ready.n + delayed.n,
           (SELECT extract(epoch FROM pg_catalog.clock_timestamp() - greatest(j.submitted_at, t.not_before))::float8
              FROM yardmaster.task_spec t JOIN yardmaster.job_spec j ON j.job_id = t.job_id WHERE t.task_id = ready.oldest)
      FROM job, live, ready, delayed";

/// Nodes: those that are declared, those that are in use, and all together.
const NODES: &str = "
    SELECT coalesce(d.name, u.node), coalesce(u.used, 0),
           CASE WHEN d.name IS NULL AND u.node = '' THEN (SELECT p.value::bigint FROM yardmaster.published p WHERE p.key = 'max_task_executors')
                ELSE coalesce(d.max_task_executors, (SELECT p.value::bigint FROM yardmaster.published p
                                                      WHERE p.key = 'max_task_executors_per_node')) END,
           d.name IS NOT NULL, coalesce(d.state, 'active'), d.reason, d.since
      FROM yardmaster.node d FULL JOIN yardmaster.slot_use u ON u.node = d.name
     ORDER BY 1";

/// The page's pulse: whatever changes when an attempt starts or ends, or a job is steered.
const PULSE: &str = "
    WITH live AS MATERIALIZED (
        SELECT s.job_id, s.task_id, s.attempt, s.status FROM yardmaster.task_state s WHERE s.status IN ('running', 'cancelling') AND NOT s.prefetched
    )
    SELECT w.job_id, md5(concat_ws(',', j.status, j.paused, j.cancel_requested, j.n_tasks, j.n_done, j.n_bad, j.delete_requested, (
               SELECT string_agg(concat_ws('/', s.task_id, s.attempt, s.status), ',' ORDER BY s.task_id)
                 FROM live s WHERE s.job_id = w.job_id)))
      FROM unnest($1::bigint[]) w(job_id) LEFT JOIN yardmaster.job_state j ON j.job_id = w.job_id";

/// The pulse of the list of jobs: the newest jobs, and those that have something running.
const PULSE_OF_ALL: &str = "
    SELECT md5(concat_ws(';',
        (SELECT string_agg(concat_ws(',', j.job_id, j.status, j.paused, j.n_tasks, j.n_done, j.n_bad, j.delete_requested), ' ')
           FROM (SELECT * FROM yardmaster.job_state j ORDER BY j.job_id DESC LIMIT 200) j),
        (SELECT string_agg(concat_ws('/', s.task_id, s.attempt, s.status), ',' ORDER BY s.task_id)
           FROM yardmaster.task_state s WHERE s.status IN ('running', 'cancelling') AND NOT s.prefetched),
        (SELECT string_agg(concat_ws(',', n.name, n.state, n.max_task_executors), ' ' ORDER BY n.name) FROM yardmaster.node n),
        (SELECT l.epoch FROM yardmaster.leader l)))";

/// Reads the figures.
///
/// # Errors
/// See [`QueryError`].
pub async fn figures(client: &Client) -> Result<Figures, QueryError> {
    let rows = client.query_typed(FIGURES, &[(&MOST_RUNNABLE, tokio_postgres::types::Type::INT8)]).await?;
    let row = rows.first().ok_or_else(|| QueryError::Unexpected("the figures have no row".to_owned()))?;
    let (all, done, bad): (i64, i64, i64) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    let (running, cancelling, ready): (i64, i64, i64) = (row.try_get(5)?, row.try_get(6)?, row.try_get(7)?);
    let blocked = (all - done - bad - running - cancelling - ready).max(0);
    Ok(Figures {
        tasks: [
            ("blocked", blocked),
            ("runnable", ready),
            ("running", running),
            ("cancelling", cancelling),
            ("done", done),
            ("failed", bad),
        ],
        open_jobs: row.try_get(0)?,
        ended_jobs: row.try_get(1)?,
        oldest_runnable: row.try_get(8)?,
    })
}

/// The nodes with their slots; the one with the empty name is all together, and comes first.
///
/// # Errors
/// See [`QueryError`].
pub async fn nodes(client: &Client) -> Result<Vec<NodeSlots>, QueryError> {
    let rows = client.query_typed(NODES, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(NodeSlots {
                node: row.try_get(0)?,
                used: row.try_get(1)?,
                limit: row.try_get::<_, Option<i64>>(2)?.unwrap_or(0),
                declared: row.try_get(3)?,
                state: row.try_get(4)?,
                reason: row.try_get(5)?,
                since: row.try_get(6)?,
            })
        })
        .collect()
}

/// A text for each job that changes when something of it does.
///
/// # Errors
/// See [`QueryError`].
pub async fn pulse(client: &Client, jobs: &[i64]) -> Result<Vec<(i64, String)>, QueryError> {
    let rows = client.query_typed(PULSE, &[(&jobs, tokio_postgres::types::Type::INT8_ARRAY)]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// A text that changes when something of the yard does.
///
/// # Errors
/// See [`QueryError`].
pub async fn pulse_of_all(client: &Client) -> Result<String, QueryError> {
    let rows = client.query_typed(PULSE_OF_ALL, &[]).await?;
    let row = rows.first().ok_or_else(|| QueryError::Unexpected("the pulse has no row".to_owned()))?;
    Ok(row.try_get(0)?)
}
