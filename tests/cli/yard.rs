//! A database with the catalog, the command line pointed at it, and a hand that plays the leader.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use crate::cluster::{Cluster, cluster};

const MIGRATIONS: [&str; 4] = [
    include_str!("../../migrations/V1__catalog.sql"),
    include_str!("../../migrations/V2__record.sql"),
    include_str!("../../migrations/V3__interface.sql"),
    include_str!("../../migrations/V4__functions.sql"),
];

/// Of the role `locked`; it must not show in any output.
pub const PASSWORD: &str = "hush-hush";

/// The roles of a cluster: those of the catalog, alice who submits, mallory who may nothing, two for refusals.
const ROLES: &str = "
    DO $$ BEGIN
        PERFORM pg_advisory_xact_lock(1);
        IF to_regrole('yardmaster_owner') IS NULL THEN
            CREATE ROLE yardmaster_owner NOLOGIN; CREATE ROLE yardmaster_user NOLOGIN;
            CREATE ROLE yardmaster_monitor NOLOGIN; CREATE ROLE yardmaster_admin NOLOGIN;
            CREATE ROLE alice LOGIN IN ROLE yardmaster_user; CREATE ROLE mallory LOGIN;
            CREATE ROLE refused LOGIN; CREATE ROLE locked LOGIN PASSWORD 'hush-hush';
        END IF;
    END $$";

/// More than anything takes here; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test's database.
pub struct Yard {
    pub cluster: &'static Cluster,
    pub database: String,
    /// A superuser's connection: the leader's hand.
    pub client: Client,
}

async fn superuser(database: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&cluster().url("postgres", database), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Yard {
    /// An empty database.
    pub async fn bare() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let database = format!("yard{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let outside = superuser("postgres").await;
        outside.batch_execute(ROLES).await.unwrap();
        outside.batch_execute(&format!("CREATE DATABASE {database} TEMPLATE template0")).await.unwrap();
        let client = superuser(&database).await;
        Self { cluster: cluster(), database, client }
    }

    /// A database with the catalog, and a leader that was alive a moment ago.
    pub async fn new() -> Self {
        let yard = Self::bare().await;
        yard.sql("CREATE SCHEMA yardmaster AUTHORIZATION yardmaster_owner; SET ROLE yardmaster_owner").await;
        for migration in MIGRATIONS {
            yard.sql(migration).await;
        }
        yard.sql("RESET ROLE").await;
        yard.renew().await;
        yard
    }

    pub async fn sql(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    /// Repeats a statement until it finds or changes a row.
    pub async fn until(&self, sql: &str) {
        let found = async {
            while self.client.execute(sql, &[]).await.unwrap() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect(sql);
    }

    /// The leader gives a sign of life.
    pub async fn renew(&self) {
        self.sql(
            "UPDATE yardmaster.leader SET epoch = 3, instance = 'vm-1';
             UPDATE yardmaster.leader_renewal SET epoch = 3, renewed_at = clock_timestamp()",
        )
        .await;
    }

    /// The leader admits everything: each task runnable, or blocked if it has dependencies.
    pub async fn admit(&self) {
        self.sql(
            "INSERT INTO yardmaster.job_state (job_id, n_tasks)
                SELECT j.job_id, (SELECT count(*) FROM yardmaster.task_spec t WHERE t.job_id = j.job_id)
                  FROM yardmaster.job_spec j ON CONFLICT DO NOTHING;
             INSERT INTO yardmaster.task_state (task_id, job_id, lane, queue_rank, status, ready)
                SELECT t.task_id, t.job_id, 1, 0,
                       CASE WHEN d.task_id IS NULL THEN 'runnable' ELSE 'blocked' END::yardmaster.task_status,
                       d.task_id IS NULL
                  FROM yardmaster.task_spec t
                  LEFT JOIN (SELECT DISTINCT task_id FROM yardmaster.task_depend) d USING (task_id)
                ON CONFLICT DO NOTHING",
        )
        .await;
    }

    /// The leader claims a task.
    pub async fn claim(&self, task: i64) {
        self.sql(&format!(
            "UPDATE yardmaster.task_state SET status = 'running', ready = false, attempt = attempt + 1, pid = 4711,
                    started_at = clock_timestamp(), finished_at = NULL WHERE task_id = {task};
             UPDATE yardmaster.job_state SET status = 'running', started_at = coalesce(started_at, clock_timestamp())
              WHERE job_id = (SELECT job_id FROM yardmaster.task_state WHERE task_id = {task})"
        ))
        .await;
    }

    /// The leader settles a task's attempt: `done`, or `error` with a message that tries to paint the terminal.
    pub async fn settle(&self, task: i64, is_done: bool) {
        let (status, outcome, sqlstate, message) = if is_done {
            ("done", "done", "NULL", "'INSERT 0 3'")
        } else {
            ("error", "failed", "'22012'", "E'NOTICE: \\x1b[31mred\\nERROR: division by zero'")
        };
        self.sql(&format!(
            "INSERT INTO yardmaster.attempt_log (task_id, attempt, node, pid, outcome, sqlstate, message, started_at, ended_at)
             SELECT task_id, attempt, '', pid, '{outcome}', {sqlstate}, {message}, started_at, clock_timestamp()
               FROM yardmaster.task_state WHERE task_id = {task};
             UPDATE yardmaster.task_state SET status = '{status}', ready = false, pid = NULL, finished_at = clock_timestamp()
              WHERE task_id = {task};
             WITH n AS (SELECT job_id, count(*) FILTER (WHERE status = 'done') AS done,
                               count(*) FILTER (WHERE status IN ('error', 'unscheduled', 'cancelled')) AS bad,
                               count(*) AS tasks
                          FROM yardmaster.task_state GROUP BY job_id)
             UPDATE yardmaster.job_state s
                SET n_done = n.done, n_bad = n.bad,
                    status = CASE WHEN n.done = n.tasks THEN 'finished'
                                  WHEN n.done + n.bad = n.tasks THEN 'failed'
                                  WHEN n.bad > 0 THEN 'failing' ELSE 'running' END::yardmaster.job_status,
                    finished_at = CASE WHEN n.done + n.bad = n.tasks THEN clock_timestamp() END
               FROM n WHERE n.job_id = s.job_id"
        ))
        .await;
    }

    /// The command line as alice, ready to run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_as("alice", arguments)
    }

    pub fn command_as(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = yardmaster(arguments);
        command.env("DATABASE_URL", self.cluster.url(user, &self.database));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Told {
        Told::of(self.command(arguments).output().unwrap())
    }
}

/// The binary in an environment that says nothing about databases, colours or widths.
pub fn yardmaster(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yardmaster"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("PG")
            || name.starts_with("YARDMASTER")
            || name == "DATABASE_URL"
            || name == "COLUMNS"
        {
            command.env_remove(name);
        }
    }
    command
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Told {
    pub exit: i32,
    pub out: String,
    pub err: String,
}

impl Told {
    pub fn of(output: Output) -> Self {
        let told = Self {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        // Rules for every output of every test.
        for text in [&told.out, &told.err] {
            assert!(!text.contains('\u{1b}'), "an escape in {told:?}");
            assert!(!text.contains(PASSWORD), "a password in {told:?}");
            assert!(!text.contains("panicked"), "{told:?}");
        }
        told
    }

    /// Asserts the exit code, for chaining.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.exit, code, "{self:?}");
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}
