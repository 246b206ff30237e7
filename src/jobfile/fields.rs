//! Reads the keys of the job, of its tasks and of their retry policies: types, ranges, spellings. What
//! concerns several tasks at once, and the SQL, is [`super::check`]'s.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::jobfile::job::{JobFile, Retry, Task};
use crate::jobfile::reader::{self, Place, Placed, Reader, Section};
use crate::model::is_output_name;

pub(super) const JOB_KEYS: [&str; 12] = [
    "description",
    "job_type",
    "priority",
    "key",
    "owner",
    "timeout",
    "retry",
    "scratch",
    "cleanup",
    "cleanup_delay",
    "vars",
    "task",
];
pub(super) const TASK_KEYS: [&str; 16] = [
    "name",
    "command",
    "depends_on",
    "node",
    "nodes_involved",
    "owner",
    "priority",
    "not_before",
    "timeout",
    "transactional",
    "verify",
    "undo",
    "retry",
    "output",
    "command_file",
    "for_each",
];
pub(super) const RETRY_KEYS: [&str; 4] = ["max_retries", "delays", "jitter", "permanent_sqlstates"];

/// When what a job left on nodes and in its folder is removed: at its end, only if it finished, or by nobody.
const CLEANUPS: [&str; 3] = ["on_end", "on_success", "never"];

/// Bound of names and other labels, in characters.
const MAX_LABEL: usize = 128;
/// Bound of a description, in characters.
const MAX_DESCRIPTION: usize = 10_000;
/// PostgreSQL's NAMEDATALEN - 1: a longer role name cannot exist.
const MAX_ROLE: usize = 63;
/// PostgreSQL refuses a message of 1 GiB; a command ends well below.
const MAX_COMMAND: usize = 256 << 20;
/// The remedy of every wrong duration.
const DURATION_EXAMPLE: &str = "write a duration such as \"30s\", \"5m\" or \"1h 30m\"";
/// Longest duration: 365 days. A longer one is a slip of the pen.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// As many as a person could mean; the catalog stores an integer.
const MAX_RETRIES: i32 = 10_000;

/// A job whose tasks are not yet checked against one another.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) job: JobFile,
    pub(super) tasks: Vec<(Places, Task)>,
}

/// Where the parts of a task stand that later checks speak of.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) header: Place,
    pub(super) name: Option<Place>,
    pub(super) command: Option<Place>,
    pub(super) verify: Option<Place>,
    pub(super) undo: Option<Place>,
    /// One for each of the task's nodes.
    pub(super) node: Vec<Place>,
    /// One for each of the task's `depends_on`.
    pub(super) depends_on: Vec<Place>,
}

