//! Creates the cluster's folder, or refuses one that the binaries cannot open.
//!
//! `initdb` works in a folder of another name, which is renamed when it is done: a cluster is whole or absent,
//! and an interrupted attempt is swept away by the next start. The caller holds the data folder's lock.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::account::Account;
use super::binaries::Binaries;
use super::error::ClusterError;
use super::layout::{Layout, last_lines};

/// The start of the working folder's name. The rest is random, because a killed Yardmaster may leave an `initdb`
/// running that would otherwise write into its successor's folder.
const PARTIAL: &str = "postgres.partial-";

/// Tries to remove an unfinished folder.
const REMOVALS: usize = 10;

/// Sorts like `C` and knows letters beyond ASCII. Old C libraries lack it, and then it is [`PLAIN_LOCALE`].
const LOCALE: &str = "C.UTF-8";
const PLAIN_LOCALE: &str = "C";

/// Makes sure that `layout.cluster()` is a cluster of the binaries' version.
pub(super) async fn ensure_cluster(
    binaries: &Binaries,
    account: &Account,
    layout: &Layout,
    fsync: bool,
) -> Result<(), ClusterError> {
    sweep(layout)?;
    let folder = layout.cluster();
    if folder.exists() {
        return check_version(binaries, &folder);
    }
    match create(binaries, account, layout, LOCALE, fsync).await {
        Err(ClusterError::Initdb { output, .. }) if output.contains("invalid locale") => {
            tracing::info!("this system lacks the locale {LOCALE}; the cluster gets {PLAIN_LOCALE}");
            sweep(layout)?;
            create(binaries, account, layout, PLAIN_LOCALE, fsync).await
        }
        done => done,
    }
}

fn check_version(binaries: &Binaries, folder: &Path) -> Result<(), ClusterError> {
    match Layout::version_of(folder) {
        Some(version) if version == binaries.version => Ok(()),
        Some(version) => Err(ClusterError::WrongVersion {
            folder: folder.to_owned(),
            cluster: version.to_string(),
            binaries: binaries.version,
            bin_dir: binaries.bin_dir.clone(),
        }),
        None => Err(ClusterError::NotACluster { folder: folder.to_owned() }),
    }
}

async fn create(
    binaries: &Binaries,
    account: &Account,
    layout: &Layout,
    locale: &str,
    fsync: bool,
) -> Result<(), ClusterError> {
    let partial = layout.data_dir.join(format!("{PARTIAL}{}", uuid::Uuid::new_v4().simple()));
    DirBuilder::new()
        .mode(0o700)
        .create(&partial)
        .map_err(ClusterError::io("create the folder", &partial))?;
    let unfinished = Unfinished(partial.clone());
    account.give(&partial)?;
    let program = binaries.program("initdb");
    let mut command = account.command(&program);
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
    command.arg(format!("--locale={locale}")).arg("--pgdata").arg(&partial);
    if !fsync {
        command.arg("--no-sync");
    }
    let said = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(ClusterError::io("run", &program))?;
    if !said.status.success() {
        let output =
            format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        return Err(ClusterError::Initdb {
            folder: layout.cluster(),
            status: said.status.to_string(),
            output: last_lines(&output),
        });
    }
    let folder = layout.cluster();
    std::fs::rename(&partial, &folder).map_err(ClusterError::io("move the new cluster to", &folder))?;
    drop(unfinished);
    if fsync {
        // initdb has synced the cluster; the rename is ours to sync.
        File::open(&layout.data_dir)
            .and_then(|dir| dir.sync_all())
            .map_err(ClusterError::io("sync the folder", &layout.data_dir))?;
    }
    Ok(())
}

/// The working folder, gone when dropped: also when somebody loses patience and the attempt is dropped half way.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A server that initdb left may write a last file while we remove the others; what remains is swept later.
        for _ in 0..REMOVALS {
            match std::fs::remove_dir_all(&self.0) {
                Err(e) if e.kind() != ErrorKind::NotFound => std::thread::sleep(Duration::from_millis(20)),
                _ => return,
            }
        }
    }
}

/// Removes what interrupted attempts left. An initdb that outlived its Yardmaster may still write there, fail over
/// the missing folder, and leave a rest; that is no reason not to start, and the next start sweeps again.
fn sweep(layout: &Layout) -> Result<(), ClusterError> {
    let entries =
        std::fs::read_dir(&layout.data_dir).map_err(ClusterError::io("list the folder", &layout.data_dir))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PARTIAL)
            && let Err(e) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(path = %entry.path().display(), "cannot remove an unfinished cluster: {e}");
        }
    }
    Ok(())
}
