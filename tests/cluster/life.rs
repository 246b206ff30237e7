//! Start, use, stop, start again; and what is refused.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use nix::sys::signal::Signal;
use yardmaster::cluster::{Binaries, Cluster, ClusterError, ClusterOptions, StopMode};

use crate::fixture::{
    ask, await_death, binaries, connect, folder, is_alive, kill, options, partials, start, stop,
};

#[tokio::test]
async fn a_restart_keeps_the_data() {
    let dir = folder();
    let cluster = start(dir.path()).await.unwrap();
    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (n int); INSERT INTO t VALUES (42)").await.unwrap();
    let pid = cluster.pid();
    stop(cluster).await;
    assert!(!is_alive(pid));

    let cluster = start(dir.path()).await.unwrap();
    assert_eq!(ask(&cluster, "SELECT n FROM t").await, "42");
    stop(cluster).await;
}

#[tokio::test]
async fn only_a_private_socket_leads_in() {
    let dir = folder();
    let cluster = start(dir.path()).await.unwrap();
    assert_eq!(ask(&cluster, "current_setting('listen_addresses')").await, "");
    let about = cluster.socket_dir().metadata().unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o700);
    let data = dir.path().join("postgres").metadata().unwrap();
    assert_eq!((data.permissions().mode() & 0o777, data.uid()), (0o700, about.uid()));
    assert_ne!(data.uid(), 0, "the server never runs as root");
    stop(cluster).await;
}

#[tokio::test]
async fn libpq_reads_the_url_too() {
    let dir = folder();
    let cluster = start(dir.path()).await.unwrap();
    let psql = |arg: &str| Command::new("psql").arg(arg).args(["-XAtc", "SELECT current_user"]).output();
    // Not every machine with a server has a client too; and Debian's wrapper may stand there without one.
    if psql("--version").is_ok_and(|said| said.status.success()) {
        let said = psql(&cluster.url("postgres", "postgres")).unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "postgres\n", "{said:?}");
    }
    stop(cluster).await;
}

#[tokio::test]
async fn settings_of_the_caller_win_except_over_privacy() {
    let dir = folder();
    let settings = [("max_connections", "17"), ("listen_addresses", "127.0.0.1")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster =
        Cluster::start(&binaries(), ClusterOptions { settings, ..options(dir.path()) }).await.unwrap();
    assert_eq!(ask(&cluster, "current_setting('max_connections')").await, "17");
    assert_eq!(ask(&cluster, "current_setting('listen_addresses')").await, "");
    stop(cluster).await;
}

#[tokio::test]
async fn a_long_path_gets_a_short_socket_folder_and_finds_it_again() {
    let dir = folder();
    // Longer than a socket's path may be; the comma and the quote would break a careless setting.
    let data_dir = dir.path().join("a long, \"quoted\" path/".repeat(6));
    let cluster = start(&data_dir).await.unwrap();
    let first = cluster.socket_dir().to_owned();
    assert!(first.as_os_str().len() < 80 && !first.starts_with(dir.path()), "{}", first.display());
    assert_eq!(ask(&cluster, "1").await, "1");
    drop(cluster);

    let cluster = start(&data_dir).await.unwrap();
    assert_eq!(cluster.socket_dir(), first);
    stop(cluster).await;
    assert!(!first.exists());
}

#[tokio::test]
async fn a_path_with_a_comma_and_quotes_is_a_path() {
    let dir = folder();
    let cluster = start(&dir.path().join("a, \"b\" 'c'")).await.unwrap();
    assert_eq!(ask(&cluster, "1").await, "1");
    stop(cluster).await;
}

#[tokio::test]
async fn dropping_a_cluster_stops_the_server() {
    let dir = folder();
    let cluster = start(dir.path()).await.unwrap();
    let pid = cluster.pid();
    assert!(is_alive(pid));
    drop(cluster);
    assert!(!is_alive(pid), "the drop waits for the end");
    stop(start(dir.path()).await.unwrap()).await;
}

#[tokio::test]
async fn an_interrupted_initdb_is_done_again() {
    let dir = folder();
    let partial = dir.path().join("postgres.partial-0123");
    std::fs::create_dir(&partial).unwrap();
    std::fs::write(partial.join("PG_VERSION"), "15\n").unwrap();
    // Ours ends at an instruction of chance, inside initdb.
    let attempt = tokio::time::timeout(std::time::Duration::from_millis(50), start(dir.path())).await;
    assert!(attempt.is_err(), "initdb takes longer than this");
    let cluster = start(dir.path()).await.unwrap();
    assert_eq!(ask(&cluster, "1").await, "1");
    stop(cluster).await;
    let left = partials(dir.path());
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn another_major_version_is_refused_with_both_named() {
    let dir = folder();
    std::fs::create_dir(dir.path().join("postgres")).unwrap();
    std::fs::write(dir.path().join("postgres/PG_VERSION"), "9\n").unwrap();
    let binaries = binaries();
    let error = Cluster::start(&binaries, options(dir.path())).await.unwrap_err();
    assert!(matches!(error, ClusterError::WrongVersion { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("PostgreSQL 9 ") && text.contains(&format!("version {}", binaries.version)),
        "{text}"
    );
}

#[tokio::test]
async fn a_failed_start_shows_the_end_of_the_log() {
    let dir = folder();
    let settings = vec![("no_such_setting".to_owned(), "1".to_owned())];
    let error =
        Cluster::start(&binaries(), ClusterOptions { settings, ..options(dir.path()) }).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClusterError::Start { .. }) && text.contains("no_such_setting"), "{text}");
    // The folder is free again.
    stop(start(dir.path()).await.unwrap()).await;
}

#[tokio::test]
async fn a_server_that_died_is_seen_and_restarted_under_the_same_url() {
    let dir = folder();
    let mut cluster = start(dir.path()).await.unwrap();
    let (url, first) = (cluster.url("postgres", "postgres"), cluster.pid());
    kill(first, Signal::SIGKILL);
    cluster.exited().await.unwrap();
    cluster.restart(StopMode::Fast).await.unwrap();
    assert_eq!(cluster.url("postgres", "postgres"), url);
    assert_eq!(ask(&cluster, "1").await, "1");
    // And one that is well.
    let second = cluster.pid();
    cluster.restart(StopMode::Immediate).await.unwrap();
    await_death(second).await;
    assert_eq!(ask(&cluster, "1").await, "1");
    stop(cluster).await;
}

#[tokio::test]
async fn ctrl_c_in_our_terminal_does_not_reach_the_server() {
    let dir = folder();
    let cluster = start(dir.path()).await.unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", cluster.pid())).unwrap();
    // After the name: state, parent, process group (proc(5)).
    let group: u32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(group, cluster.pid());
    stop(cluster).await;
}

#[test]
fn binaries_of_a_wrong_folder_are_refused_with_the_reason() {
    let dir = folder();
    let text = Binaries::in_dir(dir.path()).unwrap_err().to_string();
    assert!(text.contains("no initdb") && text.contains("YARDMASTER_PG_BIN"), "{text}");
}
