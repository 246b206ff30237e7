//! One run of the server: its command line, waiting until it is ready, and its end.
//!
//! The postmaster is our child, in a process group of its own: Ctrl-C in our terminal does not reach it, so that
//! we can end our work in order before it goes. Whoever drops a [`Postmaster`] stops it.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use super::account::Account;
use super::binaries::Binaries;
use super::error::ClusterError;
use super::layout::Layout;
use super::leftovers::pid_file;
use super::{ClusterOptions, StopMode, socket};

/// How long a starting server may say nothing in its log. Recovery after a crash may take longer than this in all,
/// and reports its progress every 10 s.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// How long a start may take in all, whatever the log says.
const START_LIMIT: Duration = Duration::from_secs(3600);
/// How long a fast shutdown may take; most of it is a checkpoint.
const FAST_LIMIT: Duration = Duration::from_secs(30);
/// How long an immediate shutdown may take: the postmaster kills its children after 5 s.
const IMMEDIATE_LIMIT: Duration = Duration::from_secs(10);
/// How often the pid file is read while the server starts; `pg_ctl -w` does the same every 100 ms.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The line of the pid file that holds the server's state, counted from 0 (`LOCK_FILE_LINE_PM_STATUS` in
/// PostgreSQL's `utils/pidfile.h`).
const STATUS_LINE: usize = 7;

/// What a small private server needs beyond PostgreSQL's defaults. The caller's settings may replace these.
const SETTINGS: [(&str, &str); 9] = [
    ("max_connections", "200"),
    ("shared_buffers", "128MB"),
    ("huge_pages", "off"),
    // Compiling an expression costs more than most tasks' statements run.
    ("jit", "off"),
    ("cluster_name", "yardmaster"),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_checkpoints", "off"),
    ("log_line_prefix", "%m [%p] %q%u@%d "),
];

/// A running postmaster.
#[derive(Debug)]
pub(super) struct Postmaster {
    child: Child,
    pid: u32,
    account: Account,
    pg_ctl: PathBuf,
    folder: PathBuf,
}

impl Postmaster {
    /// Starts the server in an existing cluster and waits until it accepts connections.
    pub(super) async fn start(
        binaries: &Binaries,
        account: &Account,
        layout: &Layout,
        socket_dir: &Path,
        options: &ClusterOptions,
    ) -> Result<Postmaster, ClusterError> {
        let (log, log_start) = layout.open_log()?;
        let program = binaries.program("postgres");
        let mut command = account.command(&program);
        command.arg("-D").arg(layout.cluster());
        for (name, value) in server_settings(socket_dir, options) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let copy = log.try_clone().map_err(ClusterError::io("open the log", &layout.log()))?;
        command.stdout(copy).stderr(log);
        let child =
            tokio::process::Command::from(command).spawn().map_err(ClusterError::io("run", &program))?;
        // A child that was never waited for has an id.
        let pid = child.id().unwrap_or_default();
        let mut postmaster = Postmaster {
            child,
            pid,
            account: account.clone(),
            pg_ctl: binaries.program("pg_ctl"),
            folder: layout.cluster(),
        };
        match postmaster.await_ready(layout).await {
            Ok(()) => Ok(postmaster),
            Err(reason) => {
                postmaster.stop(StopMode::Immediate).await?;
                Err(ClusterError::Start {
                    folder: layout.cluster(),
                    reason,
                    log: layout.log(),
                    tail: layout.log_tail(log_start),
                })
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the postmaster ends by itself.
    pub(super) async fn exited(&mut self) -> Result<ExitStatus, ClusterError> {
        self.child.wait().await.map_err(ClusterError::io("wait for the server in", &self.folder))
    }

    /// Stops the server: in order if `mode` says so and it is quick enough, else at once, else by SIGKILL (then
    /// its backends may outlive it a little; the next start ends them).
    pub(super) async fn stop(&mut self, mode: StopMode) -> Result<(), ClusterError> {
        let steps = [(Signal::SIGINT, FAST_LIMIT), (Signal::SIGQUIT, IMMEDIATE_LIMIT)];
        let first = match mode {
            StopMode::Fast => 0,
            StopMode::Immediate => 1,
        };
        for (signal, limit) in &steps[first..] {
            self.signal(*signal);
            if let Ok(ended) = timeout(*limit, self.exited()).await {
                return ended.map(|_| ());
            }
            tracing::warn!(pid = self.pid, %signal, ?limit, "the server does not stop in time");
        }
        self.child.kill().await.map_err(ClusterError::io("kill the server in", &self.folder))
    }

    fn signal(&self, signal: Signal) {
        // While the child is not reaped, its pid cannot be another process's.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok())
            && let Err(e) = kill(Pid::from_raw(pid), signal)
        {
            tracing::warn!(pid, %signal, "cannot signal the server: {e}");
        }
    }

    /// Waits until the pid file says so; the error is the reason why it never will.
    async fn await_ready(&mut self, layout: &Layout) -> Result<(), String> {
        let began = Instant::now();
        let mut log_length = 0;
        let mut heard = began;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Err(format!("it ended with {status}")),
                Ok(None) => {}
                Err(e) => return Err(format!("its end cannot be seen: {e}")),
            }
            if self.is_ready() {
                return Ok(());
            }
            let length = layout.log().metadata().map_or(0, |about| about.len());
            if length != log_length {
                (log_length, heard) = (length, Instant::now());
            }
            if heard.elapsed() > SILENCE_LIMIT {
                return Err(format!("it said nothing for {SILENCE_LIMIT:?}"));
            }
            if began.elapsed() > START_LIMIT {
                return Err(format!("it was not ready after {START_LIMIT:?}"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn is_ready(&self) -> bool {
        let text = std::fs::read_to_string(pid_file(&self.folder)).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        // The pid tells our server's file from one that an earlier server left.
        lines.next() == Some(self.pid.to_string().as_str()) && lines.nth(STATUS_LINE - 1) == Some("ready")
    }
}

impl Drop for Postmaster {
    /// Stops the server at once and waits, at most a few seconds, for its end: for panics and early returns. The
    /// next start recovers as after a crash. `pg_ctl` does the waiting, because a destructor cannot await.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let stopped = self
            .account
            .command(&self.pg_ctl)
            .args(["stop", "--silent", "--wait", "--mode=immediate", "--timeout=10", "--pgdata"])
            .arg(&self.folder)
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            // It has no pid file yet, or hangs. Its children notice that it is gone.
            let _ = self.child.start_kill();
        }
    }
}

/// Every setting of the command line; of two of one name the later wins, so what must hold comes last.
fn server_settings(socket_dir: &Path, options: &ClusterOptions) -> Vec<(String, String)> {
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut all: Vec<_> = SETTINGS.iter().map(|(name, value)| own(name, value)).collect();
    if !options.fsync {
        all.extend([own("fsync", "off"), own("full_page_writes", "off")]);
    }
    all.extend(options.settings.iter().cloned());
    // A list of folders: quoted, so that a comma or a space in the path stays in it.
    let quoted = format!("\"{}\"", socket_dir.to_string_lossy().replace('"', "\"\""));
    all.extend([
        own("listen_addresses", ""),
        own("unix_socket_directories", &quoted),
        own("unix_socket_permissions", "0700"),
        own("port", &socket::PORT.to_string()),
    ]);
    all
}