/// Reads the whole document.
pub(super) fn read_job(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Draft {
    let section = Section { what: "the job", table: document };
    section.check_keys(reader, &JOB_KEYS);
    let job = JobFile {
        description: value(section.text(reader, "description", MAX_DESCRIPTION)),
        job_type: value(section.text(reader, "job_type", MAX_LABEL)),
        priority: section.integer(reader, "priority", i32::MIN, i32::MAX),
        key: value(section.text(reader, "key", MAX_LABEL)),
        owner: value(section.text(reader, "owner", MAX_ROLE)),
        timeout: read_timeout(reader, &section),
        retry: read_retry(reader, &section),
        scratch: section.bool(reader, "scratch"),
        cleanup: read_cleanup(reader, &section),
        cleanup_delay: section
            .get("cleanup_delay")
            .and_then(|value| read_duration(reader, "cleanup_delay", value, Duration::ZERO)),
        task: Vec::new(),
    };
    let tasks = match section.get("task") {
        None => {
            reader.mistake_with_hint(0..0, "the job has no task", "add a [[task]] with `name` and `command`");
            Vec::new()
        }
        Some(tasks) => read_tasks(reader, tasks),
    };
    Draft { job, tasks }
}

/// The catalog's rule: see the check of `task_spec.output`.
fn read_output(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<String> {
    let name = section.text(reader, "output", MAX_LABEL)?;
    if is_output_name(&name.value) {
        return Some(name.value);
    }
    let message = format!("`output`: \"{}\" is not the name of a file in the folder of the job", name.value);
    let hint = "take up to 100 letters, digits and . _ -, not beginning with . or -, and no folder";
    reader.mistake_with_hint(name.place, message, hint);
    None
}

fn read_cleanup(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<String> {
    let word = section.text(reader, "cleanup", MAX_LABEL)?;
    if CLEANUPS.contains(&word.value.as_str()) {
        return Some(word.value);
    }
    let message = format!("`cleanup` is \"{}\": it is {}", word.value, CLEANUPS.join(", "));
    reader.mistake_with_hint(
        word.place,
        message,
        "to keep things for a while after the end, add cleanup_delay",
    );
    None
}

fn read_tasks(reader: &mut Reader<'_>, tasks: &Spanned<DeValue<'_>>) -> Vec<(Places, Task)> {
    let hint = "head each task with [[task]], in double brackets";
    let Some(elements) = tasks.get_ref().as_array() else {
        reader.mistake_with_hint(tasks.span(), "`task` must be a list of tables", hint);
        return Vec::new();
    };
    if elements.is_empty() {
        reader.mistake_with_hint(tasks.span(), "the job has no task", hint);
    }
    let mut read = Vec::with_capacity(elements.len());
    for element in elements.iter() {
        match element.get_ref().as_table() {
            Some(table) => read.push(read_task(reader, element.span(), table)),
            None => reader.mistake_with_hint(element.span(), "a task must be a table", hint),
        }
    }
    read
}

fn read_task(reader: &mut Reader<'_>, header: Place, table: &DeTable<'_>) -> (Places, Task) {
    let what = match table.get("name").and_then(|name| name.get_ref().as_str()) {
        Some(name) => format!("task \"{name}\""),
        None => "the task".to_owned(),
    };
    let section = Section { what: &what, table };
    section.check_keys(reader, &TASK_KEYS);
    let name = required(reader, &section, &header, "name", MAX_LABEL);
    let command = required(reader, &section, &header, "command", MAX_COMMAND);
    let node = match section.get("node") {
        Some(value) if value.get_ref().is_array() => read_names(reader, &section, "node"),
        _ => section.text(reader, "node", MAX_LABEL).into_iter().collect(),
    };
    let depends_on = read_names(reader, &section, "depends_on");
    let verify = section.text(reader, "verify", MAX_COMMAND);
    let undo = section.text(reader, "undo", MAX_COMMAND);
    let places = Places {
        header,
        verify: verify.as_ref().map(|verify| verify.place.clone()),
        undo: undo.as_ref().map(|undo| undo.place.clone()),
        name: name.as_ref().map(|name| name.place.clone()),
        command: command.as_ref().map(|command| command.place.clone()),
        node: node.iter().map(|node| node.place.clone()).collect(),
        depends_on: depends_on.iter().map(|name| name.place.clone()).collect(),
    };
    let task = Task {
        name: value(name).unwrap_or_default(),
        command: value(command).unwrap_or_default(),
        depends_on: depends_on.into_iter().map(|name| name.value).collect(),
        node: node.into_iter().map(|node| node.value).collect(),
        nodes_involved: read_names(reader, &section, "nodes_involved")
            .into_iter()
            .map(|name| name.value)
            .collect(),
        owner: value(section.text(reader, "owner", MAX_ROLE)),
        priority: section.integer(reader, "priority", i32::MIN, i32::MAX),
        not_before: section.get("not_before").and_then(|value| read_not_before(reader, value)),
        timeout: read_timeout(reader, &section),
        transactional: section.bool(reader, "transactional"),
        verify: value(verify),
        undo: value(undo),
        retry: read_retry(reader, &section),
        output: read_output(reader, &section),
    };
    (places, task)
}

fn value(placed: Option<Placed<String>>) -> Option<String> {
    placed.map(|placed| placed.value)
}

fn required(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    header: &Place,
    key: &str,
    max: usize,
) -> Option<Placed<String>> {
    if section.get(key).is_none() {
        reader.mistake(header.clone(), format!("{} has no `{key}`", section.what));
    }
    section.text(reader, key, max)
}

/// Reads a list of names, each at most once.
fn read_names(reader: &mut Reader<'_>, section: &Section<'_, '_>, key: &str) -> Vec<Placed<String>> {
    let mut seen = std::collections::HashSet::new();
    let names = section.list(reader, key, |reader, element| {
        let name = reader::text(reader, key, element, MAX_LABEL)?;
        if seen.insert(name.value.clone()) {
            return Some(name);
        }
        reader.mistake(name.place, format!("`{key}` names \"{}\" twice", name.value));
        None
    });
    names.unwrap_or_default()
}

fn read_retry(reader: &mut Reader<'_>, parent: &Section<'_, '_>) -> Option<Retry> {
    let value = parent.get("retry")?;
    let Some(table) = value.get_ref().as_table() else {
        reader::wrong_type(reader, "retry", "a table", value);
        return None;
    };
    let what = format!("`retry` of {}", parent.what);
    let section = Section { what: &what, table };
    section.check_keys(reader, &RETRY_KEYS);
    let delays = section
        .list(reader, "delays", |reader, delay| read_duration(reader, "delays", delay, Duration::ZERO));
    if let (Some(value), Some([])) = (section.get("delays"), delays.as_deref())
        && value.get_ref().as_array().is_some_and(|list| list.is_empty())
    {
        reader.mistake_with_hint(value.span(), "`delays` is empty", "leave it out, or set max_retries = 0");
    }
    Some(Retry {
        max_retries: section.integer(reader, "max_retries", 0, MAX_RETRIES),
        delays,
        jitter: section.share(reader, "jitter"),
        permanent_sqlstates: section.list(reader, "permanent_sqlstates", read_sqlstate),
    })
}

fn read_sqlstate(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let Some(code) = value.get_ref().as_str() else {
        reader::wrong_type(reader, "permanent_sqlstates", "a list of texts in quotes", value);
        return None;
    };
    let is_code =
        matches!(code.len(), 2 | 5) && code.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
    if is_code {
        return Some(code.to_owned());
    }
    let message = format!("\"{code}\" is no SQLSTATE: a class has 2 characters, a code 5, of 0-9 and A-Z");
    match code.to_ascii_uppercase() {
        upper if upper != code && matches!(code.len(), 2 | 5) => {
            reader.mistake_with_hint(value.span(), message, format!("write \"{upper}\""));
        }
        _ => reader.mistake_with_hint(
            value.span(),
            message,
            "write \"42\" for the class, \"42601\" for one code",
        ),
    }
    None
}

fn read_timeout(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<Duration> {
    read_duration(reader, "timeout", section.get("timeout")?, Duration::from_millis(1))
}

fn read_duration(
    reader: &mut Reader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    min: Duration,
) -> Option<Duration> {
    let Some(text) = value.get_ref().as_str() else {
        let message = format!("`{key}` must be a duration in quotes, not {}", describe(value.get_ref()));
        reader.mistake_with_hint(value.span(), message, DURATION_EXAMPLE);
        return None;
    };
    let Ok(duration) = humantime::parse_duration(text) else {
        reader.mistake_with_hint(
            value.span(),
            format!("`{key}`: \"{text}\" is no duration"),
            DURATION_EXAMPLE,
        );
        return None;
    };
    let is_whole = duration.subsec_nanos().is_multiple_of(1_000_000);
    if is_whole && (min..=MAX_DURATION).contains(&duration) {
        return Some(duration);
    }
    let message =
        format!("`{key}`: \"{text}\" is not between {} and 365 days, in whole milliseconds", shortest(min));
    reader.mistake(value.span(), message);
    None
}

fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::Integer(_) | DeValue::Float(_) => "a number without a unit",
        _ => "another type",
    }
}

fn shortest(min: Duration) -> &'static str {
    if min.is_zero() { "0" } else { "1 ms" }
}

/// Reads a moment: TOML's own kind or text of RFC 3339, with an offset in either case.
fn read_not_before(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<jiff::Timestamp> {
    let example = "write it with an offset: 2026-12-01T08:00:00Z or 2026-12-01T08:00:00+01:00";
    let text = match value.get_ref() {
        DeValue::Datetime(moment)
            if moment.date.is_none() || moment.time.is_none() || moment.offset.is_none() =>
        {
            let message = format!("`not_before` is {moment}, which is not one moment everywhere");
            reader.mistake_with_hint(value.span(), message, example);
            return None;
        }
        DeValue::Datetime(moment) => moment.to_string(),
        DeValue::String(text) => text.to_string(),
        _ => {
            reader.mistake_with_hint(value.span(), "`not_before` must be a date and time", example);
            return None;
        }
    };
    let found = text.parse().ok();
    if found.is_none() {
        reader.mistake_with_hint(value.span(), format!("`not_before`: \"{text}\" is no moment"), example);
    }
    found
}
