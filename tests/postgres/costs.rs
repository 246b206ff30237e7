//! What a look and an admission cost when there is much history and nothing new.
//!
//! SPEC 2: the same, whatever the history. The plans are generic and made after the statistics know of few
//! transactions with many rows, which is when a planner is tempted to read everything.

use serde_json::Value;
use tokio_postgres::Client;
use yardmaster::db::catalog::sql_statements;
use yardmaster::db::connect::{Purpose, connect, parse_url};

use crate::support::Db;

/// Pages that a statement may touch: index descents, not tables. The history below has more than a thousand.
const PAGES: i64 = 100;

/// A history of two large jobs, a chain and a fan, and many without tasks; all admitted and ended.
const HISTORY: &str = "
DO $$
DECLARE job bigint; n integer := 20000;
BEGIN
    FOR shape IN 1..2 LOOP
        INSERT INTO yardmaster.job_spec (owner) VALUES ('alice') RETURNING job_id INTO job;
        INSERT INTO yardmaster.job_state (job_id, status, n_tasks, n_done) VALUES (job, 'finished', n, n);
        INSERT INTO yardmaster.task_spec (task_id, job_id, owner, command)
             SELECT shape * 1000000 + i, job, 'alice', 'SELECT 1' FROM generate_series(1, n) i;
        INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on)
             SELECT job, shape * 1000000 + i, shape * 1000000 + CASE shape WHEN 1 THEN i - 1 ELSE 1 END
               FROM generate_series(2, n) i;
        INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, ready, attempt)
             SELECT task_id, job_id, 1, 0, 'done', false, 1 FROM yardmaster.task_spec WHERE job_id = job;
        INSERT INTO yardmaster.request (kind, job_id) SELECT 'job_cancel', job FROM generate_series(1, n);
    END LOOP;
    FOR i IN 1..20000 LOOP
        INSERT INTO yardmaster.job_spec (owner) VALUES ('alice') RETURNING job_id INTO job;
        INSERT INTO yardmaster.job_state (job_id, status) VALUES (job, 'finished');
    END LOOP;
    UPDATE yardmaster.request SET handled_at = now();
END $$";

