//! Root and ordinary users. As an ordinary user, all other tests are the proof, and these have nothing to add.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use yardmaster::cluster::ClusterError;

use crate::fixture::{ask, folder, start, stop};

/// Ids without an account.
const STRANGER: u32 = 64_321;

#[tokio::test]
async fn an_ordinary_user_can_do_it_all() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    // The build folder may be closed to others; a copy of this program is not.
    let dir = folder();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open.clone()).unwrap();
    let program = dir.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, open).unwrap();
    // initdb wants to know its user's name, so it takes an account; every system has this one.
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let said = Command::new(&program)
        .args(["life::a_restart_keeps_the_data", "life::only_a_private", "crash::an_orphaned"])
        .uid(nobody.uid.as_raw())
        .gid(nobody.gid.as_raw())
        .current_dir("/")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("3 passed"), "{text}\n{said:?}");
}

#[tokio::test]
async fn root_is_told_which_folder_stops_the_account() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let closed = folder();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let text = start(&closed.path().join("data")).await.unwrap_err().to_string();
    assert!(text.contains(&format!("chmod o+x {}", closed.path().display())), "{text}");
    // It was not opened behind the owner's back.
    assert_eq!(closed.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn root_does_not_work_in_a_folder_of_somebody_else() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = folder();
    std::os::unix::fs::chown(dir.path(), Some(STRANGER), Some(STRANGER)).unwrap();
    match start(dir.path()).await {
        Err(ClusterError::ForeignOwner { owner, user, .. }) => assert_eq!((owner, user), (STRANGER, 0)),
        other => panic!("expected ForeignOwner, got {other:?}"),
    }
}

#[tokio::test]
async fn root_keeps_the_owner_of_a_cluster() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = folder();
    stop(start(dir.path()).await.unwrap()).await;
    let status = Command::new("chown")
        .args(["-R", &format!("{STRANGER}:{STRANGER}")])
        .arg(dir.path().join("postgres"))
        .status()
        .unwrap();
    assert!(status.success());
    let cluster = start(dir.path()).await.unwrap();
    assert_eq!(ask(&cluster, "1").await, "1");
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid())).unwrap();
    assert!(status.contains(&format!("Uid:\t{STRANGER}\t{STRANGER}")), "{status}");
    stop(cluster).await;
}
