//! The typed settings and their defaults: plain data, one struct a section of `Settings.toml`.
//!
//! Ranges are in [`super::keys`], the long explanations in `Settings.toml`. `Serialize` and `Debug` mask passwords.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::{duration, mask};

/// Every setting of the service, valid once [`Settings::load`](super::Settings::load) has returned it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Folder of the private PostgreSQL; not created until one is needed.
    #[serde(serialize_with = "shown_path")]
    pub data_dir: PathBuf,
    /// Name of this process in the catalog, in logs and on the page; the host's name by default.
    pub instance_name: String,
    /// Whether tasks owned by a superuser may run.
    pub allow_superuser_owners: bool,
    /// The home database.
    pub database: Database,
    /// How many tasks may run at once.
    pub limits: Limits,
    /// Cancelling of single attempts.
    pub cancel: Cancel,
    /// The ordered end of the process.
    pub shutdown: Shutdown,
    /// What follows a failed or interrupted attempt.
    pub retry: Retry,
    /// What a task's attempt may leave behind.
    pub tasks: Tasks,
    /// Pools of owners' sessions.
    pub sessions: Sessions,
    /// How long ended jobs and completion records are kept.
    pub retention: Retention,
    /// Waits inside SQL.
    pub wait: Wait,
    /// The page and the API.
    pub http: Http,
    /// Logging.
    pub log: Log,
    /// Declared nodes by name; a name matches `^[a-z0-9_-]{1,63}$`.
    pub nodes: BTreeMap<String, Node>,
}

impl Default for Settings {
    /// The documented defaults; `data_dir` and `instance_name` depend on the user and the host.
    fn default() -> Self {
        Self {
            data_dir: default_data_dir(),
            instance_name: default_instance_name(),
            allow_superuser_owners: false,
            database: Database::default(),
            limits: Limits::default(),
            cancel: Cancel::default(),
            shutdown: Shutdown::default(),
            retry: Retry::default(),
            tasks: Tasks::default(),
            sessions: Sessions::default(),
            retention: Retention::default(),
            wait: Wait::default(),
            http: Http::default(),
            log: Log::default(),
            nodes: BTreeMap::new(),
        }
    }
}

/// `[database]`: where the catalog lives.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// URL or `key=value` text of the home database; `None` asks for a private PostgreSQL. May hold a password.
    #[serde(serialize_with = "masked_url")]
    pub url: Option<String>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("url", &self.url.as_deref().map(mask::mask_url)).finish()
    }
}

/// `[limits]`: the global and the per-node limit on running tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Running tasks of all nodes together, 1 to 1000.
    pub max_task_executors: u32,
    /// Running tasks of one node unless the node says otherwise, 1 to 1000.
    pub max_task_executors_per_node: u32,
    /// How long a task waits for several nodes before they are reserved for it as they free.
    #[serde(with = "duration")]
    pub reserve_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_task_executors: 4, max_task_executors_per_node: 1, reserve_after: Duration::from_secs(60) }
    }
}

/// `[cancel]`: ending one running attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cancel {
    /// Time between the cancel request and the end of the backend.
    #[serde(with = "duration")]
    pub grace: Duration,
}

impl Default for Cancel {
    fn default() -> Self {
        Self { grace: Duration::from_secs(5) }
    }
}

/// `[shutdown]`: ending the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// Time that running tasks get after SIGTERM before their sessions are ended.
    #[serde(with = "duration")]
    pub grace: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { grace: Duration::from_secs(10) }
    }
}

/// `[retry]`: the policy of tasks and jobs that state none of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Delay before each retry, in order; the last one repeats. Never empty.
    #[serde(with = "duration::list")]
    pub delays: Vec<Duration>,
    /// Retries after the first failed attempt.
    pub max_retries: u32,
    /// Interruptions (shutdown, lost server, takeover) before the task is given up.
    pub max_interruptions: u32,
    /// Share of a delay, 0 to 1, that chance may add.
    pub jitter: f64,
    /// SQLSTATE classes (2 characters) and codes (5) that no retry can mend.
    pub permanent_sqlstates: Vec<String>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            delays: [5, 20, 60].map(Duration::from_secs).to_vec(),
            max_retries: 32,
            max_interruptions: 1000,
            jitter: 0.0,
            permanent_sqlstates: ["42", "0A"].map(String::from).to_vec(),
        }
    }
}

