//! Windows: what a turn reads of the lanes' queues.

use tokio_postgres::Row;

use super::super::claim;
use crate::model::{LaneId, QueueKey, TaskId, Turn, Window};

/// The next ready tasks of lanes. Wants `task_state_ready`.
pub(super) const WINDOWS: &str = "
SELECT w.lane, t.queue_rank, t.task_id
  FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::bigint[]) AS w(lane, after_rank, after_task, n)
 CROSS JOIN LATERAL (
       SELECT s.queue_rank, s.task_id FROM yardmaster.task_state s
        WHERE s.lane = w.lane AND s.ready AND (s.queue_rank, s.task_id) > (w.after_rank, w.after_task)
        ORDER BY s.queue_rank, s.task_id LIMIT w.n + 1) t
 ORDER BY w.lane, t.queue_rank, t.task_id";

/// The parallel arrays of [`WINDOWS`].
pub(super) struct WindowParams {
    pub(super) lane: Vec<i32>,
    pub(super) rank: Vec<i32>,
    pub(super) task: Vec<i64>,
    pub(super) limit: Vec<i64>,
}

impl WindowParams {
    pub(super) fn new(turn: &Turn) -> WindowParams {
        let mut p = WindowParams { lane: vec![], rank: vec![], task: vec![], limit: vec![] };
        for w in &turn.windows {
            let after = w.after.unwrap_or(claim::START);
            p.lane.push(w.lane.0);
            p.rank.push(after.rank);
            p.task.push(after.task.0);
            p.limit.push(i64::from(w.limit));
        }
        p
    }

    pub(super) fn answers(&self, turn: &Turn, rows: &[Row]) -> Vec<Window> {
        let mut answers: Vec<Window> =
            turn.windows.iter().map(|w| Window { lane: w.lane, keys: Vec::new(), more: false }).collect();
        for row in rows {
            let lane = LaneId(row.get(0));
            if let Some(i) = turn.windows.iter().position(|w| w.lane == lane) {
                if answers[i].keys.len() < turn.windows[i].limit as usize {
                    answers[i].keys.push(QueueKey { rank: row.get(1), task: TaskId(row.get(2)) });
                } else {
                    answers[i].more = true;
                }
            }
        }
        answers
    }
}
