//! What a job file says, checked: plain data, written as JSON under the file's own keys.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::model::graph;

/// One job. Absent keys are `None` or empty and left out of the JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobFile {
    /// What the job is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A word to group jobs by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// Higher runs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Makes submission idempotent: the same key and content give the same job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The role that the tasks log in as, unless they name their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How long one attempt may take, for tasks that do not say so; 1 ms to 365 days.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_duration")]
    pub timeout: Option<Duration>,
    /// The retry policy of tasks that do not have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Has it a scratch schema in each database in which its tasks run?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<bool>,
    /// When what it leaves behind is removed: `on_end`, `on_success` or `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<String>,
    /// How long after its end that is; up to 365 days.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_duration")]
    pub cleanup_delay: Option<Duration>,
    /// At least one; dependencies first, otherwise as in the file.
    pub task: Vec<Task>,
}

/// One SQL command and what it waits for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    /// Unique in the job; 1 to 128 characters.
    pub name: String,
    /// One or more SQL statements.
    pub command: String,
    /// Names of the tasks that must be done before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Where the command runs, or may run, the preferred one first; home if empty. In a file a text or a list.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "one_or_many")]
    pub node: Vec<String>,
    /// Nodes whose slots the task takes besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes_involved: Vec<String>,
    /// The role that the task logs in as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Higher runs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The first attempt does not start earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<jiff::Timestamp>,
    /// How long one attempt may take; 1 ms to 365 days.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_duration")]
    pub timeout: Option<Duration>,
    /// Forces the command into a transaction or out of one; absent: recognised from the statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactional: Option<bool>,
    /// For commands outside a transaction: a query that yields true when the work is done already. Asked before
    /// every attempt but the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// For commands outside a transaction: takes back what an earlier attempt may have left. Runs before every attempt
    /// but the first, after `verify`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// This task's own retry policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The file in the job's folder that a `COPY … TO STDOUT` is streamed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// What happens after a failed attempt; what is absent comes from the job, then from the settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Retry {
    /// Failed attempts that are tried again; 0 to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i32>,
    /// Waits before the retries; the last one repeats. Not empty.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_durations")]
    pub delays: Option<Vec<Duration>>,
    /// The share of each wait that is random; 0.0 to 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// SQLSTATE classes (2 characters) and codes (5) that are not worth a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permanent_sqlstates: Option<Vec<String>>,
}

impl JobFile {
    /// The value for `yardmaster.job_submit(jsonb)`. Durations are text in a single unit (`"300s"`,
    /// `"1500ms"`), so that two spellings of one duration are the same content, and PostgreSQL reads each as
    /// an interval.
    pub fn to_submission(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("strings, finite numbers and lists always have a JSON form")
    }

    /// The tasks' names by layer: a task stands one layer after the last of its dependencies.
    pub fn layers(&self) -> Vec<Vec<&str>> {
        let places: HashMap<&str, usize> =
            self.task.iter().enumerate().map(|(place, task)| (task.name.as_str(), place)).collect();
        let edges: Vec<(usize, usize)> = self
            .task
            .iter()
            .enumerate()
            .flat_map(|(place, task)| task.depends_on.iter().map(move |name| (place, name)))
            .filter_map(|(place, name)| Some((place, *places.get(name.as_str())?)))
            .collect();
        let Some(layout) = graph::layout(self.task.len(), &edges) else { return Vec::new() };
        let mut layers: Vec<Vec<&str>> = Vec::new();
        for (task, &layer) in self.task.iter().zip(&layout.layer) {
            layers.resize_with(layers.len().max(layer + 1), Vec::new);
            layers[layer].push(&task.name);
        }
        layers
    }
}

/// Puts the tasks into `order`, which names each place once.
pub(super) fn in_order<T>(tasks: Vec<(T, Task)>, order: &[usize]) -> Vec<Task> {
    let mut tasks: Vec<Option<Task>> = tasks.into_iter().map(|(_, task)| Some(task)).collect();
    order.iter().filter_map(|&place| tasks.get_mut(place)?.take()).collect()
}

/// Writes a duration as whole seconds or, if it has a fraction, as milliseconds.
pub(super) fn duration_text(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

fn optional_duration<S: Serializer>(duration: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    duration.map(duration_text).serialize(out)
}

fn optional_durations<S: Serializer>(durations: &Option<Vec<Duration>>, out: S) -> Result<S::Ok, S::Error> {
    durations.as_ref().map(|all| all.iter().copied().map(duration_text).collect::<Vec<_>>()).serialize(out)
}

fn one_or_many<S: Serializer>(names: &[String], out: S) -> Result<S::Ok, S::Error> {
    match names {
        [one] => one.serialize(out),
        many => many.serialize(out),
    }
}
