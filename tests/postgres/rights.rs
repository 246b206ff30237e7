//! Who may do what in the catalog.

use tokio_postgres::error::SqlState;

use crate::support::{Db, Service};

/// The rights of the service that the manual names, and no more. The other tests show that they suffice.
#[tokio::test]
async fn the_service_is_no_superuser() {
    let db = Db::new().await;
    let attributes = "SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
          FROM pg_roles WHERE rolname = 'yard_service'";
    assert_eq!(db.value(attributes).await, "f");
    let roles = "SELECT string_agg(roleid::regrole::text, ' ' ORDER BY roleid::regrole::text)
          FROM pg_auth_members WHERE member = 'yard_service'::regrole";
    assert_eq!(db.value(roles).await, "pg_read_all_stats pg_signal_backend yardmaster_owner");
}

/// SPEC 2: every change is a request.
#[tokio::test]
async fn users_insert_and_select_and_nothing_else() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let (job, _) = db.submit_one("SELECT 1").await;
    db.await_job(job, "finished").await;
    let tables = "job task task_depend attempt request job_spec task_spec job_state task_state attempt_log
                  record secret leader leader_renewal node published lane";
    for table in tables.split_whitespace() {
        for sql in [format!("DELETE FROM yardmaster.{table}"), format!("TRUNCATE yardmaster.{table}")] {
            let refused = db.alice.batch_execute(&sql).await.expect_err(&sql);
            let code = refused.code().cloned().unwrap();
            // A view that joins refuses for what it is, a table for want of the right.
            let refusals = [
                SqlState::INSUFFICIENT_PRIVILEGE,
                SqlState::WRONG_OBJECT_TYPE,
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            ];
            assert!(refusals.contains(&code), "{sql}: {refused:?}");
        }
    }
    for sql in ["UPDATE yardmaster.job SET priority = 9", "UPDATE yardmaster.task SET command = 'SELECT 2'"] {
        let refused = db.alice.batch_execute(sql).await.expect_err(sql);
        assert!(refused.to_string().contains("db error"), "{sql}: {refused:?}");
    }
    for sql in [
        "UPDATE yardmaster.request SET outcome = 'x'",
        "SELECT * FROM yardmaster.secret",
        "SELECT * FROM yardmaster.record",
        "SELECT * FROM yardmaster.task_state",
        "INSERT INTO yardmaster.record SELECT 1, gen_random_uuid(), 1, 'committed', 1, 1, gen_random_uuid()",
        "SELECT yardmaster.fence(1, gen_random_uuid(), 0)",
        "DO $$BEGIN LOCK TABLE yardmaster.leadership IN EXCLUSIVE MODE; END$$",
    ] {
        let refused = db.alice.batch_execute(sql).await.expect_err(sql);
        assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {refused:?}");
    }
}

/// SPEC 2: a role without `yardmaster_user` may not submit.
#[tokio::test]
async fn a_stranger_may_not_submit() {
    let db = Db::new().await;
    let carol = db.connect("carol").await;
    let submit = "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 1\"}]}')";
    let refused = carol.batch_execute(submit).await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{refused:?}");
}

/// SPEC 2: naming an owner needs the right to become that role.
#[tokio::test]
async fn nobody_submits_as_somebody_else() {
    let db = Db::new().await;
    for sql in [
        "SELECT yardmaster.job_submit('{\"owner\": \"bob\", \"task\": [{\"command\": \"SELECT 1\"}]}')",
        "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 1\", \"owner\": \"bob\"}]}')",
        "INSERT INTO yardmaster.job (owner) VALUES ('bob')",
    ] {
        let refused = db.alice.batch_execute(sql).await.expect_err(sql);
        assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {refused:?}");
    }
}

/// SPEC 2: tasks of superusers are refused unless the settings allow them.
#[tokio::test]
async fn a_superuser_owns_no_task() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let submit = "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 1\"}]}')";
    db.await_true("SELECT count(*) > 0 FROM yardmaster.published").await;
    let refused = db.admin.batch_execute(submit).await.unwrap_err();
    assert!(
        refused.as_db_error().unwrap().message().contains("is a superuser and may not own tasks"),
        "{refused:?}"
    );
}

