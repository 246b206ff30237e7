//! One job from the insert to the end.

use crate::support::{Db, Service};

/// Scenario 1.
#[tokio::test]
async fn a_task_runs_once_and_says_what_postgresql_said() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let mut service = Service::start(&db).await;
    let (job, task) = db.submit_one("INSERT INTO r VALUES (1)").await;
    db.await_job(job, "finished").await;
    let task = db.task(task).await;
    assert_eq!((task.status.as_str(), task.text(), task.pid), ("done", "INSERT 0 1", None));
    assert!(task.started_at <= task.finished_at && task.started_at.is_some());
    assert_eq!(db.value("SELECT count(*) FROM r").await, "1");
    assert_eq!(service.stop().await, 0);
}
