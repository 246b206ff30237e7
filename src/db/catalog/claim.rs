//! Claims: the first ready tasks of a lane for the sessions offered to it.
//!
//! The claim is committed, with attempt, pid and backend start, before a byte of the command is sent, so recovery
//! knows exactly which backends to look for.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use super::super::error::DbError;

use crate::model::{Backend, ClaimedTask, JobId, LaneId, LiveAttempt, Offer, QueueKey, TaskId};

/// Called in each turn with offers. A lane is read from its floor on, below which nothing is ready, so that the dead
/// index entries of earlier claims are not walked again while somebody's old snapshot keeps them. Wants
/// `task_state_ready`. Answers the place (from 1) and the claimed task.
///
/// Its shape leaves the planner no choice: of `LIMIT a.n` it expects a tenth of the lane, and for so many rows it would read
/// other tables whole (of an array it expects ten rows); and statistics taken while a large submission is on its way say that
/// `task_spec` is small, so that any of its indexes will do (of a range, in order, only the primary key does).
pub const CLAIM: &str = "
WITH asked AS (
    SELECT o.lane, count(*) AS n, array_agg(o.place ORDER BY o.place) AS places, min(o.floor_rank) AS floor_rank, min(o.floor_task) AS floor_task
      FROM unnest($1::integer[], $4::integer[], $5::bigint[]) WITH ORDINALITY AS o(lane, floor_rank, floor_task, place)
     GROUP BY o.lane
), pick AS MATERIALIZED (
    SELECT t.task_id, a.places[t.nth] AS place
      FROM asked a
     CROSS JOIN LATERAL unnest(ARRAY(
           SELECT s.task_id FROM yardmaster.task_state s
            WHERE s.lane = a.lane AND s.ready AND (s.queue_rank, s.task_id) >= (a.floor_rank, a.floor_task)
            ORDER BY s.queue_rank, s.task_id LIMIT a.n)) WITH ORDINALITY AS t(task_id, nth)
), claimed AS (
    UPDATE yardmaster.task_state s
       SET status = 'running', ready = false, attempt = least(s.attempt, 2147483646) + 1, pid = ($2::integer[])[p.place],
           backend_start = ($3::timestamptz[])[p.place], site = ($6::uuid[])[p.place], prefetched = ($7::boolean[])[p.place],
           started_at = now(), not_before = NULL, finished_at = NULL
      FROM pick p
     WHERE s.task_id = p.task_id
    RETURNING s.task_id, s.job_id, s.lane, s.attempt, s.series, s.retry_count, s.interruptions, s.pid, s.backend_start,
              s.site, s.command, p.place
), begun AS (
    UPDATE yardmaster.job_state j
       SET started_at = now(), deadline = now() + (SELECT p.timeout FROM yardmaster.job_spec p WHERE p.job_id = j.job_id),
           status = yardmaster.job_status_of(j.cancel_requested, j.n_tasks, j.n_done, j.n_bad, true)
     WHERE j.job_id = ANY (ARRAY(SELECT DISTINCT c.job_id FROM claimed c)) AND j.started_at IS NULL
)
SELECT c.place, c.job_id, c.task_id, c.attempt, c.series, t.task_key, c.lane, coalesce(c.command, t.command),
       CASE WHEN j.retry IS NULL THEN t.retry WHEN t.retry IS NULL THEN j.retry ELSE j.retry || t.retry END,
       (extract(epoch FROM t.timeout) * 1000)::bigint, t.transactional, c.retry_count, c.interruptions, c.pid, c.backend_start,
       CASE WHEN r.oid IS NULL THEN format('ERROR: role %I, the owner of the task, does not exist any more', l.owner)
            WHEN r.rolname <> l.owner THEN format('ERROR: role %I, the owner of the task, is called %I now', l.owner, r.rolname)
            WHEN NOT r.rolcanlogin THEN format('ERROR: role %I is not permitted to log in', l.owner)
            WHEN r.rolsuper AND EXISTS (SELECT FROM yardmaster.published p WHERE p.key = 'allow_superuser_owners' AND p.value = 'false')
                 THEN format('ERROR: role %I is a superuser and may not own tasks', l.owner)
            WHEN c.site IS NULL AND NOT has_database_privilege(r.oid, current_database(), 'CONNECT')
                 THEN format('ERROR: role %I may not connect to database %I', l.owner, current_database()) END,
       c.site,
       CASE WHEN c.attempt = 1 THEN extract(epoch FROM now() - greatest(j.submitted_at, t.not_before, (
            SELECT max(p.finished_at) FROM yardmaster.task_depend e JOIN yardmaster.task_state p ON p.task_id = e.depends_on
             WHERE e.task_id = c.task_id)))::float8 END, j.scratch, t.output,
       t.verify, t.undo
  FROM claimed c JOIN yardmaster.lane l ON l.lane = c.lane LEFT JOIN pg_roles r ON r.oid = l.owner_oid
 CROSS JOIN LATERAL (
       SELECT * FROM yardmaster.task_spec t WHERE t.task_id BETWEEN c.task_id AND c.task_id ORDER BY t.task_id LIMIT 1) t
 CROSS JOIN LATERAL (SELECT * FROM yardmaster.job_spec j WHERE j.job_id = c.job_id OFFSET 0) j";

/// A prefetched task is shown as runnable, since it may have to wait; one that has begun and takes long is shown as
/// running. Called with those (task, attempt).
pub const BEGUN: &str = "
UPDATE yardmaster.task_state s SET prefetched = false, started_at = now()
  FROM unnest($1::bigint[], $2::integer[]) AS b(task_id, attempt)
 WHERE s.task_id = b.task_id AND s.attempt = b.attempt AND s.prefetched AND s.status IN ('running', 'cancelling')";

