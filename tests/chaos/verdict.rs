//! What must hold when the dust has settled, asked of the catalog and of the effects.

use std::time::Duration;

use tokio_postgres::Client;

/// Each with a question that lists what contradicts it.
const CLAIMS: &[(&str, &str)] = &[
    (
        "every task has ended",
        "SELECT t.name, s, j.paused FROM yardmaster.task t LEFT JOIN yardmaster.task_state s ON s.task_id = t.task_id
           LEFT JOIN yardmaster.job_state j ON j.job_id = t.job_id
          WHERE t.status NOT IN ('done', 'error', 'unscheduled', 'cancelled')",
    ),
    (
        "every job has ended",
        "SELECT job_id, state FROM yardmaster.job WHERE state NOT IN ('finished', 'cancelled', 'failed')",
    ),
    ("no effect came twice", "SELECT k, count(*) FROM public.ledger GROUP BY k HAVING count(*) > 1"),
    (
        "what is done has its effect",
        "SELECT t.task_id, t.name, t.attempt FROM yardmaster.task t
          WHERE t.name ^@ 'k' AND t.status = 'done' AND NOT EXISTS (SELECT FROM public.ledger l WHERE 'k' || l.k = t.name)",
    ),
    (
        "what has an effect is done, so nothing that was told cancelled has one",
        "SELECT l.k, t.task_id, t.name, t.status FROM public.ledger l LEFT JOIN yardmaster.task t ON substr(t.name, 2) = l.k::text
          WHERE t.status IS DISTINCT FROM 'done'",
    ),
    (
        "a task that can succeed does, or was cancelled, or depended on one that was or that failed",
        "SELECT task_id, name, status, message FROM yardmaster.task WHERE name !~ '^f' AND status = 'error'",
    ),
    (
        "a task that cannot succeed does not",
        "SELECT task_id, name, status FROM yardmaster.task WHERE name ^@ 'f' AND status = 'done'",
    ),
    (
        "a dependant that ran came after what it depends on",
        "SELECT d.task_id, d.depends_on FROM yardmaster.task_depend d
           JOIN yardmaster.task_state c ON c.task_id = d.task_id AND c.status = 'done'
           JOIN yardmaster.task_state p ON p.task_id = d.depends_on
          WHERE p.status <> 'done' OR c.started_at < p.started_at",
    ),
    (
        "a task is unscheduled only because of one that ended badly",
        "SELECT s.task_id FROM yardmaster.task_state s WHERE s.status = 'unscheduled'
            AND NOT EXISTS (SELECT FROM yardmaster.task_depend d JOIN yardmaster.task_state p ON p.task_id = d.depends_on
                             WHERE d.task_id = s.task_id AND p.status IN ('error', 'unscheduled', 'cancelled'))",
    ),
    (
        "the counters of jobs are those of a recount",
        "SELECT j.job_id, j.status, j.n_tasks, j.n_done, j.n_bad, c.* FROM yardmaster.job_state j
          CROSS JOIN LATERAL (SELECT count(*) AS tasks, count(*) FILTER (WHERE status = 'done') AS done,
                                     count(*) FILTER (WHERE status IN ('error', 'unscheduled', 'cancelled')) AS bad
                                FROM yardmaster.task_state s WHERE s.job_id = j.job_id) c
          WHERE (j.n_tasks, j.n_done, j.n_bad) IS DISTINCT FROM (c.tasks, c.done, c.bad)",
    ),
    (
        "every task was admitted, every request answered",
        "SELECT task_id FROM yardmaster.task_spec t WHERE NOT EXISTS (SELECT FROM yardmaster.task_state s WHERE s.task_id = t.task_id)
         UNION ALL SELECT -request_id FROM yardmaster.request WHERE handled_at IS NULL",
    ),
    (
        "every attempt has its row in the history",
        "SELECT s.task_id, n FROM yardmaster.task_state s CROSS JOIN generate_series(1, s.attempt) n
          WHERE NOT EXISTS (SELECT FROM yardmaster.attempt_log l WHERE l.task_id = s.task_id AND l.attempt = n)",
    ),
    (
        "of a task's attempts at most the last is done",
        "SELECT l.task_id, l.attempt FROM yardmaster.attempt_log l JOIN yardmaster.task_state s ON s.task_id = l.task_id
          WHERE l.outcome = 'done' AND (s.status <> 'done' OR l.attempt <> s.attempt)",
    ),
    (
        "attempts of one task follow one another",
        "SELECT a.task_id, a.attempt FROM yardmaster.attempt_log a
           JOIN yardmaster.attempt_log b ON b.task_id = a.task_id AND b.attempt = a.attempt + 1
          WHERE b.started_at < a.ended_at",
    ),
    (
        "no scratch schema is left",
        "SELECT nspname::text AS schema, 'is there' AS state, '' AS reason FROM pg_namespace WHERE nspname ^@ 'yardmaster_'
         UNION ALL SELECT schema_name, state, reason FROM yardmaster.scratch",
    ),
    (
        "only failures spend retries",
        "SELECT s.task_id, s.retry_count FROM yardmaster.task_state s
          WHERE s.retry_count > (SELECT count(*) FROM yardmaster.attempt_log l WHERE l.task_id = s.task_id AND l.outcome = 'failed')",
    ),
];

