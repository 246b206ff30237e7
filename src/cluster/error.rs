//! What can go wrong with a private PostgreSQL, each with its remedy.

use std::path::{Path, PathBuf};

/// An operating failure of a private cluster. Every message names the input, the rule and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No usable server binaries were found.
    #[error(
        "find the PostgreSQL server binaries (initdb, pg_ctl, postgres; version {min} to {max}): install them \
         with `apt-get install postgresql`, or name their folder in YARDMASTER_PG_BIN; searched:\n{searched}",
        min = super::binaries::MIN_VERSION,
        max = super::binaries::MAX_VERSION
    )]
    NoBinaries {
        /// One line a place: the folder and what was wrong with it.
        searched: String,
    },

    /// A folder was named as holding the binaries, and does not.
    #[error("use the PostgreSQL binaries in {}: {reason}; correct or unset YARDMASTER_PG_BIN", bin_dir.display())]
    UnusableBinaries {
        /// The folder that was named.
        bin_dir: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },

    /// We are root, PostgreSQL refuses to run as root, and there is no account to run it as.
    #[error(
        "find an account to run PostgreSQL as: it refuses to run as root and the account `postgres` does not \
         exist; create it with `useradd --system postgres`, or start Yardmaster as an ordinary user"
    )]
    NoAccount,

    /// The account that runs PostgreSQL cannot enter a folder on the way to its data.
    #[error(
        "reach {} as the account `{account}`: it may not enter {} (mode {mode:04o}); choose another data_dir, \
         such as /var/lib/yardmaster, or allow it with `chmod o+x {}`",
        target.display(), folder.display(), folder.display()
    )]
    Unreachable {
        /// Where the account must get to.
        target: PathBuf,
        /// The folder that stops it.
        folder: PathBuf,
        /// That folder's permission bits.
        mode: u32,
        /// The account's name.
        account: String,
    },

    /// The data folder or the cluster belongs to somebody else.
    #[error(
        "use {}: it belongs to user id {owner}, and we run as user id {user}; \
         start Yardmaster as its owner, or choose another data_dir",
        folder.display()
    )]
    ForeignOwner {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },

    /// Another live process holds the data folder.
    #[error(
        "lock the data folder {}: {} uses it; stop that process, or choose another data_dir",
        data_dir.display(),
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The folder.
        data_dir: PathBuf,
        /// The holder, if it has written its id already.
        pid: Option<u32>,
    },

    /// The cluster was made by another major version.
    #[error(
        "open the cluster {}: PostgreSQL {cluster} made it, and the binaries in {} are version {binaries}; \
         install PostgreSQL {cluster} or name its folder in YARDMASTER_PG_BIN, or choose another data_dir",
        folder.display(), bin_dir.display()
    )]
    WrongVersion {
        /// The cluster's folder.
        folder: PathBuf,
        /// Major version that made the cluster.
        cluster: String,
        /// Major version of the binaries.
        binaries: u32,
        /// Where the binaries are.
        bin_dir: PathBuf,
    },

    /// There is a folder where the cluster belongs, but it is none.
    #[error("open the cluster {}: it has no PG_VERSION file, so it is no cluster; move it away", folder.display())]
    NotACluster {
        /// The folder.
        folder: PathBuf,
    },

    /// `initdb` failed.
    #[error("create a cluster in {}: initdb ended with {status}:\n{output}", folder.display())]
    Initdb {
        /// The folder that was to become a cluster.
        folder: PathBuf,
        /// How initdb ended.
        status: String,
        /// The last lines it said.
        output: String,
    },

    /// The server ended, or kept silent, before it accepted connections.
    #[error("start PostgreSQL in {}: {reason}; the end of {}:\n{tail}", folder.display(), log.display())]
    Start {
        /// The cluster's folder.
        folder: PathBuf,
        /// What happened.
        reason: String,
        /// The server's log.
        log: PathBuf,
        /// The log's last lines of this start.
        tail: String,
    },

    /// Server processes of an earlier run did not end, not even by SIGKILL.
    #[error(
        "clear the cluster {} of an earlier run: the processes {pids:?} do not end; \
         look at them with `ps`, and start again when they are gone",
        folder.display()
    )]
    Leftovers {
        /// The cluster's folder.
        folder: PathBuf,
        /// The processes.
        pids: Vec<u32>,
    },

    /// No folder can hold the socket: paths of Unix sockets are short.
    #[error("make a socket folder of at most {max} bytes below {}: set TMPDIR or XDG_RUNTIME_DIR to a shorter folder", tried.display())]
    SocketPath {
        /// The last folder that was tried.
        tried: PathBuf,
        /// The longest path allowed, in bytes.
        max: usize,
    },

    /// There is no home folder to put the data folder in.
    #[error("find a data folder: this user has no home folder; set data_dir")]
    NoHome,

    /// The operating system refused something.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// With which file or program.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl ClusterError {
    /// Returns a closure for `map_err` that adds what was tried with which path.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ClusterError {
        let path = path.to_owned();
        move |source| ClusterError::Io { action, path, source }
    }
}
