//! Effects that can be counted: a table with a row for each task that took effect.

use serde_json::{Value, json};

use crate::support::Db;

/// The table, made by alice, who owns the tasks.
pub async fn make(db: &Db) {
    db.alice("CREATE TABLE public.ledger (k bigint, at timestamptz DEFAULT clock_timestamp())").await;
}

/// A command that writes its number, after (or while) taking some seconds.
pub fn write(k: u64, seconds: f64) -> String {
    if seconds == 0.0 {
        format!("INSERT INTO public.ledger VALUES ({k})")
    } else {
        format!("INSERT INTO public.ledger VALUES ({k}); SELECT pg_sleep({seconds})")
    }
}

/// Tasks `1` to `n` that write their numbers.
pub fn tasks(n: u64, seconds: f64) -> Value {
    json!((1..=n).map(|k| json!({ "name": k.to_string(), "command": write(k, seconds) })).collect::<Vec<_>>())
}

/// Asserts that exactly these numbers are there, each once.
#[track_caller]
pub fn is_exactly(db: &Db, n: u64) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let ask = format!(
            "SELECT coalesce(string_agg(format('%s: %s times', g, n), ', '), '') FROM (
               SELECT coalesce(g, k) AS g, count(k) AS n FROM generate_series(1, {n}) g FULL JOIN public.ledger ON k = g GROUP BY 1) x
              WHERE n <> 1 OR g NOT BETWEEN 1 AND {n}"
        );
        let wrong = db.value(&ask).await;
        assert!(wrong.is_empty(), "{place}: {wrong}");
    }
}

/// Asserts that no task of the job was begun twice at once: its attempts follow one another.
pub async fn attempts_follow_one_another(db: &Db) {
    let ask = "SELECT count(*) FROM yardmaster.attempt a JOIN yardmaster.attempt b ON b.task_id = a.task_id AND b.attempt = a.attempt + 1
                WHERE b.started_at < a.ended_at";
    assert_eq!(db.value(ask).await, "0");
}

/// The backends of tasks that run a command now.
pub const ALIVE: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name ~ '^yardmaster [0-9]+/' AND state = 'active'";

/// Rows that say running whose backend is gone.
pub const GHOSTS: &str = "SELECT count(*) FROM yardmaster.task t WHERE status IN ('running', 'cancelling')
    AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = t.pid AND a.application_name ^@ format('yardmaster %s/%s/', t.job_id, t.task_id))";
