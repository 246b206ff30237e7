//! The plain sections of the settings, with their defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;
use super::values::shown_optional_path;

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
    /// The largest output file of a task, in MiB.
    pub max_output_mib: u32,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { max_message_bytes: 64 * 1024, max_output_mib: 1024 }
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
    /// Short tasks that may be claimed for one session at once, to run one after another; 1: no more than it runs.
    pub prefetch: u32,
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
            prefetch: 8,
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
