//! What `kill -9` of us, of the server, or of everything leaves behind, and two instances in one folder.

use std::path::Path;

use nix::sys::signal::Signal;
use yardmaster::cluster::ClusterError;

use crate::fixture::{
    Holder, PATIENCE, ask, await_death, connect, folder, hold, is_alive, kill, partials, start, stop,
};

/// Not a test: another Yardmaster, for the tests below, which end it by force.
#[tokio::test]
#[ignore = "a part of other tests, which start it in a process of its own"]
async fn hold_a_cluster() {
    hold().await;
}

#[tokio::test]
async fn a_second_instance_is_refused_and_told_who_holds_the_folder() {
    let dir = folder();
    let holder = Holder::start(dir.path()).await;
    match start(dir.path()).await {
        Err(ClusterError::InUse { pid, .. }) => assert_eq!(pid, Some(holder.pid())),
        other => panic!("expected InUse, got {other:?}"),
    }
    assert!(is_alive(holder.postmaster), "the refused one left the server alone");
    holder.kill().await;
    stop(start(dir.path()).await.unwrap()).await;
}

#[tokio::test]
async fn an_orphaned_postmaster_is_ended_and_its_sessions_with_it() {
    let dir = folder();
    let holder = Holder::start(dir.path()).await;
    let orphan = holder.postmaster;
    holder.kill().await;
    assert!(is_alive(orphan), "a postmaster survives its Yardmaster");
    let backend = session(dir.path()).await;

    let cluster = start(dir.path()).await.unwrap();
    assert_ne!(cluster.pid(), orphan);
    assert!(!is_alive(orphan) && !is_alive(backend));
    assert_eq!(ask(&cluster, "1").await, "1");
    stop(cluster).await;
}

#[tokio::test]
async fn a_backend_that_outlives_its_postmaster_is_ended() {
    let dir = folder();
    let holder = Holder::start(dir.path()).await;
    let orphan = holder.postmaster;
    holder.kill().await;
    let backend = session(dir.path()).await;
    // Stopped, it cannot notice that its postmaster is gone, and keeps the shared memory.
    kill(backend, Signal::SIGSTOP);
    kill(orphan, Signal::SIGKILL);
    await_death(orphan).await;
    assert!(is_alive(backend));

    let cluster = start(dir.path()).await.unwrap();
    assert!(!is_alive(backend));
    assert_eq!(ask(&cluster, "1").await, "1");
    stop(cluster).await;
}

#[tokio::test]
async fn a_kill_of_everything_is_recovered_from() {
    let dir = folder();
    let holder = Holder::start(dir.path()).await;
    let postmaster = holder.postmaster;
    holder.kill().await;
    kill(postmaster, Signal::SIGKILL);
    await_death(postmaster).await;
    assert!(dir.path().join("postgres/postmaster.pid").exists(), "a killed server leaves its pid file");
    let cluster = start(dir.path()).await.unwrap();
    assert_eq!(ask(&cluster, "1").await, "1");
    stop(cluster).await;
}

#[tokio::test]
async fn a_kill_during_initdb_is_recovered_from_while_that_initdb_still_works() {
    let dir = folder();
    let mut holder = Holder::spawn(dir.path());
    let seen = async {
        // PG_VERSION is among the first files initdb writes; it then takes long for the rest.
        while !partials(dir.path()).iter().any(|partial| partial.join("PG_VERSION").exists()) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap();
    holder.kill().await.unwrap();

    let cluster = start(dir.path()).await.unwrap();
    assert_eq!(ask(&cluster, "1").await, "1");
    stop(cluster).await;
    stop(start(dir.path()).await.unwrap()).await;
    assert!(partials(dir.path()).is_empty());
}

#[tokio::test]
async fn a_pid_file_that_names_a_stranger_stops_nobody() {
    let dir = folder();
    let cluster = start(dir.path()).await.unwrap();
    drop(cluster);
    let path = dir.path().join("postgres/postmaster.pid");
    // The pid came back as another program, of the very account, standing in the folder; as in a container.
    let mut command = std::process::Command::new("sleep");
    command.arg("600").current_dir(dir.path().join("postgres"));
    let owner = std::os::unix::fs::MetadataExt::uid(&dir.path().join("postgres").metadata().unwrap());
    if nix::unistd::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, owner);
    }
    let mut stranger = command.spawn().unwrap();
    let folder = dir.path().join("postgres");
    std::fs::write(&path, format!("{}\n{}\n0\n5432\n", stranger.id(), folder.display())).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
    }

    let started = start(dir.path()).await;
    let spared = is_alive(stranger.id());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(spared, "we ended somebody else's process");
    stop(started.unwrap()).await;
}

/// Opens a session on the orphan in the folder, busy for long, and returns its backend's pid.
async fn session(data_dir: &Path) -> u32 {
    let config = format!("host='{}' user=postgres dbname=postgres", data_dir.join("socket").display());
    let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(600)").await });
    u32::try_from(pid).unwrap()
}

#[tokio::test]
async fn a_restart_rolls_back_what_sessions_had_open() {
    let dir = folder();
    let cluster = start(dir.path()).await.unwrap();
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (n int)").await.unwrap();
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    drop(cluster);
    let cluster = start(dir.path()).await.unwrap();
    assert_eq!(ask(&cluster, "SELECT count(*) FROM t").await, "0");
    stop(cluster).await;
}
