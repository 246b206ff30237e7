//! Acceptance people.md 10: what the service manager hears.

use std::os::unix::net::UnixDatagram;

use nix::sys::signal::Signal;

use crate::support::{Db, Launch, PATIENCE};

/// A service manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::Builder::new().prefix("ym-notify-").tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket, folder }
    }

    fn launch(&self, launch: Launch) -> Launch {
        launch.env("NOTIFY_SOCKET", self.folder.path().join("notify").to_str().unwrap())
    }

    /// What is told next; all of it in one message.
    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("something is told");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// Reads until a message has this line, and returns that message; what was told before it must not be of `never`.
    fn until(&self, line: &str, never: &[&str]) -> String {
        loop {
            let message = self.next();
            if message.lines().any(|l| l == line) {
                return message;
            }
            assert!(!message.lines().any(|l| never.contains(&l)), "{message:?} before {line}");
        }
    }
}

/// People 10.
#[tokio::test]
async fn ready_comes_with_the_migrated_catalog_reloads_are_bracketed_and_stopping_is_told() {
    let manager = Manager::new();
    let db = Db::bare().await;
    let outside = db.cluster.connect("postgres", "postgres").await;
    let open = |open: bool| format!("ALTER DATABASE {} ALLOW_CONNECTIONS {open}", db.name);
    outside.batch_execute(&open(false)).await.unwrap();
    let mut service = manager.launch(Launch::on(&db)).env("WATCHDOG_USEC", "900000").spawn();
    service.await_log("home is not usable").await;
    // It is alive meanwhile, and a reload tells nothing: READY would be a lie.
    service.reload("[limits]\nmax_task_executors = 2\n").await;
    manager.until("WATCHDOG=1", &["READY=1", "RELOADING=1"]);
    outside.batch_execute(&open(true)).await.unwrap();
    manager.until("READY=1", &["RELOADING=1"]);
    let migrated = "SELECT to_regclass('yardmaster.leader') IS NOT NULL";
    assert_eq!(db.value(migrated).await, "t");

    for settings in ["[limits]\nmax_task_executors = 3\n", "[limits]\nmax_task_executors = 0\n"] {
        service.reload(settings).await;
        let reloading = manager.until("RELOADING=1", &["READY=1"]);
        let clock = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(clock.is_some_and(|usec| usec.parse::<u64>().unwrap() > 0), "{reloading:?}");
        manager.until("READY=1", &["STOPPING=1"]);
    }
    manager.until("STATUS=leading (epoch 1), 0 running", &[]);
    service.signal(Signal::SIGTERM);
    manager.until("STOPPING=1", &["READY=1"]);
    assert_eq!(service.wait_exit().await, 0);
}
