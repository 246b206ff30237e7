//! Job files: one file (TOML, YAML or JSON) describes one job. Reads the file, reports all its mistakes at once with line and
//! column, and turns it into the value that the SQL function `yardmaster.job_submit(jsonb)` takes.
//!
//! Called by the commands that take files. Pure: text in, job or mistakes out; nothing is opened, nothing is
//! stored.
//!
//! Invariants: a [`JobFile`] has passed every check that needs no database; its tasks are in dependency
//! order; the keys of [`JobFile::to_submission`] are the keys of the file.

mod check;
mod command;
mod expand;
mod fields;
mod job;
mod mistake;
mod reader;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeTable;

pub use crate::jobfile::job::{JobFile, Retry, Task};
pub use crate::jobfile::mistake::Mistake;
use crate::jobfile::reader::Reader;

/// How a job file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The default.
    Toml,
    /// By the endings `.yaml` and `.yml`.
    Yaml,
    /// By the ending `.json`.
    Json,
}

impl Format {
    /// The format that a file's name tells.
    pub fn of(file_name: &str) -> Self {
        match file_name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).as_deref() {
            Some("yaml" | "yml") => Self::Yaml,
            Some("json") => Self::Json,
            _ => Self::Toml,
        }
    }
}

/// What a reader of job files brings along.
pub struct Options<'a> {
    /// A task's `node` must be one of them; `None`: any will do.
    pub known_nodes: Option<&'a BTreeSet<String>>,
    /// Values for variables that the file declares in `[vars]`.
    pub variables: &'a BTreeMap<String, String>,
    /// The text of a `command_file`, or why it cannot be had (`"cannot be read: …"`).
    pub read_file: &'a dyn Fn(&str) -> Result<String, String>,
}

/// Reads a job file. `file_name` tells the format and appears in mistakes.
///
/// # Errors
/// All mistakes of the file in the order of their places; syntax errors of the format hide the others,
/// since what follows one cannot be trusted.
pub fn parse_with(file_name: &str, text: &str, options: &Options<'_>) -> Result<JobFile, Vec<Mistake>> {
    let format = Format::of(file_name);
    let mut reader = Reader::new(file_name, text, format);
    let document = match format {
        Format::Toml => read_toml(&mut reader, text),
        Format::Json if !yaml::check_json(&mut reader, text) => None,
        Format::Yaml | Format::Json => yaml::read(&mut reader, text),
    };
    let Some(mut document) = document else { return Err(reader.into_mistakes()) };
    expand::expand(&mut reader, &mut document, options);
    let mut draft = fields::read_job(&mut reader, &document);
    let order = check::check(&mut reader, &draft, options.known_nodes);
    match order {
        Some(order) if reader.is_clean() => {
            draft.job.task = job::in_order(draft.tasks, &order);
            Ok(draft.job)
        }
        _ => Err(reader.into_mistakes()),
    }
}

/// Reads a job file that needs nothing beside it. See [`parse_with`].
///
/// # Errors
/// All mistakes of the file; a `command_file` is one.
pub fn parse(
    file_name: &str,
    text: &str,
    known_nodes: Option<&BTreeSet<String>>,
) -> Result<JobFile, Vec<Mistake>> {
    let read_file = |_: &str| Err("cannot be read here".to_owned());
    parse_with(file_name, text, &Options { known_nodes, variables: &BTreeMap::new(), read_file: &read_file })
}

fn read_toml<'t>(reader: &mut Reader<'_>, text: &'t str) -> Option<DeTable<'t>> {
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        reader.mistake(error.span().unwrap_or(0..0), error.message());
    }
    syntax_errors.is_empty().then(|| document.into_inner())
}

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod tests;
