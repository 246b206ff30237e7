//! `job submit`: job files into the catalog.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::cli::context::{parse_job_file, parse_variable};
use crate::cli::error::submission;
use crate::cli::progress::Screen;
use crate::cli::steering::is_somebody_leading;
use crate::cli::wait::{self, Goal};
use crate::cli::{CliError, Context, Exit, summary, text};
use crate::db::inspect::steer::{self, Submitted};
use crate::model::JobId;

/// A job file larger than this is taken for a mistake.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

const EXAMPLES: &str = "\
Each file becomes one job; if one of them has a mistake, none is submitted. With a key in the file, submitting it
again returns the same job.

Examples:
  yardmaster job submit nightly.toml
  yardmaster job submit a.toml b.yaml --wait
  yardmaster job submit partitions.toml --var year=2027
  generate | yardmaster job submit - -o json | jq -r '.[].job_id'";

/// Arguments of `job submit`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SubmitArgs {
    /// Job files (TOML; YAML or JSON by their name's ending); `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Set a variable that the files declare in [vars]; may be repeated.
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,
    /// Wait for the jobs to end, with live progress; exit 1 if one failed or was cancelled.
    #[arg(long)]
    wait: bool,
}

pub(super) async fn submit(context: &Context, args: SubmitArgs) -> Result<Exit, CliError> {
    let jobs = read_files(&args.files, &args.variables)?;
    let mut connection = context.connect().await?;
    let submitted = steer::submit(&mut connection.client, &jobs).await.map_err(submission)?;
    is_somebody_leading(context, &connection.client).await?;
    tell(context, &args.files, &jobs, &submitted, args.wait)?;
    if !args.wait {
        return Ok(Exit::Well);
    }
    let ids: Vec<JobId> = submitted.iter().map(|submitted| submitted.job).collect();
    let goal = Goal { desired: None, timeout: None };
    wait::jobs(&connection.client, &ids, goal, &mut Screen::everywhere(&context.output)).await?;
    if !context.output.is_json() {
        summary::table(&context.output, &connection.client, &ids).await?;
    }
    summary::ends(&context.output, &connection.client, &ids).await
}

fn tell(
    context: &Context,
    files: &[PathBuf],
    jobs: &[Value],
    submitted: &[Submitted],
    wait: bool,
) -> Result<(), CliError> {
    if context.output.is_json() {
        // With --wait the closing document has the ids; two documents would be one too many.
        let entry = |(submitted, file): (&Submitted, &PathBuf)| {
            serde_json::json!({
                "job_id": submitted.job.to_string(),
                "file": file.to_string_lossy(),
                "existed": !submitted.is_new,
            })
        };
        let told: Vec<Value> = submitted.iter().zip(files).map(entry).collect();
        return if wait { Ok(()) } else { context.output.json(&told) };
    }
    for ((submitted, file), job) in submitted.iter().zip(files).zip(jobs) {
        let id = submitted.job;
        let file = file.to_string_lossy();
        let line = if submitted.is_new {
            let tasks = job.get("task").and_then(Value::as_array).map_or(0, Vec::len);
            let tasks = text::plural(i64::try_from(tasks).unwrap_or(i64::MAX), "task");
            format!("job {id} submitted: {tasks} from {}", text::inert(&file))
        } else {
            let key = job.get("key").and_then(Value::as_str).unwrap_or_default();
            format!(
                "job {id} exists already: {} was submitted before, key \"{}\"",
                text::inert(&file),
                text::inert(key)
            )
        };
        context.output.line(&line)?;
    }
    Ok(())
}

/// Reads job files into what the catalog takes; all mistakes of all files at once.
///
/// # Errors
/// [`CliError::Mistakes`] with one entry for each mistake.
pub fn read_files(files: &[PathBuf], variables: &[(String, String)]) -> Result<Vec<Value>, CliError> {
    let variables = variables.iter().cloned().collect();
    let mut jobs = Vec::with_capacity(files.len());
    let mut mistakes = Vec::new();
    for file in files {
        let name = if is_stdin(file) { "<standard input>".into() } else { file.to_string_lossy() };
        match read(file) {
            Ok(text) => match parse_job_file(&name, &text, &variables) {
                Ok(job) => jobs.push(job),
                Err(found) => mistakes.extend(found),
            },
            Err(e) => mistakes.push(format!("{name}: cannot be read: {e}")),
        }
    }
    if mistakes.is_empty() { Ok(jobs) } else { Err(CliError::Mistakes(mistakes)) }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> std::io::Result<String> {
    let source: Box<dyn Read> =
        if is_stdin(file) { Box::new(std::io::stdin()) } else { Box::new(std::fs::File::open(file)?) };
    let mut text = String::new();
    source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
