//! A private PostgreSQL: created, started and stopped by us, for us alone.
//!
//! `run` and `serve` use one when no database is given, and the tests do. A [`Cluster`] owns a data folder: the
//! lock on it, the server's process, the socket folder. Nothing else in the crate knows those; it gets a URL.
//!
//! - Nobody but us (and root) can connect: there is no TCP, and the socket lies in a folder of mode 0700. Inside,
//!   everybody is trusted, so that tasks can log in as their owners.
//! - The server never runs as root: root lends it an account (`account`).
//! - One instance per data folder (`lock`). What a killed instance left running is ended first (`leftovers`).
//! - A cluster is whole or absent (`initdb`), and is opened by its own major version only.
//! - The server ends with us: by [`Cluster::stop`] in order, by `Drop` at once. After a `kill -9` of ours it stays,
//!   until the next start on the folder.
//!
//! ```no_run
//! # async fn example() -> Result<(), yardmaster::cluster::ClusterError> {
//! use yardmaster::cluster::{Binaries, Cluster, ClusterOptions, StopMode, default_data_dir};
//! let data_dir = default_data_dir()?;
//! let binaries = Binaries::find_for(&data_dir)?;
//! let cluster = Cluster::start(&binaries, ClusterOptions::new(data_dir)).await?;
//! println!("psql '{}'", cluster.url("postgres", "postgres"));
//! cluster.stop(StopMode::Fast).await
//! # }
//! ```

mod account;
mod binaries;
mod error;
mod initdb;
mod layout;
mod leftovers;
mod lock;
mod postmaster;
mod socket;
mod url;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use account::Account;
use layout::Layout;
use lock::FolderLock;
use postmaster::Postmaster;
use socket::SocketDir;

pub use binaries::{Binaries, MAX_VERSION, MIN_VERSION};
pub use error::ClusterError;
pub use layout::default_data_dir;

/// How a cluster is to be run.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The folder that holds the cluster, its log and its lock; created if absent.
    pub data_dir: PathBuf,
    /// Whether commits survive a crash of the machine. False is for tests, and makes them several times faster.
    pub fsync: bool,
    /// Server settings beyond our own, which they may replace; not those that keep the server private.
    pub settings: Vec<(String, String)>,
}

impl ClusterOptions {
    /// Returns the options of a real cluster in `data_dir`: durable, with the usual settings.
    pub fn new(data_dir: impl Into<PathBuf>) -> ClusterOptions {
        ClusterOptions { data_dir: data_dir.into(), fsync: true, settings: Vec::new() }
    }
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Ends the sessions, rolls back, writes a checkpoint; falls back to `Immediate` after 30 s.
    Fast,
    /// Leaves at once; the next start recovers.
    Immediate,
}

/// A started private cluster.
#[derive(Debug)]
pub struct Cluster {
    // Declared, and so dropped, in this order: the server ends before the lock does.
    postmaster: Postmaster,
    socket: SocketDir,
    account: Account,
    layout: Layout,
    binaries: Binaries,
    options: ClusterOptions,
    _lock: FolderLock,
}

impl Cluster {
    /// Starts the cluster in `options.data_dir`, after creating it if need be, and waits until it accepts
    /// connections. Creating takes seconds, starting a fraction of one.
    ///
    /// Dropping the future ends what was started.
    ///
    /// # Errors
    ///
    /// [`ClusterError`], most notably `InUse`, `WrongVersion`, `Unreachable` and `Start`.
    pub async fn start(binaries: &Binaries, options: ClusterOptions) -> Result<Cluster, ClusterError> {
        let layout = Layout::prepare(&options.data_dir)?;
        let lock = FolderLock::take(&layout)?;
        let account = Account::choose(&layout.cluster())?;
        account.check_reach(&layout.data_dir)?;
        account.check_reach(&binaries.bin_dir)?;
        leftovers::end_leftovers(&layout.cluster()).await?;
        initdb::ensure_cluster(binaries, &account, &layout, options.fsync).await?;
        let socket = SocketDir::prepare(&layout, &account)?;
        socket.clear()?;
        let postmaster = Postmaster::start(binaries, &account, &layout, &socket.path, &options).await?;
        Ok(Cluster { postmaster, socket, account, layout, binaries: binaries.clone(), options, _lock: lock })
    }

    /// Returns the URL that logs `user` into `database`, for tokio-postgres and libpq alike. It holds no secret.
    pub fn url(&self, user: &str, database: &str) -> String {
        url::over_socket(&self.socket.path, socket::PORT, user, database)
    }

    /// Returns the folder of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        &self.socket.path
    }

    /// Returns the port number that is part of the socket's name.
    pub fn port(&self) -> u16 {
        socket::PORT
    }

    /// Returns the postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.postmaster.pid()
    }

    /// Returns the path of the server's log.
    pub fn log_file(&self) -> PathBuf {
        self.layout.log()
    }

    /// Waits until the server ends by itself, which it should not; [`restart`](Cluster::restart) then. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Io`] if the end cannot be seen.
    pub async fn exited(&mut self) -> Result<ExitStatus, ClusterError> {
        self.postmaster.exited().await
    }

    /// Starts the server anew, in the same folders and so under the same URL. One that still runs is stopped.
    ///
    /// # Errors
    ///
    /// [`ClusterError`]; the server is then down, and another restart may be tried.
    pub async fn restart(&mut self, mode: StopMode) -> Result<(), ClusterError> {
        self.postmaster.stop(mode).await?;
        leftovers::end_leftovers(&self.layout.cluster()).await?;
        self.socket.clear()?;
        self.postmaster =
            Postmaster::start(&self.binaries, &self.account, &self.layout, &self.socket.path, &self.options)
                .await?;
        Ok(())
    }

    /// Stops the server and gives up the data folder. Takes at most 40 s, usually a fraction of a second.
    ///
    /// # Errors
    ///
    /// [`ClusterError`] if the server's end cannot be brought about or seen.
    pub async fn stop(mut self, mode: StopMode) -> Result<(), ClusterError> {
        self.postmaster.stop(mode).await?;
        self.socket.remove_if_short();
        Ok(())
    }
}

/// The URL into a private server that runs on `data_dir`, started by whatever process; `None` if none runs there or it
/// may not be looked at.
///
/// PostgreSQL writes its process id, port and socket folder into `postmaster.pid` (lines 1, 4 and 5).
pub fn running_url(data_dir: &Path, user: &str, database: &str) -> Option<String> {
    let text = std::fs::read_to_string(data_dir.join(layout::Layout::CLUSTER).join("postmaster.pid")).ok()?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let pid: i32 = lines.first()?.parse().ok()?;
    let alive = Path::new("/proc").join(pid.to_string()).exists();
    let (port, folder) = (lines.get(3)?.parse().ok()?, lines.get(4).filter(|f| !f.is_empty())?);
    alive.then(|| url::over_socket(Path::new(folder), port, user, database))
}
