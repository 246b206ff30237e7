//! A data folder and the few things every test does with a cluster in it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};
use yardmaster::cluster::{Binaries, Cluster, ClusterError, ClusterOptions, StopMode};

/// The variable that turns the ignored test `hold_a_cluster` into another Yardmaster, for one folder.
const HOLD: &str = "YARDMASTER_TEST_HOLD";
/// More than any start takes here; a test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A new folder, directly under the temporary folder so that root's account can get there.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("ym-cluster-").tempdir().unwrap()
}

pub fn binaries() -> Binaries {
    Binaries::find().unwrap()
}

pub fn options(data_dir: &Path) -> ClusterOptions {
    ClusterOptions { fsync: false, ..ClusterOptions::new(data_dir) }
}

pub async fn start(data_dir: &Path) -> Result<Cluster, ClusterError> {
    Cluster::start(&binaries(), options(data_dir)).await
}

pub async fn connect(cluster: &Cluster) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&cluster.url("postgres", "postgres"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// What a query of one row and one column answers, as text.
pub async fn ask(cluster: &Cluster, sql: &str) -> String {
    let client = connect(cluster).await;
    client.query_one(&format!("SELECT ({sql})::text"), &[]).await.unwrap().get(0)
}

pub async fn stop(cluster: Cluster) {
    cluster.stop(StopMode::Fast).await.unwrap();
}

/// The folders of unfinished clusters.
pub fn partials(data_dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data_dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.display().to_string().contains("postgres.partial")).collect()
}

/// Whether a process exists and is not merely waiting to be reaped.
pub fn is_alive(pid: u32) -> bool {
    // The state follows the name, which is in parentheses (proc(5)).
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
}

pub async fn await_death(pid: u32) {
    let gone = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

/// Another process that holds a cluster until it is killed: this test program, running `hold_a_cluster`.
pub struct Holder {
    child: Child,
    /// Its postmaster.
    pub postmaster: u32,
}

impl Holder {
    /// The process alone, at whatever it is doing.
    pub fn spawn(data_dir: &Path) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::hold_a_cluster", "--ignored", "--nocapture"])
            .env(HOLD, data_dir)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// The process, with its cluster started.
    pub async fn start(data_dir: &Path) -> Holder {
        let mut child = Holder::spawn(data_dir);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let postmaster = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the holder ended early");
                if let Some((_, pid)) = line.split_once("holding ") {
                    return pid.parse().unwrap();
                }
            }
        };
        let postmaster = tokio::time::timeout(PATIENCE, postmaster).await.unwrap();
        Holder { child, postmaster }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// `kill -9`, and reaped.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// The other side of [`Holder`].
pub async fn hold() {
    let Some(data_dir) = std::env::var_os(HOLD).map(PathBuf::from) else { return };
    let cluster = start(&data_dir).await.unwrap();
    println!("holding {}", cluster.pid());
    std::future::pending::<()>().await;
}

pub fn kill(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}
