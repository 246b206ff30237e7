//! The real service: the binary, its settings file, its log, and signals.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::db::Db;
use super::wait::{PATIENCE, eventually};

/// The binary in an environment that says nothing about databases, settings or colours.
pub fn yardmaster(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yardmaster"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("PG")
            || text.starts_with("YARDMASTER")
            || text == "DATABASE_URL"
            || text == "COLUMNS"
        {
            command.env_remove(&name);
        }
    }
    command
}

/// A service about to be started: `Launch::on(&db).settings("…").set("…", "…").start().await`.
pub struct Launch {
    settings: String,
    sets: BTreeMap<String, String>,
    environment: Vec<(String, String)>,
}

impl Launch {
    /// On this database, as its service role.
    pub fn on(db: &Db) -> Launch {
        Launch::at(&db.url("yard_service"))
    }

    /// On the database that a connection string leads to.
    pub fn at(url: &str) -> Launch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let instance = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let launch = Launch { settings: String::new(), sets: BTreeMap::new(), environment: Vec::new() };
        launch
            .set("instance_name", &instance)
            .set("http.listen", "127.0.0.1:0")
            .set("log.level", "info,yardmaster=debug")
            .env("DATABASE_URL", url)
    }

    /// The text of Settings.toml; [`Service::reload`] writes another.
    pub fn settings(mut self, text: &str) -> Launch {
        text.clone_into(&mut self.settings);
        self
    }

    /// A `--set KEY=VALUE`, which wins over the file, for good.
    pub fn set(mut self, key: &str, value: &str) -> Launch {
        self.sets.insert(key.to_owned(), value.to_owned());
        self
    }

    /// A variable of the environment.
    pub fn env(mut self, name: &str, value: &str) -> Launch {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Spawns it and waits until it holds office.
    pub async fn start(self) -> Service {
        let service = self.spawn();
        service.await_log("office taken").await;
        service
    }

    /// Spawns it and waits until it stands by.
    pub async fn start_standby(self) -> Service {
        let service = self.spawn();
        service.await_log("standing by").await;
        service
    }

    /// Spawns it.
    pub fn spawn(self) -> Service {
        let folder = tempfile::Builder::new().prefix("ym-serve-").tempdir().unwrap();
        std::fs::write(folder.path().join("Settings.toml"), &self.settings).unwrap();
        std::fs::write(folder.path().join("log"), "").unwrap();
        let child = self.command(&folder).spawn().unwrap();
        Service { launch: self, folder, child, offset: 0 }
    }

    fn command(&self, folder: &TempDir) -> Command {
        let mut command = yardmaster(&["serve", "--config"]);
        command.arg(folder.path().join("Settings.toml"));
        for (key, value) in &self.sets {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.arg("--set").arg(format!("data_dir={}", folder.path().join("data").display()));
        command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        let log = std::fs::File::options().append(true).open(folder.path().join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        command
    }
}

/// A running service. Killed when dropped; its log is shown when the test failed.
pub struct Service {
    launch: Launch,
    folder: TempDir,
    child: Child,
    /// Where the log of the present process begins.
    offset: usize,
}

impl Service {
    /// A service with default settings that holds office.
    pub async fn start(db: &Db) -> Service {
        Launch::on(db).start().await
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its data folder.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its settings file.
    pub fn settings_file(&self) -> PathBuf {
        self.folder.path().join("Settings.toml")
    }

    /// What it has said since it was (re)started.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("log")).unwrap();
        String::from_utf8_lossy(&bytes[self.offset..]).into_owned()
    }

    /// Waits until it has said this.
    #[track_caller]
    pub fn await_log(&self, text: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let said = eventually(PATIENCE, async || self.log().contains(text).then_some(()));
            assert!(said.await.is_some(), "{place}: the service did not say {text:?}");
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Writes another Settings.toml and sends SIGHUP; waits until it was read.
    pub async fn reload(&self, text: &str) {
        let count =
            |log: String| log.matches("settings reloaded").count() + log.matches("reload refused").count();
        let before = count(self.log());
        std::fs::write(self.settings_file(), text).unwrap();
        self.signal(Signal::SIGHUP);
        let read = eventually(PATIENCE, async || (count(self.log()) > before).then_some(()));
        assert!(read.await.is_some(), "the service did not reload");
    }

    /// Waits for its end; returns the exit code, or minus the number of the signal that killed it.
    pub async fn wait_exit(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let ended = eventually(PATIENCE, async || self.child.try_wait().unwrap()).await;
        let status = ended.expect("the service ends");
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }

    /// SIGTERM, and its exit code.
    pub async fn stop(&mut self) -> i32 {
        self.signal(Signal::SIGTERM);
        self.wait_exit().await
    }

    /// `kill -9`, and reaped.
    pub fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after its end, with the same settings, and waits until it holds office.
    pub async fn restart(&mut self) {
        self.respawn();
        self.await_log("office taken").await;
    }

    /// Starts it again after its end, with the same settings.
    pub fn respawn(&mut self) {
        assert!(self.child.try_wait().unwrap().is_some(), "the service still runs");
        self.offset = std::fs::read(self.folder.path().join("log")).unwrap().len();
        self.child = self.launch.command(&self.folder).spawn().unwrap();
    }

    /// Its resident memory in bytes (proc(5)); the peak if `peak`.
    pub fn memory(&self, peak: bool) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let name = if peak { "VmHWM:" } else { "VmRSS:" };
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the service\n{}---", self.log());
        }
    }
}
