//! What is measured: a private PostgreSQL, the real binary's service on it, and what both cost.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};
use yardmaster::cluster::{Binaries, Cluster, ClusterOptions, StopMode};

/// Tasks that run at once, and clients of the yardsticks.
pub const EXECUTORS: u32 = 16;
/// Longer than any single wait takes on a slow machine; then the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(180);
/// Ticks a second of the times in /proc: USER_HZ, 100 on every architecture that Linux distributions are built for.
const TICKS: f64 = 100.0;

/// The database, a service role without superuser rights, and an owner of tasks, set up as README.md says.
const ROLES: &str = "
CREATE ROLE yard_service LOGIN IN ROLE yardmaster_owner, pg_read_all_stats, pg_signal_backend;
CREATE ROLE app LOGIN IN ROLE yardmaster_user;
CREATE SCHEMA app AUTHORIZATION app";

/// The server, the service and the connections of those who measure.
pub struct Yard {
    /// A superuser, for measuring.
    pub admin: Client,
    /// How it connected.
    pub admin_url: String,
    /// The ordinary user that submits and owns the tasks.
    pub app: Client,
    /// Another connection of that user, for watching.
    pub watcher: Client,
    /// How both connected.
    pub app_url: String,
    /// A folder for files, removed at the end.
    pub folder: TempDir,
    cluster: Cluster,
    binaries: Binaries,
    service_url: String,
    service: Option<Child>,
}

/// What has been used so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Processor time of the service, in seconds.
    pub service: f64,
    /// Processor time of the server, all its processes, in seconds.
    pub server: f64,
    /// Bytes of WAL.
    pub wal: f64,
    /// How often WAL was flushed to disk; NaN where the server does not count it so (18 and later).
    pub flushes: f64,
}

impl Yard {
    /// Starts a durable private server and sets it up; the service is not started yet.
    pub async fn build() -> Result<Yard> {
        // Directly under the temporary folder, so that root's account for PostgreSQL can get there.
        let folder = tempfile::Builder::new().prefix("ym-bench-").tempdir()?;
        let binaries = Binaries::find()?;
        let cluster = Cluster::start(&binaries, ClusterOptions::new(folder.path())).await?;
        connect(&cluster.url("postgres", "postgres")).await?.batch_execute("CREATE DATABASE bench").await?;
        let admin_url = cluster.url("postgres", "bench");
        let migrated = Command::new(BINARY).args(["migrate", "--database", &admin_url]).output().await?;
        ensure!(migrated.status.success(), "migrate: {}", String::from_utf8_lossy(&migrated.stderr));
        let admin = connect(&admin_url).await?;
        admin.batch_execute(ROLES).await?;
        let app_url = cluster.url("app", "bench");
        Ok(Yard {
            app: connect(&app_url).await?,
            watcher: connect(&app_url).await?,
            service_url: cluster.url("yard_service", "bench"),
            admin,
            admin_url,
            app_url,
            folder,
            cluster,
            binaries,
            service: None,
        })
    }