/// Waits until nothing is left to do, or the time is over.
pub async fn calm(admin: &Client, within: Duration) {
    let left = "SELECT (SELECT count(*) FROM yardmaster.task WHERE status NOT IN ('done', 'error', 'unscheduled', 'cancelled'))
                     + (SELECT count(*) FROM yardmaster.job WHERE state NOT IN ('finished', 'cancelled', 'failed'))
                     + (SELECT count(*) FROM yardmaster.request WHERE handled_at IS NULL)
                     + (SELECT count(*) FROM yardmaster.scratch)";
    let deadline = tokio::time::Instant::now() + within;
    while admin.query_one(left, &[]).await.unwrap().get::<_, i64>(0) > 0
        && tokio::time::Instant::now() < deadline
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What does not hold, in words.
pub async fn contradictions(admin: &Client) -> Vec<String> {
    let mut found = Vec::new();
    for (claim, question) in CLAIMS {
        let rows = admin.query(&format!("SELECT r::text FROM ({question}) r"), &[]).await.unwrap();
        if !rows.is_empty() {
            let some: Vec<String> = rows.iter().take(5).map(|r| r.get(0)).collect();
            found.push(format!("{claim}: {} contradict it, such as {}", rows.len(), some.join(" ")));
        }
    }
    found
}

/// The sessions of services and owners that are left.
pub async fn sessions(admin: &Client) -> i64 {
    let left = "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('alice', 'yard_service')";
    admin.query_one(left, &[]).await.unwrap().get(0)
}

/// A few figures that show that something happened at all.
pub async fn figures(admin: &Client) -> String {
    let ask = "SELECT format('%s jobs, %s tasks (%s done, %s error, %s unscheduled, %s cancelled), %s attempts (%s interrupted, %s failed), epoch %s',
                      (SELECT count(*) FROM yardmaster.job), count(*), count(*) FILTER (WHERE status = 'done'),
                      count(*) FILTER (WHERE status = 'error'), count(*) FILTER (WHERE status = 'unscheduled'),
                      count(*) FILTER (WHERE status = 'cancelled'),
                      (SELECT count(*) FROM yardmaster.attempt_log),
                      (SELECT count(*) FROM yardmaster.attempt_log WHERE outcome = 'interrupted'),
                      (SELECT count(*) FROM yardmaster.attempt_log WHERE outcome = 'failed'),
                      (SELECT epoch FROM yardmaster.leader)) FROM yardmaster.task";
    admin.query_one(ask, &[]).await.unwrap().get(0)
}
