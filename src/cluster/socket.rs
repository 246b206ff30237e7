//! The folder of the Unix socket: mode 0700, owned by the account that runs the server.
//!
//! That folder is the whole access control of a private cluster: whoever can enter it may log in as anybody. It
//! lies in the data folder unless that path is too long for a socket; then a short one is made under
//! `$XDG_RUNTIME_DIR` or the temporary folder, and recorded in the data folder so that the next start finds it
//! again. A recorded folder is used only if it is still a real folder of the right owner and mode.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::account::Account;
use super::error::ClusterError;
use super::layout::Layout;

/// The port number in the socket's name. There is no TCP, so it need not be free.
pub(super) const PORT: u16 = 5432;
/// The socket's name: PostgreSQL makes it from the port.
const SOCKET: &str = ".s.PGSQL.5432";
/// The longest path of a folder that the socket fits into, in bytes: `sun_path` has 108 (unix(7)),
/// one of them for the end.
const MAX_DIR_BYTES: usize = 107 - "/".len() - SOCKET.len();
/// The name of a short folder starts so.
const SHORT_NAME: &str = "yardmaster-";
/// How many random names are tried in one place. Even the second is a sign of an attack or a full disk.
const TRIES: usize = 3;

/// A prepared socket folder.
#[derive(Debug, Clone)]
pub(super) struct SocketDir {
    pub(super) path: PathBuf,
    /// Outside the data folder, so to be removed at the end.
    short: bool,
}

impl SocketDir {
    /// Finds or makes the folder.
    pub(super) fn prepare(layout: &Layout, account: &Account) -> Result<SocketDir, ClusterError> {
        let usual = layout.socket();
        if fits(&usual) {
            if !usual.exists() {
                make(&usual, account)?;
            }
            // An older run may have been by another account, or somebody may have opened it up.
            account.give(&usual)?;
            std::fs::set_permissions(&usual, Permissions::from_mode(0o700))
                .map_err(ClusterError::io("close the folder", &usual))?;
            return Ok(SocketDir { path: usual, short: false });
        }
        let record = layout.socket_record();
        if let Ok(recorded) = std::fs::read_to_string(&record) {
            let path = PathBuf::from(recorded.trim_end_matches('\n'));
            if fits(&path) && is_private(&path, account) {
                return Ok(SocketDir { path, short: true });
            }
        }
        let path = make_short(account)?;
        std::fs::write(&record, format!("{}\n", path.display()))
            .map_err(ClusterError::io("record the socket folder in", &record))?;
        Ok(SocketDir { path, short: true })
    }

    /// Removes the socket and its lock file that a killed server left. PostgreSQL does so itself, unless the lock's
    /// pid is alive: as another program, or as a zombie in a container whose first process reaps nothing.
    /// No server of this data folder may be running.
    pub(super) fn clear(&self) -> Result<(), ClusterError> {
        for name in [format!("{SOCKET}.lock"), SOCKET.to_owned()] {
            let path = self.path.join(name);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ClusterError::io("remove the stale socket file", &path)(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the folder if it is outside the data folder. The server has ended and removed its socket.
    pub(super) fn remove_if_short(&self) {
        if self.short
            && let Err(e) = std::fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), "cannot remove the socket folder: {e}");
        }
    }
}

fn fits(dir: &Path) -> bool {
    // The record and the connection string are text, and a line break would end the record's first line.
    dir.as_os_str().len() <= MAX_DIR_BYTES
        && dir.to_str().is_some()
        && !dir.as_os_str().as_bytes().contains(&b'\n')
}

fn is_private(dir: &Path, account: &Account) -> bool {
    dir.symlink_metadata()
        .is_ok_and(|about| about.is_dir() && about.uid() == account.uid && about.mode() & 0o777 == 0o700)
}

fn make(dir: &Path, account: &Account) -> Result<(), ClusterError> {
    DirBuilder::new().mode(0o700).create(dir).map_err(ClusterError::io("create the socket folder", dir))?;
    account.give(dir)
}

/// Makes a new folder of a random name in the first place that will do. `mkdir` fails if the name exists, so
/// nobody can have prepared it; and the temporary folder is sticky, so nobody can replace it.
fn make_short(account: &Account) -> Result<PathBuf, ClusterError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = runtime.into_iter().chain([std::env::temp_dir(), PathBuf::from("/tmp")]);
    let mut refusal = None;
    for place in places.filter(|place| place.is_dir() && account.check_reach(place).is_ok()) {
        for _ in 0..TRIES {
            let random = uuid::Uuid::new_v4().simple().to_string();
            let dir = place.join(format!("{SHORT_NAME}{}", &random[..12]));
            if !fits(&dir) {
                refusal = Some(ClusterError::SocketPath { tried: place.clone(), max: MAX_DIR_BYTES });
                break;
            }
            match make(&dir, account) {
                Ok(()) => return Ok(dir),
                Err(e) => refusal = Some(e),
            }
        }
    }
    Err(refusal.unwrap_or(ClusterError::SocketPath { tried: std::env::temp_dir(), max: MAX_DIR_BYTES }))
}
