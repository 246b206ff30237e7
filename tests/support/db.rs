//! A test's own database, as people see it.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::cluster::{Private, TEMPLATE, cluster};
use super::wait::{PATIENCE, eventually};

/// A database with the catalog.
pub struct Db {
    /// The server it is on.
    pub cluster: &'static Private,
    /// Its name.
    pub name: String,
    /// A superuser's connection: sees everything, decides nothing.
    pub admin: Client,
    /// Submits and steers; owns tasks.
    pub alice: Client,
}

/// A task as the interface shows it.
#[derive(Debug, Clone)]
pub struct Task {
    pub task_id: i64,
    pub status: String,
    pub pid: Option<i32>,
    pub message: Option<String>,
    pub sqlstate: Option<String>,
    pub retry_count: i32,
    pub attempt: i32,
    pub interruptions: i32,
    /// Seconds from now until it may start; negative if that has passed.
    pub due_in: Option<f64>,
    pub started_at: Option<jiff::Timestamp>,
    pub finished_at: Option<jiff::Timestamp>,
}

impl Task {
    /// The message, empty if there is none.
    pub fn text(&self) -> &str {
        self.message.as_deref().unwrap_or("")
    }
}

const TASK: &str = "
SELECT task_id, status::text, pid, message, sqlstate, retry_count, attempt, interruptions,
       extract(epoch FROM not_before - clock_timestamp())::float8, started_at, finished_at
  FROM yardmaster.task WHERE task_id = $1";

impl Db {
    /// A new database with the catalog.
    pub async fn new() -> Db {
        Db::from_template(cluster(), TEMPLATE).await
    }

    /// A new database with the catalog on a server of one's own.
    pub async fn on(server: &'static Private) -> Db {
        Db::from_template(server, TEMPLATE).await
    }

    /// A new database in the encoding LATIN1, with the catalog made by the service when it starts.
    pub async fn latin1() -> Db {
        let db =
            Db::from_template(cluster(), "template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'").await;
        db.sql(&format!("GRANT CREATE ON DATABASE {} TO yard_service", db.name)).await;
        db
    }

    /// A new database without the catalog; the service's role may migrate it, for which it needs CREATE on it (the
    /// roles of the catalog are the server's, and there already).
    pub async fn bare() -> Db {
        let db = Db::from_template(cluster(), "template0").await;
        db.sql(&format!("GRANT CREATE ON DATABASE {} TO yard_service", db.name)).await;
        db
    }