fn pages(plan: &Value) -> i64 {
    let count = |name: &str| plan[name].as_i64().unwrap_or(0);
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

#[tokio::test]
async fn looking_and_admitting_cost_the_same_whatever_the_history() {
    let db = Db::new().await;
    db.sql(HISTORY).await;
    db.sql("VACUUM ANALYZE").await;
    let config = parse_url(&db.url("yard_service")).unwrap();
    let (client, _hints) = connect(&config, Purpose::Turns).await.unwrap();
    let statements = sql_statements();
    let snapshot = db.value("SELECT pg_current_snapshot()").await;
    let xmax = snapshot.split(':').nth(1).unwrap();
    let window = format!("'{xmax}', '{{}}'");
    let admit = format!("{window}, '{snapshot}'");
    for (name, arguments) in [
        ("look", window.clone()),
        ("requests", admit.clone()),
        ("requests_meanwhile", window),
        ("jobs", admit.clone()),
        ("totals", admit.clone()),
        ("lanes", format!("{admit}, '0', -1, 10000")),
        ("tasks", format!("{admit}, '0', -1, 10000, '{{}}', '{{}}', '{{}}', '{{}}'")),
        ("batches", format!("{admit}, '{{n1}}', false")),
        ("late_edges", format!("{admit}, '{{}}', false")),
        ("admit_rollup", admit),
    ] {
        let sql =
            statements.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no statement {name}")).1;
        client.batch_execute(&format!("PREPARE {name} AS {sql}")).await.unwrap();
        let (touched, text) = explain(&client, name, &arguments).await;
        assert!(touched <= PAGES, "{name} touches {touched} pages: {text}");
    }
}

/// Runs a prepared statement and says how many pages it touched, with its plan.
async fn explain(client: &Client, name: &str, arguments: &str) -> (i64, String) {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {name} ({arguments})");
    let rows = client.simple_query(&explain).await.unwrap_or_else(|e| panic!("{explain}: {e:?}"));
    let text: String = rows
        .iter()
        .filter_map(|m| match m {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    let plan: Value = serde_json::from_str(&text).unwrap();
    (pages(&plan[0]["Plan"]), text)
}

/// The last chunk of a large submission costs what the first does.
#[tokio::test]
async fn a_chunk_costs_the_same_however_many_went_before() {
    let db = Db::new().await;
    let before = db.value("SELECT pg_current_snapshot()").await;
    db.sql(
        "BEGIN;
         INSERT INTO yardmaster.job_spec (owner) VALUES ('alice');
         INSERT INTO yardmaster.task_spec (task_id, job_id, owner, command)
             SELECT 1000000 + i, (SELECT max(job_id) FROM yardmaster.job_spec), 'alice', 'SELECT 1' FROM generate_series(1, 30000) i;
         COMMIT",
    )
    .await;
    let config = parse_url(&db.url("yard_service")).unwrap();
    let (client, _hints) = connect(&config, Purpose::Turns).await.unwrap();
    let lanes = sql_statements().into_iter().find(|(name, _)| *name == "lanes").unwrap().1;
    client.batch_execute(&format!("PREPARE lanes AS {lanes}")).await.unwrap();
    let xmax = before.split(':').nth(1).unwrap();
    let snapshot = db.value("SELECT pg_current_snapshot()").await;
    let xid = db.value("SELECT max(submit_xid) FROM yardmaster.task_spec").await;
    let chunk = |xid: &str, after: i64| format!("'{xmax}', '{{}}', '{snapshot}', '{xid}', {after}, 1000");
    let (first, _) = explain(&client, "lanes", &chunk("0", -1)).await;
    let (last, plan) = explain(&client, "lanes", &chunk(&xid, 1_029_000)).await;
    assert!(first > 1000, "each of its tasks is looked up: {first}");
    assert!(last < first + first / 5, "the last chunk touches {last} pages, the first {first}: {plan}");
}

/// A crowd that waits in a lane, and statistics taken while it was on its way: they say that there are few tasks, many of
/// which are ready.
#[tokio::test]
async fn a_claim_costs_the_same_however_many_wait() {
    let db = Db::new().await;
    let crowd = db.connect("postgres").await;
    let submit = "BEGIN;
        INSERT INTO yardmaster.job_spec (owner) VALUES ('alice');
        INSERT INTO yardmaster.task_spec (task_id, job_id, owner, command)
             SELECT 1000000 + i, (SELECT max(job_id) FROM yardmaster.job_spec), 'alice', 'SELECT 1' FROM generate_series(1, 30000) i";
    crowd.batch_execute(submit).await.unwrap();
    db.sql("ANALYZE yardmaster.task_spec").await;
    crowd.batch_execute("COMMIT").await.unwrap();
    db.sql(
        "INSERT INTO yardmaster.lane (node, owner, owner_oid, nodes) VALUES ('', 'alice', 'alice'::regrole, '{}');
         INSERT INTO yardmaster.job_state (job_id, status, n_tasks) SELECT job_id, 'scheduled', 30000 FROM yardmaster.job_spec;
         INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, ready)
              SELECT t.task_id, t.job_id, l.lane, 0, 'runnable', true FROM yardmaster.task_spec t, yardmaster.lane l;
         ANALYZE yardmaster.task_state",
    )
    .await;
    let config = parse_url(&db.url("yard_service")).unwrap();
    let (client, _hints) = connect(&config, Purpose::Turns).await.unwrap();
    let claim = sql_statements().into_iter().find(|(name, _)| *name == "claim").unwrap().1;
    client.batch_execute(&format!("PREPARE claim AS {claim}")).await.unwrap();
    let lane = db.value("SELECT lane FROM yardmaster.lane").await;
    let offer = format!("'{{{lane}}}', '{{NULL}}', '{{NULL}}', '{{0}}', '{{0}}', '{{NULL}}', '{{f}}'");
    let (touched, plan) = explain(&client, "claim", &offer).await;
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.task_state WHERE status = 'running'").await, "1");
    assert!(touched <= PAGES, "a claim touches {touched} pages: {plan}");
}
