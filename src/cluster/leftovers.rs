//! Ends what an earlier run left behind in a cluster's folder: a postmaster whose Yardmaster was killed, backends
//! whose postmaster was killed, a pid file that names somebody else's process.
//!
//! We stop an orphaned postmaster and start our own, rather than take it over: its settings and its binaries are
//! then ours, it is our child so that its end is an event, and there is one way to start, used every day. What its
//! sessions ran is rolled back, as after any crash.
//!
//! A process counts as a server of this cluster if its program is `postgres` and its working folder is the
//! cluster's (every server process enters it; folders are compared by device and inode). A pid alone proves
//! nothing: after a restart of a container the same numbers come back. Where there is no `/proc` nothing is found
//! here, and PostgreSQL's own checks decide. The caller holds the data folder's lock, so no server of a live
//! Yardmaster is ever hit.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::ClusterError;

/// How long an orphaned postmaster may take to shut down in order (it writes a checkpoint).
const FAST_LIMIT: Duration = Duration::from_secs(30);
/// How long processes may take to leave without cleaning up. A postmaster kills its children 5 s after SIGQUIT.
const QUIT_LIMIT: Duration = Duration::from_secs(7);
/// How long the kernel may take to end a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// How often we look. Ends of processes that are not our children are no events.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Ends every server process in `cluster`, then removes a pid file that would stop ours from starting.
pub(super) async fn end_leftovers(cluster: &Path) -> Result<(), ClusterError> {
    let Ok(about) = cluster.metadata() else { return Ok(()) };
    let postmaster = recorded_postmaster(cluster);
    let mut left = servers_in(&about);
    if !left.is_empty() {
        tracing::warn!(folder = %cluster.display(), pids = ?left, "ending the servers an earlier run left behind");
    }
    if let Some(pid) = postmaster.filter(|pid| left.contains(pid)) {
        signal(&[pid], Signal::SIGINT);
        left = await_end(&about, FAST_LIMIT).await;
    }
    for (last_word, limit) in [(Signal::SIGQUIT, QUIT_LIMIT), (Signal::SIGKILL, KILL_LIMIT)] {
        if !left.is_empty() {
            signal(&left, last_word);
            left = await_end(&about, limit).await;
        }
    }
    if !left.is_empty() {
        return Err(ClusterError::Leftovers { folder: cluster.to_owned(), pids: left });
    }
    match recorded_postmaster(cluster) {
        Some(pid) if is_somebody_else(pid, &about) => remove_pid_file(cluster),
        _ => Ok(()),
    }
}

/// The cluster's pid file.
pub(super) fn pid_file(cluster: &Path) -> PathBuf {
    cluster.join("postmaster.pid")
}

/// The pid in the pid file. Negative ones are of single-user servers; no file or an empty one is none.
fn recorded_postmaster(cluster: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(pid_file(cluster)).ok()?;
    text.lines().next()?.trim().parse::<i32>().ok().map(i32::unsigned_abs)
}

/// PostgreSQL refuses to start while the pid in its file is alive, whoever that is, and a zombie counts as alive.
/// True only if `/proc` shows that this living process is no server of the cluster; otherwise the file stays,
/// because PostgreSQL also finds shared memory still in use through it.
fn is_somebody_else(pid: u32, cluster: &Metadata) -> bool {
    let Ok(number) = i32::try_from(pid) else { return false };
    if kill(Pid::from_raw(number), None).is_err() {
        return false;
    }
    match std::fs::metadata(format!("/proc/{pid}/cwd")) {
        Ok(cwd) => !same_file(&cwd, cluster) || !runs_postgres(pid),
        // A zombie has no working folder, but still a name.
        Err(e) => {
            e.kind() == std::io::ErrorKind::NotFound && Path::new(&format!("/proc/{pid}/stat")).exists()
        }
    }
}

fn remove_pid_file(cluster: &Path) -> Result<(), ClusterError> {
    let path = pid_file(cluster);
    tracing::info!(path = %path.display(), "removing a stale pid file: its process is another program's now");
    std::fs::remove_file(&path).map_err(ClusterError::io("remove the stale pid file", &path))
}

/// The processes that are servers of the cluster.
fn servers_in(cluster: &Metadata) -> Vec<u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| same_file(&cwd, cluster))
                && runs_postgres(*pid)
        })
        .collect()
}

/// Whether the process's program is `postgres`, so that a shell which stands in the folder is left alone.
/// An upgraded program's name ends in ` (deleted)`.
fn runs_postgres(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|exe| exe.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"postgres")))
}

fn same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn signal(pids: &[u32], signal: Signal) {
    for pid in pids {
        let Ok(number) = i32::try_from(*pid) else { continue };
        match kill(Pid::from_raw(number), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(e) => tracing::warn!(pid, %signal, "cannot signal a leftover server: {e}"),
        }
    }
}

/// Waits until no server is left in the cluster, at most `limit`; returns those that are.
async fn await_end(cluster: &Metadata, limit: Duration) -> Vec<u32> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        let left = servers_in(cluster);
        if left.is_empty() || tokio::time::Instant::now() >= deadline {
            return left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
