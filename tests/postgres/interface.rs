//! What the views and functions say to somebody who gives them something wrong.

use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::error::DbError;

use crate::support::Db;

async fn refusal(client: &Client, sql: &str) -> DbError {
    client.batch_execute(sql).await.expect_err(sql).as_db_error().unwrap().clone()
}

/// SPEC 2: every change is a request. Who may change a view at all is told which.
#[tokio::test]
async fn a_change_of_a_view_is_refused_with_the_function_to_call() {
    let db = Db::new().await;
    let (_, task) = db.submit_one("SELECT 1").await;
    // Attempts come from the leader; here is one without it.
    db.sql(&format!(
        "INSERT INTO yardmaster.attempt_log (task_id, attempt, node, outcome, ended_at) VALUES ({task}, 1, '', 'done', now())"
    ))
    .await;
    for (sql, call) in [
        ("UPDATE yardmaster.job SET state = 'cancelled'", "job_cancel"),
        ("UPDATE yardmaster.job SET paused = true", "job_pause"),
        ("DELETE FROM yardmaster.job", "job_delete"),
        ("UPDATE yardmaster.task SET command = 'SELECT 2'", "task_retry"),
        ("DELETE FROM yardmaster.task", "task_cancel"),
        ("UPDATE yardmaster.attempt SET message = ''", "task_retry"),
        ("DELETE FROM yardmaster.attempt", "job_delete"),
    ] {
        let refused = refusal(&db.admin, sql).await;
        assert!(refused.message().contains("it is changed by request"), "{sql}: {refused}");
        assert!(refused.hint().unwrap().contains(call), "{sql}: {refused:?}");
        assert_eq!(refusal(&db.alice, sql).await.code().code(), "42501", "{sql}");
    }
}

/// The right to change a view is the right to lock it, and what is behind it, against the leader.
#[tokio::test]
async fn nobody_locks_the_leader_out_through_a_view() {
    let db = Db::new().await;
    db.submit_one("SELECT 1").await;
    for sql in [
        "BEGIN; LOCK TABLE yardmaster.job IN ACCESS EXCLUSIVE MODE",
        "ROLLBACK; BEGIN; LOCK TABLE yardmaster.task IN SHARE MODE",
        "ROLLBACK; SELECT FROM yardmaster.job WHERE started_at < now() FOR UPDATE",
        "SELECT FROM yardmaster.task WHERE attempt = 0 FOR UPDATE",
    ] {
        assert_eq!(refusal(&db.alice, sql).await.code().code(), "42501", "{sql}");
    }
}

/// What an INSERT names and the leader decides does not come back as if it held.
#[tokio::test]
async fn returning_shows_what_is_and_not_what_was_wished() {
    let db = Db::new().await;
    let job = db
        .alice
        .query_one(
            "INSERT INTO yardmaster.job (state, paused, tasks, tasks_done, tasks_failed, started_at, finished_at)
             VALUES ('finished', true, 5, 4, 3, now(), now()) RETURNING job_id, to_jsonb(job)::text",
            &[],
        )
        .await
        .unwrap();
    let (id, echoed): (i64, String) = (job.get(0), job.get(1));
    let shown =
        db.value(&format!("SELECT to_jsonb(j)::text FROM yardmaster.job j WHERE job_id = {id}")).await;
    assert_eq!(echoed, shown);
    let task = db
        .alice
        .query_one(
            "INSERT INTO yardmaster.task (job_id, command, status, pid, message, sqlstate, attempt, retry_count, interruptions,
                                          started_at, finished_at, task_key)
             VALUES ($1, 'SELECT 1', 'done', 1, 'x', '00000', 2, 3, 4, now(), now(), gen_random_uuid())
             RETURNING task_id, (to_jsonb(task) - 'task_key')::text, task_key IS NULL",
            &[&id],
        )
        .await
        .unwrap();
    let (id, echoed): (i64, String) = (task.get(0), task.get(1));
    let shown =
        format!("SELECT (to_jsonb(t) - 'task_key')::text FROM yardmaster.task t WHERE task_id = {id}");
    assert_eq!(echoed, db.value(&shown).await);
    assert!(task.get::<_, bool>(2));
}

