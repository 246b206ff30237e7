//! What commands may be, what they say, and how they fail.

use crate::support::{Db, Service};

/// Scenario 24.
#[tokio::test]
async fn every_statement_counts() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let _service = Service::start(&db).await;
    let (_, failing) = db.submit_one("INSERT INTO r VALUES (1); SELECT 1/0").await;
    let (_, broken) = db.submit_one("INSERT INTO r VALUES (2); SELEC 1").await;
    let task = db.await_task(broken, "error").await;
    assert_eq!(task.sqlstate.as_deref(), Some("42601"));
    assert!(task.text().contains("syntax error at or near \"SELEC\""), "{task:?}");
    db.await_true(&format!("SELECT retry_count = 1 FROM yardmaster.task WHERE task_id = {failing}")).await;
    assert!(
        db.task(failing).await.text().ends_with("ERROR: division by zero"),
        "{:?}",
        db.task(failing).await
    );
    assert_eq!(db.value("SELECT count(*) FROM r").await, "0");
}

/// Scenario 25. Citus: the second crashes the server.
#[tokio::test]
async fn commands_that_refuse_a_transaction_block_run_outside_one() {
    let db = Db::new().await;
    db.alice(
        "CREATE TABLE r (v int);
         CREATE PROCEDURE p() LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO r VALUES (1); COMMIT; INSERT INTO r VALUES (2); END $$",
    )
    .await;
    let _service = Service::start(&db).await;
    for (command, tag) in [
        ("VACUUM r", "VACUUM"),
        ("CREATE INDEX CONCURRENTLY r_v ON r (v)", "CREATE INDEX"),
        ("CALL p()", "CALL"),
    ] {
        let (job, task) = db.submit_one(command).await;
        db.await_job(job, "finished").await;
        assert_eq!(db.task(task).await.text(), tag);
    }
    assert_eq!(db.value("SELECT count(*) FROM r").await, "2");
    assert_eq!(db.value("SELECT indisvalid FROM pg_index WHERE indexrelid = 'r_v'::regclass").await, "t");
}

/// Scenario 25.
#[tokio::test]
async fn a_vacuum_beside_another_statement_is_refused_with_a_reason() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let _service = Service::start(&db).await;
    let (_, task) = db.submit_one("SELECT 1; VACUUM r").await;
    let task = db.await_task(task, "error").await;
    assert!(task.text().contains("VACUUM cannot stand beside other statements"), "{task:?}");
    assert_eq!(task.attempt, 1);
}

/// SPEC 4: nothing of such a command runs.
#[tokio::test]
async fn transaction_control_is_refused_before_anything_runs() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let _service = Service::start(&db).await;
    for end in ["COMMIT", "ROLLBACK", "BEGIN", "SAVEPOINT s", "PREPARE TRANSACTION 'x'"] {
        let (_, task) = db.submit_one(&format!("INSERT INTO r VALUES (1); {end}")).await;
        let task = db.await_task(task, "error").await;
        assert!(task.text().contains("is refused: every task runs in a transaction of its own"), "{task:?}");
    }
    assert_eq!(db.value("SELECT count(*) FROM r").await, "0");
}

/// Scenario 26.
#[tokio::test]
async fn the_message_is_everything_postgresql_said_in_order() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (_, task) = db.submit_one("SELECT 1; DO $$BEGIN RAISE NOTICE 'n'; END$$; SELECT 2").await;
    let said =
        "SELECT 1\nNOTICE: n\nCONTEXT: PL/pgSQL function inline_code_block line 1 at RAISE\nDO\nSELECT 1";
    assert_eq!(db.await_task(task, "done").await.text(), said);
    let warning = "DO $$BEGIN RAISE WARNING 'w' USING DETAIL = 'd', HINT = 'h'; END$$";
    let (_, task) = db.submit_one(warning).await;
    let said = db.await_task(task, "done").await;
    assert!(said.text().starts_with("WARNING: w\nDETAIL: d\nHINT: h\n"), "{said:?}");
}

/// Scenario 27.
#[tokio::test]
async fn an_empty_command_is_refused_and_a_comment_is_done() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    for empty in ["", " \n\t"] {
        let job = serde_json::json!({ "task": [{ "command": empty }] });
        let refused = db.alice.query_one("SELECT yardmaster.job_submit($1)", &[&job]).await.unwrap_err();
        assert!(refused.as_db_error().unwrap().message().contains("must not be empty"), "{refused:?}");
    }
    let (_, task) = db.submit_one("-- nothing\n/* at all */").await;
    assert_eq!(db.await_task(task, "done").await.text(), "");
}