/// `[tasks]`: bounds on what an attempt reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tasks {
    /// Bytes of an attempt's message that are kept (head and tail).
    pub max_message_bytes: u32,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { max_message_bytes: 64 * 1024 }
    }
}

/// `[sessions]`: the pools of owners' sessions, one per (node, database, owner).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sessions {
    /// Whether a session may serve several tasks of its owner, one after another.
    pub reuse: bool,
    /// An idle session is closed after this.
    #[serde(with = "duration")]
    pub max_idle: Duration,
    /// A session older than this is not lent again.
    #[serde(with = "duration")]
    pub max_age: Duration,
    /// Tasks that one session may serve.
    pub max_uses: u32,
    /// Connections being opened at once per node and owner.
    pub max_pending: u32,
    /// Time to connect and log in.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// A libpq-style password file for the owners' roles.
    #[serde(serialize_with = "shown_optional_path")]
    pub password_file: Option<PathBuf>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            reuse: true,
            max_idle: Duration::from_secs(60),
            max_age: Duration::from_secs(3600),
            max_uses: 10_000,
            max_pending: 4,
            connect_timeout: Duration::from_secs(5),
            password_file: None,
        }
    }
}

/// `[retention]`: when ended things are removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Age at which finished jobs go.
    #[serde(with = "duration")]
    pub finished: Duration,
    /// Age at which failed and cancelled jobs go.
    #[serde(with = "duration")]
    pub failed: Duration,
    /// Age at which completion records go, once their backends are known gone.
    #[serde(with = "duration")]
    pub records: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self {
            finished: Duration::from_secs(7 * DAY),
            failed: Duration::from_secs(30 * DAY),
            records: Duration::from_secs(DAY),
        }
    }
}

/// `[wait]`: `job_wait` and `task_wait`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wait {
    /// Longest wait inside SQL, which holds a snapshot.
    #[serde(with = "duration")]
    pub max_sql: Duration,
}

impl Default for Wait {
    fn default() -> Self {
        Self { max_sql: Duration::from_secs(600) }
    }
}

/// `[http]`: the page, the API and the probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Address to listen on; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// File with the token that allows steering; without it the page is read-only.
    #[serde(serialize_with = "shown_optional_path")]
    pub token_file: Option<PathBuf>,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8380)), token_file: None }
    }
}

/// `[log]`: what goes to standard error, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// For people or for machines.
    pub format: LogFormat,
    /// Filter directives, such as `info` or `warn,yardmaster=debug`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Human, level: "info".to_owned() }
    }
}

/// The shape of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One readable line an event, with colour on a terminal.
    Human,
    /// One JSON object an event.
    Json,
}

/// `[nodes.NAME]`: one declared node.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Node {
    /// URL or `key=value` text of the node; `None` is the home database. May hold a password.
    #[serde(serialize_with = "masked_url")]
    pub url: Option<String>,
    /// Running tasks on this node; `None` is `limits.max_task_executors_per_node`.
    pub max_task_executors: Option<u32>,
    /// Non-terminal tasks that may target this node; `None` is unlimited.
    pub max_tracked_tasks: Option<u32>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("url", &self.url.as_deref().map(mask::mask_url))
            .field("max_task_executors", &self.max_task_executors)
            .field("max_tracked_tasks", &self.max_tracked_tasks)
            .finish()
    }
}

/// `/var/lib/yardmaster` for root and for users without a home, else the XDG data folder.
fn default_data_dir() -> PathBuf {
    const SYSTEM: &str = "/var/lib/yardmaster";
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from(SYSTEM);
    }
    directories::ProjectDirs::from("", "", "yardmaster")
        .map_or_else(|| PathBuf::from(SYSTEM), |folders| folders.data_dir().to_path_buf())
}

/// The host's name; `yardmaster` where the system tells none.
fn default_instance_name() -> String {
    nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "yardmaster".to_owned())
}

fn masked_url<S: Serializer>(url: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_deref().map(mask::mask_url).serialize(serializer)
}

/// Serialises a path for people: serde refuses paths that are not UTF-8, and the default folder may be one.
fn shown_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

fn shown_optional_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(serializer)
}
