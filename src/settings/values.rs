//! The typed settings: plain data, one struct a section of `Settings.toml`. The sections without a secret are in
//! [`super::sections`].
//!
//! Ranges are in [`super::keys`], the long explanations in `Settings.toml`. `Serialize` and `Debug` mask passwords.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use super::mask;
use super::sections::{Cancel, Http, Limits, Log, Retention, Retry, Sessions, Shutdown, Tasks, Wait};

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

impl Settings {
    /// With the nodes that home names (by name, with their urls) in place of those that it named before. What is declared in the
    /// file wins.
    #[must_use]
    pub fn with_found(&self, found: &BTreeMap<String, String>) -> Settings {
        let mut settings = self.clone();
        settings.nodes.retain(|_, node| !node.is_found);
        if settings.database.citus_nodes {
            for (name, url) in found {
                let node = Node { url: Some(url.clone()), is_found: true, ..Node::default() };
                settings.nodes.entry(name.clone()).or_insert(node);
            }
        }
        settings
    }
}

/// `[database]`: where the catalog lives.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// URL or `key=value` text of the home database; `None` asks for a private PostgreSQL. May hold a password.
    #[serde(serialize_with = "masked_url")]
    pub url: Option<String>,
    /// Are the nodes of `pg_dist_node` nodes here, too?
    pub citus_nodes: bool,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("url", &self.url.as_deref().map(mask::mask_url))
            .field("citus_nodes", &self.citus_nodes)
            .finish()
    }
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
    /// Did home name it, and not the file?
    #[serde(skip)]
    pub is_found: bool,
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

pub(super) fn shown_optional_path<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(serializer)
}