/// A value of the wrong type names whose it is, its key and what is expected.
#[tokio::test]
async fn a_wrong_value_of_a_submission_is_named() {
    let db = Db::new().await;
    for (key, value, code) in [
        ("priority", json!("high"), "22P02"),
        ("priority", json!(5_000_000), "22023"),
        ("priority", json!(1.5), "22P02"),
        ("timeout", json!("soon"), "22007"),
        ("timeout", json!("-1s"), "22023"),
        ("not_before", json!("2030-13-40"), "22008"),
        ("transactional", json!("perhaps"), "22P02"),
        ("retry", json!(3), "23514"),
        ("retry", json!({ "max_retries": -1 }), "23514"),
        ("retry", json!({ "delays": ["later"] }), "22007"),
        ("depends_on", json!("a"), "22023"),
        ("nodes_involved", json!(null), "22023"),
        ("nodes_involved", json!([["a"]]), "22023"),
    ] {
        let job = json!({ "task": [{ "name": "a", "command": "SELECT 1" }, { "name": "b", "command": "SELECT 1", key: value }] });
        let sql = format!("SELECT yardmaster.job_submit('{job}')");
        let refused = refusal(&db.alice, &sql).await;
        assert!(refused.message().starts_with("task 2 (b): "), "{sql}: {refused}");
        assert!(refused.message().contains(key) || key == "retry", "{sql}: {refused}");
        assert!(refused.hint().is_some(), "{sql}: {refused:?}");
        assert_eq!(refused.code().code(), code, "{sql}: {refused}");
    }
    for (key, value) in [("priority", json!([])), ("timeout", json!("soon")), ("scratch", json!("perhaps"))] {
        let sql = format!("SELECT yardmaster.job_submit('{}')", json!({ key: value, "task": [] }));
        let refused = refusal(&db.alice, &sql).await;
        assert!(refused.message().starts_with(&format!("the job: {key} = ")), "{sql}: {refused}");
    }
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.job_spec").await, "0");
    // What is wrong otherwise is told as before.
    let refused =
        refusal(&db.alice, "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \" \"}]}')").await;
    assert_eq!(refused.message(), "the command of a task must not be empty");
}

#[tokio::test]
async fn nodes_involved_is_a_plain_list_of_names() {
    let db = Db::new().await;
    db.alice("INSERT INTO yardmaster.job DEFAULT VALUES").await;
    for (nodes, says) in [
        ("ARRAY[['a'], ['b']]", "nodes_involved has 2 dimensions"),
        (
            "ARRAY['a', repeat('x', 64)]",
            "nodes_involved: name 2 is \"xxxxxxxxxxxxxxxxxxxx...\" with 64 bytes",
        ),
        ("ARRAY[repeat(U&'\\00e4', 32)]", "with 64 bytes"),
        ("ARRAY['a', '']", "nodes_involved: name 2 is empty"),
        ("ARRAY[NULL, 'a']", "nodes_involved: name 1 is NULL"),
    ] {
        let sql = format!(
            "INSERT INTO yardmaster.task (job_id, command, nodes_involved) VALUES (1, 'SELECT 1', {nodes})"
        );
        let refused = refusal(&db.alice, &sql).await;
        assert!(refused.message().contains(says), "{sql}: {refused}");
        assert!(refused.hint().is_some(), "{sql}");
    }
    for nodes in ["'{}'", "ARRAY[repeat('x', 63)]"] {
        db.alice(&format!(
            "INSERT INTO yardmaster.task (job_id, command, nodes_involved) VALUES (1, 'SELECT 1', {nodes})"
        ))
        .await;
    }
}

/// SPEC 2: a wait that could never end is refused, also for a task added to a job that was there before.
#[tokio::test]
async fn a_task_added_in_this_transaction_is_not_waited_for() {
    let db = Db::new().await;
    let (job, first) = db.submit_one("SELECT 1").await;
    for call in
        ["task_wait(currval('yardmaster.task_spec_task_id_seq'))".to_owned(), format!("job_wait({job})")]
    {
        db.alice(&format!(
            "BEGIN; SET LOCAL statement_timeout = '30s'; INSERT INTO yardmaster.task (job_id, command) VALUES ({job}, 'SELECT 1')"
        ))
        .await;
        let refused = refusal(&db.alice, &format!("SELECT yardmaster.{call}")).await;
        assert!(refused.message().contains("in this transaction"), "{call}: {refused}");
        assert_eq!(refused.hint(), Some("Commit first, then wait."));
        db.alice("ROLLBACK").await;
    }
    // Another task of the job is waited for: nothing runs here, so until the time is up.
    db.alice(&format!(
        "BEGIN; INSERT INTO yardmaster.task (job_id, command) VALUES ({job}, 'SELECT 1'); SET LOCAL statement_timeout = '300ms'"
    ))
    .await;
    let refused = refusal(&db.alice, &format!("SELECT yardmaster.task_wait({first})")).await;
    assert_eq!(refused.code().code(), "57014", "{refused}");
    db.alice("ROLLBACK").await;
}
