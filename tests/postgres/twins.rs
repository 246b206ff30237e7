//! What is written down twice, in Rust and in SQL, and must say the same.

use yardmaster::db::catalog::sql_statements;
use yardmaster::model::rollup::cases;
use yardmaster::model::{JobStatus, TaskStatus};

use crate::support::Db;

/// Every statement of the leader prepares under the service's own settings: a wrong name fails here.
#[tokio::test]
async fn every_statement_prepares_on_a_migrated_database() {
    let db = Db::new().await;
    let config = yardmaster::db::connect::parse_url(&db.url("yard_service")).unwrap();
    let (client, _hints) =
        yardmaster::db::connect::connect(&config, yardmaster::db::connect::Purpose::Control).await.unwrap();
    let statements = sql_statements();
    assert!(statements.len() >= 30, "only {} statements", statements.len());
    for (name, sql) in statements {
        // A utility statement is only parsed by PREPARE, so it is run, and undone.
        if sql.trim_start().starts_with("LOCK") {
            client
                .batch_execute(&format!("BEGIN; {sql}; ROLLBACK"))
                .await
                .unwrap_or_else(|e| panic!("{name}: {e:?}"));
        } else {
            client.prepare(sql).await.unwrap_or_else(|e| panic!("{name}: {e:?}"));
        }
    }
}

/// Label by label, in the same order.
#[tokio::test]
async fn the_statuses_are_those_of_the_enums() {
    let db = Db::new().await;
    let labels = |of: &str| format!("SELECT array_to_string(enum_range(NULL::yardmaster.{of}), ' ')");
    let jobs: Vec<&str> = JobStatus::ALL.iter().map(|s| s.as_str()).collect();
    let tasks: Vec<&str> = TaskStatus::ALL.iter().map(|s| s.as_str()).collect();
    assert_eq!(db.value(&labels("job_status")).await, jobs.join(" "));
    assert_eq!(db.value(&labels("task_status")).await, tasks.join(" "));
}

/// For every input with up to five tasks.
#[tokio::test]
async fn the_roll_up_is_the_same_function_on_both_sides() {
    let db = Db::new().await;
    let call = "SELECT yardmaster.job_status_of($1, $2, $3, $4, $5)::text";
    let statement = db.admin.prepare(call).await.unwrap();
    let mut count = 0;
    for ((cancel_requested, tasks, done, bad, started), status) in cases(5) {
        let row = db
            .admin
            .query_one(&statement, &[&cancel_requested, &tasks, &done, &bad, &started])
            .await
            .unwrap();
        let said: String = row.get(0);
        assert_eq!(said, status.as_str(), "{:?}", (cancel_requested, tasks, done, bad, started));
        count += 1;
    }
    assert_eq!(count, 56 * 4);
}
