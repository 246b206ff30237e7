//! The names inside a data folder, and where the default one is.
//!
//! ```text
//! <data_dir>/yardmaster.lock     held while an instance uses the folder; contains its process id
//! <data_dir>/postgres/           the cluster; owned by the account that runs it, mode 0700
//! <data_dir>/postgres.partial-*  an initdb under way, or what an interrupted one left
//! <data_dir>/postgres.log        what the server and initdb say (one older file: postgres.log.1)
//! <data_dir>/socket/             the Unix socket, mode 0700; or, if that path is too long,
//! <data_dir>/socket-dir          a file that names a short folder elsewhere
//! <data_dir>/binaries/           an unpacked wheel with server binaries, if any
//! ```

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::ClusterError;

/// The log is set aside at a start once it is longer than this, in bytes.
const LOG_LIMIT: u64 = 10 * 1024 * 1024;
/// How much of the log an error shows, in bytes and in lines.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 20;

/// Returns the data folder used when the settings name none: `/var/lib/yardmaster` for root, the XDG data folder
/// (`~/.local/share/yardmaster`) for others.
///
/// # Errors
///
/// [`ClusterError::NoHome`] if the user has no home folder.
pub fn default_data_dir() -> Result<PathBuf, ClusterError> {
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/yardmaster"));
    }
    let dirs = directories::ProjectDirs::from("", "", "yardmaster").ok_or(ClusterError::NoHome)?;
    Ok(dirs.data_dir().to_owned())
}

/// The paths in one data folder.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The data folder, absolute and free of symbolic links.
    pub(super) data_dir: PathBuf,
}

impl Layout {
    /// The cluster's folder in the data folder.
    pub(super) const CLUSTER: &str = "postgres";

    /// Creates the data folder if need be. It must be our own. As root it is made passable (not readable) for
    /// the account that runs PostgreSQL; folders above it are never changed.
    pub(super) fn prepare(data_dir: &Path) -> Result<Layout, ClusterError> {
        let root = nix::unistd::geteuid().is_root();
        DirBuilder::new()
            .recursive(true)
            .mode(if root { 0o711 } else { 0o700 })
            .create(data_dir)
            .map_err(ClusterError::io("create the folder", data_dir))?;
        let data_dir = data_dir.canonicalize().map_err(ClusterError::io("resolve the folder", data_dir))?;
        let about = data_dir.metadata().map_err(ClusterError::io("inspect the folder", &data_dir))?;
        // Root writes here by name, so nobody else may be able to put a link in its way.
        let user = nix::unistd::geteuid().as_raw();
        if about.uid() != user {
            return Err(ClusterError::ForeignOwner { folder: data_dir, owner: about.uid(), user });
        }
        if root {
            std::fs::set_permissions(&data_dir, Permissions::from_mode(about.mode() & 0o7777 | 0o111))
                .map_err(ClusterError::io("allow to pass through", &data_dir))?;
        }
        Ok(Layout { data_dir })
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.data_dir.join(Layout::CLUSTER)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.data_dir.join("postgres.log")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.data_dir.join("yardmaster.lock")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.data_dir.join("socket")
    }

    pub(super) fn socket_record(&self) -> PathBuf {
        self.data_dir.join("socket-dir")
    }

    /// The major version that made the cluster in `folder`, if there is one.
    pub(super) fn version_of(folder: &Path) -> Option<u32> {
        std::fs::read_to_string(folder.join("PG_VERSION")).ok()?.trim().parse().ok()
    }

    /// Opens the log for appending, and says how long it is now.
    pub(super) fn open_log(&self) -> Result<(std::fs::File, u64), ClusterError> {
        let path = self.log();
        if path.metadata().is_ok_and(|about| about.len() > LOG_LIMIT) {
            std::fs::rename(&path, self.data_dir.join("postgres.log.1"))
                .map_err(ClusterError::io("set aside the log", &path))?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(&path)
            .map_err(ClusterError::io("open the log", &path))?;
        let length = file.metadata().map_err(ClusterError::io("inspect the log", &path))?.len();
        Ok((file, length))
    }

    /// The last lines of the log after byte `from`. Best effort: it only decorates an error.
    pub(super) fn log_tail(&self, from: u64) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = std::fs::File::open(self.log())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL_BYTES))))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().map_or_else(|e| format!("(unreadable: {e})"), |text| last_lines(&text))
    }
}

/// The last [`TAIL_LINES`] lines of a text.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
