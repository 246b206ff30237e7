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
        "SELECT yardmaster.fence(1, gen_random_uuid())",
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
