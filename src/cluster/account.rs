//! Who runs PostgreSQL. It refuses to run as root, so root lends it an account.
//!
//! An ordinary user runs it as itself. Root runs it as the owner of an existing cluster, else as `postgres`.
//! There is no fallback to `nobody`: that account is shared, and others in it would own our data.
//!
//! Every program of a cluster is started through [`Account::command`], which also keeps our environment (it may
//! hold database passwords, and SQL of a superuser can read the server's) and our terminal's Ctrl-C away from it.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, User};

use super::error::ClusterError;

/// The account root runs a new cluster as.
const ACCOUNT: &str = "postgres";

/// The only variables a server gets from our environment: where its libraries are, and the time zone.
const KEPT_VARIABLES: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "TZ", "TZDIR"];

/// The account that runs a cluster.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// Its name, or its number if it has none.
    pub(super) name: String,
    pub(super) uid: u32,
    gid: u32,
    /// Whether it is another than ours, which only root can have.
    lent: bool,
}

impl Account {
    /// Chooses the account for the cluster in `folder`, which need not exist.
    pub(super) fn choose(folder: &Path) -> Result<Account, ClusterError> {
        let us = nix::unistd::geteuid();
        let owner = match folder.metadata() {
            Ok(about) => Some((about.uid(), about.gid())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(ClusterError::io("inspect the cluster", folder)(e)),
        };
        if !us.is_root() {
            return match owner {
                Some((owner, _)) if owner != us.as_raw() => {
                    Err(ClusterError::ForeignOwner { folder: folder.to_owned(), owner, user: us.as_raw() })
                }
                _ => Ok(Account::of(us, nix::unistd::getegid(), false)),
            };
        }
        match owner {
            Some((uid, gid)) if uid != 0 => Ok(Account::of(Uid::from_raw(uid), Gid::from_raw(gid), true)),
            _ => {
                let found = User::from_name(ACCOUNT).ok().flatten().filter(|user| !user.uid.is_root());
                let user = found.ok_or(ClusterError::NoAccount)?;
                Ok(Account::of(user.uid, user.gid, true))
            }
        }
    }

    fn of(uid: Uid, gid: Gid, lent: bool) -> Account {
        let name = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        Account { name, uid: uid.as_raw(), gid: gid.as_raw(), lent }
    }

    /// A command of this account: in its own process group, at `/`, with almost no environment and no input.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null()).current_dir("/").process_group(0);
        // Messages in English, so that logs and errors read the same everywhere.
        command.env("LC_ALL", "C");
        for name in KEPT_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.lent {
            // As root, the standard library also drops our supplementary groups with this.
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Makes this account the owner of `path`.
    pub(super) fn give(&self, path: &Path) -> Result<(), ClusterError> {
        if self.lent {
            std::os::unix::fs::lchown(path, Some(self.uid), Some(self.gid))
                .map_err(ClusterError::io("change the owner of", path))?;
        }
        Ok(())
    }

    /// Checks that this account can pass every folder from `/` to `folder`.
    ///
    /// Only the permission bits count here; they decide in all but exotic cases, and the alternative is
    /// PostgreSQL's bare "permission denied".
    pub(super) fn check_reach(&self, folder: &Path) -> Result<(), ClusterError> {
        if !self.lent {
            return Ok(());
        }
        for ancestor in folder.ancestors() {
            let about = ancestor.metadata().map_err(ClusterError::io("inspect the folder", ancestor))?;
            let shift = match () {
                () if about.uid() == self.uid => 6,
                () if about.gid() == self.gid => 3,
                () => 0,
            };
            if about.mode() >> shift & 1 == 0 {
                return Err(ClusterError::Unreachable {
                    target: folder.to_owned(),
                    folder: ancestor.to_owned(),
                    mode: about.mode() & 0o7777,
                    account: self.name.clone(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_does_not_see_our_environment() {
        let mut command =
            Account::of(nix::unistd::geteuid(), nix::unistd::getegid(), false).command(Path::new("env"));
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        // Cargo sets this for every test; it stands for DATABASE_URL and the like.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(said.contains("LC_ALL=C") && !said.contains("CARGO_MANIFEST_DIR"), "{said}");
    }

    #[test]
    fn a_closed_folder_on_the_way_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        // Whoever runs this test, nobody's ids own the folder.
        let stranger = Account::of(Uid::from_raw(64_321), Gid::from_raw(64_321), true);
        match stranger.check_reach(&inner) {
            Err(ClusterError::Unreachable { folder, mode, .. }) => {
                assert_eq!((folder.as_path(), mode), (outer.path(), 0o700));
            }
            other => panic!("expected Unreachable, got {other:?}"),
        }
    }
}
