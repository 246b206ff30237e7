//! One instance per data folder: an exclusive lock on a file in it.
//!
//! The lock is the kernel's (`flock`), so it ends with the process that holds it, however that dies. The file
//! itself stays; it contains the last holder's process id, for the error message of the one that comes second.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;

use super::error::ClusterError;
use super::layout::Layout;

/// Proof that this process alone uses the data folder, until dropped.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock without waiting.
    pub(super) fn take(layout: &Layout) -> Result<FolderLock, ClusterError> {
        let path = layout.lock();
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false) // until we hold the lock the content is another's
            .mode(0o644)
            .open(&path)
            .map_err(ClusterError::io("open the lock file", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let pid = file.read_to_string(&mut holder).ok().and_then(|_| holder.trim().parse().ok());
                return Err(ClusterError::InUse { data_dir: layout.data_dir.clone(), pid });
            }
            Err(TryLockError::Error(e)) => return Err(ClusterError::io("lock", &path)(e)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(ClusterError::io("write the process id into", &path))?;
        Ok(FolderLock { _file: file })
    }
}
