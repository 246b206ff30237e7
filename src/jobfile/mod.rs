//! Job files: one TOML file describes one job. Reads the file, reports all its mistakes at once with line and
//! column, and turns it into the value that the SQL function `yardmaster.job_submit(jsonb)` takes.
//!
//! Called by the commands that take files. Pure: text in, job or mistakes out; nothing is opened, nothing is
//! stored.
//!
//! Invariants: a [`JobFile`] has passed every check that needs no database; its tasks are in dependency
//! order; the keys of [`JobFile::to_submission`] are the keys of the file.

mod check;
mod command;
mod fields;
mod job;
mod mistake;
mod reader;

use std::collections::BTreeSet;

use toml::de::DeTable;

pub use crate::jobfile::job::{JobFile, Retry, Task};
pub use crate::jobfile::mistake::Mistake;
use crate::jobfile::reader::Reader;

/// Reads a job file. `file_name` appears in mistakes only. With `known_nodes`, a task's `node` must be one of
/// them.
///
/// # Errors
/// All mistakes of the file in the order of their places; syntax errors of TOML hide the others,
/// since what follows one cannot be trusted.
pub fn parse(
    file_name: &str,
    text: &str,
    known_nodes: Option<&BTreeSet<String>>,
) -> Result<JobFile, Vec<Mistake>> {
    let mut reader = Reader::new(file_name, text);
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        reader.mistake(error.span().unwrap_or(0..0), error.message());
    }
    if !syntax_errors.is_empty() {
        return Err(reader.into_mistakes());
    }
    let mut draft = fields::read_job(&mut reader, document.get_ref());
    let order = check::check(&mut reader, &draft, known_nodes);
    match order {
        Some(order) if reader.is_clean() => {
            draft.job.task = job::in_order(draft.tasks, &order);
            Ok(draft.job)
        }
        _ => Err(reader.into_mistakes()),
    }
}

#[cfg(test)]
mod tests;