    async fn from_template(cluster: &'static Private, template: &str) -> Db {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A template may have no visitor, not even another copy that just ends.
        static COPY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let name = format!("yard{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let outside = cluster.connect("postgres", "postgres").await;
        let create = format!("CREATE DATABASE {name} TEMPLATE {template}");
        {
            let _alone = COPY.lock().await;
            let copied = eventually(PATIENCE, async || match outside.batch_execute(&create).await {
                Ok(()) => Some(()),
                Err(e) if e.code() == Some(&SqlState::OBJECT_IN_USE) => None,
                Err(e) => panic!("{create}: {e:?}"),
            });
            copied.await.expect("the template is free in the end");
        }
        let admin = cluster.connect("postgres", &name).await;
        admin.batch_execute("GRANT CREATE ON SCHEMA public TO alice, bob").await.unwrap();
        let alice = cluster.connect("alice", &name).await;
        Db { cluster, name, admin, alice }
    }

    /// A connection string for this database.
    pub fn url(&self, user: &str) -> String {
        self.cluster.url(user, &self.name)
    }

    /// Another connection.
    pub async fn connect(&self, user: &str) -> Client {
        self.cluster.connect(user, &self.name).await
    }

    /// psql, without anybody's settings, as this user.
    pub fn psql(&self, user: &str, sql: &str) -> Command {
        // Beside the server if it is there; distributions put it elsewhere too.
        let beside = self.cluster.bin_dir.join("psql");
        let mut command = Command::new(if beside.exists() { beside } else { "psql".into() });
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, &self.url(user)]);
        command
    }

    /// Runs statements as the superuser.
    pub async fn sql(&self, sql: &str) {
        self.admin.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    /// Runs statements as alice.
    pub async fn alice(&self, sql: &str) {
        self.alice.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    /// The one value of a query of the superuser, as text; "" for NULL and for no row.
    pub async fn value(&self, query: &str) -> String {
        let rows = self.admin.simple_query(query).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
        rows.iter()
            .find_map(|m| match m {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Submits a job as alice.
    pub async fn submit(&self, job: Value) -> i64 {
        self.alice.query_one("SELECT yardmaster.job_submit($1)", &[&job]).await.unwrap().get(0)
    }

    /// A job of alice's without tasks, to which a test adds some.
    pub async fn new_job(&self) -> i64 {
        let sql = "INSERT INTO yardmaster.job DEFAULT VALUES RETURNING job_id";
        self.alice.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Submits a job of one task as alice; returns job and task.
    pub async fn submit_one(&self, command: &str) -> (i64, i64) {
        let job = self.submit(serde_json::json!({ "task": [{ "command": command }] })).await;
        (job, self.tasks(job).await[0])
    }

    /// The tasks of a job, in the order of their ids, which is that of the file.
    pub async fn tasks(&self, job: i64) -> Vec<i64> {
        let sql = "SELECT task_id FROM yardmaster.task WHERE job_id = $1 ORDER BY task_id";
        self.admin.query(sql, &[&job]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// A task.
    pub async fn task(&self, task: i64) -> Task {
        let row = self.admin.query_one(TASK, &[&task]).await.unwrap();
        Task {
            task_id: row.get(0),
            status: row.get(1),
            pid: row.get(2),
            message: row.get(3),
            sqlstate: row.get(4),
            retry_count: row.get(5),
            attempt: row.get(6),
            interruptions: row.get(7),
            due_in: row.get(8),
            started_at: row.get(9),
            finished_at: row.get(10),
        }
    }

    /// A task's status.
    pub async fn status(&self, task: i64) -> String {
        self.task(task).await.status
    }

    /// The statuses of a job's tasks, in the order of their ids.
    pub async fn statuses(&self, job: i64) -> Vec<String> {
        let sql = "SELECT status::text FROM yardmaster.task WHERE job_id = $1 ORDER BY task_id";
        self.admin.query(sql, &[&job]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// A job's state.
    pub async fn job(&self, job: i64) -> String {
        let sql = "SELECT state::text FROM yardmaster.job WHERE job_id = $1";
        self.admin.query_one(sql, &[&job]).await.unwrap().get(0)
    }

    /// Waits until a task has this status, and returns it as it was then.
    #[track_caller]
    pub fn await_task(&self, task: i64, status: &str) -> impl Future<Output = Task> {
        let place = std::panic::Location::caller();
        async move {
            let reached = eventually(PATIENCE, async || {
                let now = self.task(task).await;
                (now.status == status).then_some(now)
            });
            match reached.await {
                Some(task) => task,
                None => panic!("{place}: task {task} does not become {status}: {:?}", self.task(task).await),
            }
        }
    }

    /// Waits until a job has this state.
    #[track_caller]
    pub fn await_job(&self, job: i64, state: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let reached = eventually(PATIENCE, async || (self.job(job).await == state).then_some(()));
            if reached.await.is_none() {
                panic!(
                    "{place}: job {job} does not become {state}: it is {} with tasks {:?}",
                    self.job(job).await,
                    self.statuses(job).await
                );
            }
        }
    }

    /// Waits until a query of the superuser gives `t`.
    #[track_caller]
    pub fn await_true(&self, query: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let reached = eventually(PATIENCE, async || (self.value(query).await == "t").then_some(()));
            assert!(reached.await.is_some(), "{place}: still not: {query}");
        }
    }

    /// Cancels a job as alice, by a request.
    pub async fn cancel(&self, job: i64) {
        self.alice(&format!("SELECT yardmaster.job_cancel({job})")).await;
    }

    /// Waits until nothing of the owners runs here any more.
    pub async fn await_quiet(&self) {
        let sql = "SELECT NOT EXISTS (SELECT FROM yardmaster.task WHERE status IN ('running', 'cancelling'))";
        self.await_true(sql).await;
    }

    /// Sleeps: for tests that must show that something does *not* happen for a while.
    pub async fn observe(&self, while_: Duration, mut holds: impl AsyncFnMut() -> bool, what: &str) {
        let broken = eventually(while_, async || (!holds().await).then_some(()));
        assert!(broken.await.is_none(), "did not hold for {while_:?}: {what}");
    }
}
