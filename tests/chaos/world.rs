//! The victims: a PostgreSQL of our own and two services side by side on it.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};
use yardmaster::cluster::{Cluster, StopMode};

use crate::support::{Db, Private, own, yardmaster};

/// The global limit of the services.
pub const LIMIT: usize = 8;
/// The limit of each logical node; tasks name `n0` to `n3`.
pub const NODE_LIMIT: usize = 3;
/// Who owns the tasks.
pub const OWNER: &str = "alice";
/// What tasks write into.
const TABLES: &str = "
    CREATE TABLE public.ledger (k bigint, at timestamptz DEFAULT clock_timestamp());
    CREATE TABLE public.scratch (k bigint);";

/// A server that ends and is removed with this process, the services on it, and their logs.
pub struct World {
    pub services: Vec<Service>,
    cluster: Cluster,
    place: &'static Private,
    database: String,
    logs: TempDir,
}

impl World {
    pub async fn new() -> World {
        let (cluster, place) = own(&[]).await;
        let db = Db::on(place).await;
        db.sql(&format!("GRANT CREATE ON DATABASE {} TO {OWNER}", db.name)).await;
        db.alice(TABLES).await;
        let logs = tempfile::Builder::new().prefix("ym-chaos-").tempdir().unwrap();
        let url = db.url("yard_service");
        let services = ["left", "right"].map(|name| Service::new(name, &url, logs.path())).into();
        World { services, cluster, place, database: db.name.clone(), logs }
    }

    /// A superuser's connection.
    pub async fn admin(&self) -> Option<Client> {
        connect(&self.url("postgres")).await
    }

    pub fn url(&self, user: &str) -> String {
        self.place.url(user, &self.database)
    }

    /// The server leaves without a word and comes back.
    pub async fn crash_postgres(&mut self) {
        self.cluster.restart(StopMode::Immediate).await.unwrap();
    }

    /// What the services logged, for a test that fails.
    pub fn logs(&self) -> String {
        let logs = self.services.iter().map(|s| std::fs::read_to_string(&s.log).unwrap_or_default());
        logs.map(|log| {
            log.lines().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
        })
        .collect::<Vec<_>>()
        .join("\n--------\n")
    }

    /// Ends everything in order and removes it.
    pub async fn close(self) {
        self.cluster.stop(StopMode::Immediate).await.unwrap();
        self.logs.close().unwrap();
    }
}

/// A connection, or `None` while the server is away.
pub async fn connect(url: &str) -> Option<Client> {
    let connected = tokio::time::timeout(Duration::from_secs(5), tokio_postgres::connect(url, NoTls)).await;
    let (client, connection) = connected.ok()?.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// One instance of the service, running or not.
pub struct Service {
    pub name: &'static str,
    url: String,
    log: std::path::PathBuf,
    child: Option<Child>,
}

impl Service {
    fn new(name: &'static str, url: &str, folder: &Path) -> Service {
        Service { name, url: url.to_owned(), log: folder.join(format!("{name}.log")), child: None }
    }

    /// Starts it, unless it runs.
    pub fn start(&mut self) {
        if self.is_running() {
            return;
        }
        let log = std::fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let settings = [
            format!("instance_name={}", self.name),
            format!("limits.max_task_executors={LIMIT}"),
            format!("limits.max_task_executors_per_node={NODE_LIMIT}"),
            "sessions.max_pending=8".to_owned(),
            "retry.delays=50ms,200ms".to_owned(),
            "cancel.grace=500ms".to_owned(),
            "shutdown.grace=300ms".to_owned(),
        ];
        let mut command = yardmaster(&["serve", "--set", "http.listen=127.0.0.1:0", "--database", &self.url]);
        for setting in settings {
            command.args(["--set", &setting]);
        }
        command.env("RUST_BACKTRACE", "1").stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // It may have ended by itself; then there is nobody to tell.
            let _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal);
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Waits for its end and answers the exit code; `None` if it does not end in time or was killed.
    pub async fn ended(&mut self, within: Duration) -> Option<i32> {
        let deadline = tokio::time::Instant::now() + within;
        let child = self.child.as_mut()?;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                self.child = None;
                return status.code();
            }
            if tokio::time::Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}