    /// A program of PostgreSQL's: beside the server's binaries, where those really are, or in PATH.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let real = self.binaries.bin_dir.join("postgres").canonicalize().ok();
        let real = real.as_deref().and_then(Path::parent).map(Path::to_owned);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            std::iter::once(self.binaries.bin_dir.clone()).chain(real).chain(std::env::split_paths(&path));
        folders.map(|folder| folder.join(name)).find(|program| program.is_file())
    }

    /// Starts the service and waits until it holds office.
    pub async fn serve(&mut self) -> Result<()> {
        let log = std::fs::File::create(self.folder.path().join("service.log"))?;
        let mut command = Command::new(BINARY);
        command.args(["serve", "--set", "http.listen=127.0.0.1:0", "--database", &self.service_url]);
        command.args(["--set", &format!("limits.max_task_executors={EXECUTORS}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        self.service = Some(command.spawn().context("start the service")?);
        let deadline = Instant::now() + PATIENCE;
        let asked = "SELECT epoch > 0 FROM yardmaster.leader";
        while !self.admin.query_one(asked, &[]).await?.get::<_, bool>(0) {
            self.check(deadline)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until a job has finished.
    ///
    /// # Errors
    /// When it ends otherwise, or not in time.
    pub async fn finished(&self, job: i64) -> Result<()> {
        self.until(job, "SELECT state::text FROM yardmaster.job WHERE job_id = $1", "finished").await
    }

    /// Waits until a query about a job, asked every 20 ms, answers a text; any other terminal state is an error.
    pub async fn until(&self, job: i64, question: &str, wanted: &str) -> Result<()> {
        let question = self.watcher.prepare(question).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer: String = self.watcher.query_one(&question, &[&job]).await?.get(0);
            if answer == wanted {
                return Ok(());
            }
            ensure!(
                !["finished", "failed", "cancelled"].contains(&answer.as_str()),
                "job {job} is {answer}, not {wanted}"
            );
            self.check(deadline)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn check(&self, deadline: Instant) -> Result<()> {
        if Instant::now() < deadline {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.folder.path().join("service.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(10).collect();
        bail!(
            "nothing happened for {PATIENCE:?}; the service's last words, newest first:\n{}",
            tail.join("\n")
        )
    }

    /// What service and server have used so far.
    pub async fn usage(&self) -> Result<Usage> {
        let wal = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8";
        let mut server = times(self.cluster.pid()).context("the server's own times")?.all();
        for entry in std::fs::read_dir("/proc")? {
            let Ok(pid) = entry?.file_name().to_string_lossy().parse() else { continue };
            // A process that ended meanwhile is counted by its parent.
            if let Some(child) = times(pid).filter(|t| t.parent == self.cluster.pid()) {
                server += child.own;
            }
        }
        Ok(Usage {
            service: times(self.service_pid()?).context("the service's times")?.own,
            server,
            wal: self.admin.query_one(wal, &[]).await?.get(0),
            flushes: match self.admin.query_one("SELECT wal_sync::float8 FROM pg_stat_wal", &[]).await {
                Ok(row) => row.get(0),
                Err(_) => f64::NAN,
            },
        })
    }

    /// A field of the service's /proc/PID/status, in MiB.
    pub fn service_memory(&self, field: &str) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.service_pid()?))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib: f64 =
            line.and_then(|l| l.trim().strip_suffix("kB")).context("no such field")?.trim().parse()?;
        Ok(kib / 1024.0)
    }

    fn service_pid(&self) -> Result<u32> {
        self.service.as_ref().and_then(Child::id).context("the service does not run")
    }

    /// Ends the service in order, then the server.
    pub async fn close(mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.service_pid()?)?);
        kill(pid, Signal::SIGTERM)?;
        if let Some(mut service) = self.service.take() {
            let status = tokio::time::timeout(PATIENCE, service.wait()).await??;
            ensure!(status.success(), "the service ended with {status}");
        }
        self.cluster.stop(StopMode::Fast).await?;
        Ok(())
    }
}

/// The binary under test, as cargo built it.
pub const BINARY: &str = env!("CARGO_BIN_EXE_yardmaster");

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Processor times of a process, in seconds.
struct Times {
    parent: u32,
    own: f64,
    /// Of children that ended and were waited for.
    waited: f64,
}

impl Times {
    fn all(&self) -> f64 {
        self.own + self.waited
    }
}

/// Reads /proc/PID/stat (proc(5)): the fields after the name, which is in parentheses, are state, parent, … and from
/// the 12th utime, stime, cutime, cstime.
fn times(pid: u32) -> Option<Times> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let seconds = |i: usize| fields.get(i)?.parse::<f64>().ok().map(|ticks| ticks / TICKS);
    Some(Times {
        parent: fields.get(1)?.parse().ok()?,
        own: seconds(11)? + seconds(12)?,
        waited: seconds(13)? + seconds(14)?,
    })
}