/// The attempts that the catalog holds to be alive. Called on taking office and after the home connection was lost.
/// Wants `task_state_live`.
pub const LIVE: &str = "
SELECT 0::bigint, s.job_id, s.task_id, s.attempt, s.series, t.task_key, s.lane, coalesce(s.command, t.command),
       CASE WHEN j.retry IS NULL THEN t.retry WHEN t.retry IS NULL THEN j.retry ELSE j.retry || t.retry END,
       (extract(epoch FROM t.timeout) * 1000)::bigint, t.transactional, s.retry_count, s.interruptions, s.pid, s.backend_start, NULL::text, s.site,
       NULL::float8, j.scratch, t.output, t.verify, t.undo, l.node, l.nodes, s.status = 'cancelling'
  FROM yardmaster.task_state s JOIN yardmaster.task_spec t ON t.task_id = s.task_id
  JOIN yardmaster.job_spec j ON j.job_id = s.job_id JOIN yardmaster.lane l ON l.lane = s.lane
 WHERE s.status IN ('running', 'cancelling') ORDER BY s.started_at, s.task_id";

/// A commit that waits for the disk takes every earlier one along, and needs something to write. One message, so that
/// nothing else on the connection comes between.
const FLUSH: &str = "BEGIN; SET LOCAL synchronous_commit = on;
SELECT pg_catalog.pg_logical_emit_message(true, 'yardmaster', ''); COMMIT";

/// Makes the claims that were committed before durable.
///
/// # Errors
/// When home does not confirm it.
pub async fn flush(client: &Client) -> Result<(), DbError> {
    client.batch_execute(FLUSH).await.map_err(DbError::postgres("flush a claim"))
}

/// Before every key of a lane.
pub const START: QueueKey = QueueKey { rank: i32::MIN, task: TaskId(i64::MIN) };

/// The parallel arrays that [`CLAIM`] takes.
#[derive(Debug, Default)]
pub struct Offers {
    /// Lanes.
    pub lane: Vec<i32>,
    /// Backends' process ids.
    pub pid: Vec<Option<i32>>,
    /// Backends' starts.
    pub start: Vec<Option<jiff::Timestamp>>,
    /// Floors' ranks.
    pub floor_rank: Vec<i32>,
    /// Floors' tasks.
    pub floor_task: Vec<i64>,
    /// Sites of backends that are not at home.
    pub site: Vec<Option<uuid::Uuid>>,
    /// Is the task to be prefetched?
    pub prefetched: Vec<bool>,
    /// The index of the offer behind each place.
    pub offer: Vec<usize>,
}

impl Offers {
    /// Lays out offers with their floors: a place in each, then the second of each that prefetches, and so on, so that
    /// the first tasks of a lane are the first to start.
    pub fn new(offers: &[Offer], floors: &[Option<QueueKey>]) -> Offers {
        let mut out = Offers::default();
        let deepest = offers.iter().map(|o| o.prefetch).max().unwrap_or(0);
        for depth in 0..=deepest {
            let places = offers.iter().zip(floors).enumerate().filter(|(_, (o, _))| o.prefetch >= depth);
            for (i, (offer, floor)) in places {
                let floor = floor.unwrap_or(START);
                out.lane.push(offer.lane.0);
                out.pid.push(offer.backend.map(|b| b.pid));
                out.start.push(offer.backend.map(|b| b.start));
                out.floor_rank.push(floor.rank);
                out.floor_task.push(floor.task.0);
                out.site.push(offer.site);
                out.prefetched.push(depth > 0);
                out.offer.push(i);
            }
        }
        out
    }

    /// Maps the rows of [`CLAIM`]: the index of the offer, and the task; those of one offer in their order.
    pub fn answers(&self, rows: &[Row]) -> Vec<(usize, ClaimedTask)> {
        let mut claimed: Vec<_> = rows.iter().map(claimed).collect();
        claimed.sort_by_key(|(place, _)| *place);
        claimed.into_iter().filter_map(|(place, task)| Some((*self.offer.get(place)?, task))).collect()
    }
}

/// The parallel arrays that [`BEGUN`] takes.
pub fn begun(begun: &[(TaskId, i32)]) -> (Vec<i64>, Vec<i32>) {
    begun.iter().map(|(task, attempt)| (task.0, *attempt)).unzip()
}

/// Maps a row of [`CLAIM`]: the place (from 0), and the task.
pub fn claimed(row: &Row) -> (usize, ClaimedTask) {
    let place: i64 = row.get(0);
    let backend = match (row.get::<_, Option<i32>>(13), row.get::<_, Option<jiff::Timestamp>>(14)) {
        (Some(pid), Some(start)) => Some(Backend { pid, start }),
        _ => None,
    };
    let task = ClaimedTask {
        job: JobId(row.get(1)),
        task: TaskId(row.get(2)),
        attempt: row.get(3),
        series: row.get(4),
        task_key: row.get(5),
        lane: LaneId(row.get(6)),
        command: row.get(7),
        retry: row.get(8),
        timeout: row.get::<_, Option<i64>>(9).map(|ms| Duration::from_millis(ms.max(1).unsigned_abs())),
        transactional: row.get(10),
        retry_count: row.get(11),
        interruptions: row.get(12),
        backend,
        owner_trouble: row.get(15),
        site: row.get(16),
        waited: row.get::<_, Option<f64>>(17).and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).ok()),
        scratch: row.get(18),
        output: row.get(19),
        verify: row.get(20),
        undo: row.get(21),
    };
    (usize::try_from(place - 1).unwrap_or(0), task)
}

/// Maps a row of [`LIVE`].
pub fn live(row: &Row) -> LiveAttempt {
    LiveAttempt { claimed: claimed(row).1, node: row.get(22), nodes: row.get(23), cancelling: row.get(24) }
}
