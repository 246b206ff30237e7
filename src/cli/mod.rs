//! The command line for people: arguments in, tables or JSON out, an exit code.
//!
//! Every verb is a file. Verbs read and steer through [`crate::db::inspect`] and never decide anything about jobs:
//! what a request does is the leader's business. Results go to standard output; progress, warnings and errors go to
//! standard error, so that output can be piped. Text that came out of a database is made inert before it reaches a
//! terminal ([`text`]).

mod completions;
pub mod context;
mod doctor;
mod error;
pub mod findings;
pub mod job;
mod man;
mod migrate;
mod node;
pub mod output;
pub mod progress;
pub mod run;
mod schedule;
pub mod serve;
mod status;
mod steering;
pub mod summary;
mod task;
mod task_detail;
mod verdicts;
pub mod wait;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

pub use context::{Context, Global};
pub use error::{CliError, Exit};

pub use crate::model::text;

const EXAMPLES: &str = "\
Examples:
  yardmaster run nightly.toml            run a job file to its end on a private PostgreSQL
  yardmaster job submit nightly.toml     hand it to the service
  yardmaster job wait 7 --timeout 10m    wait for job 7
  yardmaster task list --status error    see what failed
  yardmaster status                      one screen about everything

Exit codes:
  0 well   1 the work failed   2 usage or settings   3 database unreachable or refused
  4 wait timed out   70 internal fault   130 interrupted";

/// Runs background jobs of SQL tasks on PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "yardmaster", version, about, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    /// Flags that every verb takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run job files to their end, with live progress.
    Run(run::RunArgs),
    /// Run the service.
    Serve(serve::ServeArgs),
    /// Submit, watch and steer jobs.
    #[command(subcommand)]
    Job(job::JobVerb),
    /// Watch and steer single tasks.
    #[command(subcommand)]
    Task(task::TaskVerb),
    /// See when jobs will be made, pause that.
    #[command(subcommand)]
    Schedule(schedule::ScheduleVerb),
    /// Watch and drain nodes.
    #[command(subcommand)]
    Node(node::NodeVerb),
    /// Show the leader, the jobs, the tasks and what runs, on one screen.
    Status(status::StatusArgs),
    /// Look for what keeps jobs from running well, and say what to do about it.
    Doctor(doctor::DoctorArgs),
    /// Create or upgrade the catalog (schema yardmaster) in the database.
    Migrate(migrate::MigrateArgs),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
    /// Write a manual page for each verb into a folder.
    #[command(hide = true)]
    Man(man::ManArgs),
}

/// Parses the arguments, carries out the verb, and says how it went.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match parse(arguments.into_iter().collect()) {
        Ok(cli) => cli,
        Err(e) => {
            // Printing can only fail when the output is closed; the exit code still tells.
            let _ = e.print();
            return if e.use_stderr() { Exit::Usage } else { Exit::Well }.into();
        }
    };
    let context = Context::new(cli.global);
    match dispatch(&context, cli.verb) {
        Ok(exit) => exit.into(),
        Err(e) => {
            context.output.complain(&e);
            e.exit().into()
        }
    }
}

/// Parses the arguments. clap's measure of likeness misses swapped letters in short verbs (`jbo`), so those get their
/// suggestion here.
fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(&arguments).map_err(|mut e| {
        let mut level = &Cli::command();
        for argument in &arguments {
            level = level.find_subcommand(argument).unwrap_or(level);
        }
        if let Some(ContextValue::String(unknown)) = e.get(ContextKind::InvalidSubcommand)
            && e.get(ContextKind::SuggestedSubcommand).is_none()
            && let Some(nearest) = nearest_verb(level, unknown)
        {
            e.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![nearest]));
        }
        e
    })
}

fn nearest_verb(level: &clap::Command, unknown: &str) -> Option<String> {
    let distance = |verb: &&str| strsim::damerau_levenshtein(verb, unknown);
    let nearest = level.get_subcommands().map(clap::Command::get_name).min_by_key(distance)?;
    (distance(&nearest) <= 2).then(|| nearest.to_owned())
}

fn dispatch(context: &Context, verb: Verb) -> Result<Exit, CliError> {
    match verb {
        Verb::Run(args) => run::run(context, args),
        Verb::Serve(args) => serve::serve(context, args),
        Verb::Completions(args) => completions::print(context, &args, Cli::command()),
        Verb::Man(args) => man::write(&args, Cli::command()),
        Verb::Doctor(_) => client_command(doctor::doctor(context)),
        Verb::Job(verb) => client_command(job::job(context, verb)),
        Verb::Task(verb) => client_command(task::task(context, verb)),
        Verb::Schedule(verb) => client_command(schedule::schedule(context, verb)),
        Verb::Node(verb) => client_command(node::node(context, verb)),
        Verb::Status(_) => client_command(status::status(context)),
        Verb::Migrate(_) => client_command(migrate::migrate(context)),
    }
}

/// Runs a verb of a client: it ends at once at Ctrl-C, and whatever it watched goes on.
fn client_command(verb: impl Future<Output = Result<Exit, CliError>>) -> Result<Exit, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            result = verb => result,
            interrupt = tokio::signal::ctrl_c() => interrupt.map(|()| Exit::Interrupted).map_err(CliError::from),
        }
    });
    // A name look-up that hangs in the resolver's thread must not hold up the end.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        parse(std::iter::once(&"yardmaster").chain(arguments).map(OsString::from).collect())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_an_example() {
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if command.get_name() == "help" {
                return;
            }
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(text.contains("Examples:"), "no example in the help of{path}");
            assert!(text.contains("yardmaster"), "the example of{path} cannot be typed");
            command.get_subcommands().for_each(|sub| look(sub, &path));
        }
        look(&Cli::command(), "");
    }

    #[test]
    fn a_slip_gets_the_nearest_right_word() {
        assert!(refusal(&["jbo", "list"]).contains("'job'"));
        assert!(refusal(&["job", "sumbit"]).contains("'submit'"));
        assert!(refusal(&["job", "list", "--sate", "failed"]).contains("'--state'"));
        assert!(refusal(&["job", "list", "--state", "faild"]).contains("'failed'"));
        assert!(refusal(&["job", "wait", "1", "--timeout", "soon"]).contains("--timeout"));
        assert!(refusal(&["job", "show", "0"]).contains("1.."));
    }
}