/// SPEC 2: what a request names is the caller's to steer, by whatever way the row comes.
#[tokio::test]
async fn a_request_row_reaches_only_the_tasks_of_its_job() {
    let db = Db::new().await;
    let bob = db.connect("bob").await;
    bob.batch_execute(
        "INSERT INTO yardmaster.job DEFAULT VALUES; INSERT INTO yardmaster.task (job_id, command) VALUES (1, 'SELECT 1')",
    )
    .await
    .unwrap();
    let alice = db.connect("alice").await;
    alice.batch_execute("INSERT INTO yardmaster.job DEFAULT VALUES").await.unwrap();
    for forged in [
        "INSERT INTO yardmaster.request (kind, job_id, task_id, argument) VALUES ('task_retry', 2, 1, 'SELECT 2')",
        "INSERT INTO yardmaster.request (kind, job_id, task_id) VALUES ('task_cancel', 2, 1)",
        "INSERT INTO yardmaster.request (kind, job_id, task_id) VALUES ('task_cancel', 1, 1)",
        "INSERT INTO yardmaster.request (kind, job_id) VALUES ('job_cancel', 1)",
        "INSERT INTO yardmaster.request (request_id, kind, job_id) VALUES (900, 'job_cancel', 2)",
        "INSERT INTO yardmaster.task_spec (task_id, job_id, command) VALUES (900, 2, 'SELECT 1')",
        "INSERT INTO yardmaster.task_spec (task_id, job_id, command) VALUES (-1, 2, 'SELECT 1')",
    ] {
        assert!(alice.batch_execute(forged).await.is_err(), "{forged}");
    }
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.request").await, "0");
}

/// An administrator steers everything and becomes nobody: a changed command needs the right to become the owner.
#[tokio::test]
async fn an_administrator_changes_no_command() {
    let db = Db::new().await;
    let bob = db.connect("bob").await;
    bob.batch_execute(
        "INSERT INTO yardmaster.job DEFAULT VALUES; INSERT INTO yardmaster.task (job_id, command) VALUES (1, 'SELECT 1')",
    )
    .await
    .unwrap();
    db.sql("DO $$ BEGIN CREATE ROLE an_admin LOGIN IN ROLE yardmaster_admin; EXCEPTION WHEN duplicate_object THEN NULL; END $$").await;
    let admin = db.connect("an_admin").await;
    admin.batch_execute("SELECT yardmaster.task_cancel(1)").await.unwrap();
    let refused = admin.batch_execute("SELECT yardmaster.task_retry(1, 'SELECT 2')").await.unwrap_err();
    assert_eq!(refused.code().map(|c| c.code()), Some("42501"), "{refused}");
}

/// A definer's trigger function on a table of one's own would run with the definer's rights what the table's types bring.
#[tokio::test]
async fn nobody_hangs_our_trigger_functions_on_a_table_of_their_own() {
    let db = Db::new().await;
    db.sql("GRANT CREATE ON SCHEMA public TO alice").await;
    let alice = db.connect("alice").await;
    alice.batch_execute("CREATE TABLE own (job_id bigint, task_id bigint, depends_on bigint)").await.unwrap();
    let functions = db
        .value(
            "SELECT string_agg(p.oid::regproc::text, ' ') FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
              WHERE n.nspname = 'yardmaster' AND p.prorettype = 'trigger'::regtype",
        )
        .await;
    for function in functions.split(' ') {
        let hung =
            format!("CREATE TRIGGER t AFTER INSERT ON own FOR EACH STATEMENT EXECUTE FUNCTION {function}()");
        let refused = alice.batch_execute(&hung).await.unwrap_err();
        assert_eq!(refused.code().map(|c| c.code()), Some("42501"), "{function}: {refused}");
    }
}
