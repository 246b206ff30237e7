//! What every verb needs: flags, settings, a connection, job files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::CliError;
use super::output::{ColorChoice, Format, Output};
use crate::cluster;
use crate::db::bootstrap;
use crate::db::client::{self, Connection};
use crate::jobfile;
use crate::settings::{Settings, Sources};

/// Flags that every verb takes, before or after it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The settings file (default: $YARDMASTER_CONFIG, else /etc/yardmaster/Settings.toml if it exists).
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The database: a libpq URL or key=value string. Without it: the settings, DATABASE_URL, PGHOST and friends.
    /// Others can see the arguments of your commands: keep a password in PGPASSWORD or the settings file.
    #[arg(long, global = true, value_name = "URL")]
    pub database: Option<String>,
    /// Override one setting, as in --set limits.max_task_executors=8; can be repeated.
    #[arg(long = "set", global = true, value_name = "KEY=VALUE", value_parser = parse_override)]
    pub set: Vec<(String, String)>,
    /// The shape of results. In JSON every id is a string, since JavaScript would round numbers above 2^53; moments
    /// are ISO 8601 in UTC, durations are in seconds; keys are added in later versions, never renamed.
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
    /// When to use colour; auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
}

fn parse_override(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("it must have the form KEY=VALUE, as in limits.max_task_executors=8".to_owned()),
    }
}

/// What every verb gets.
#[derive(Debug)]
pub struct Context {
    /// The flags as given.
    pub global: Global,
    /// Where results go.
    pub output: Output,
}

impl Context {
    /// Looks at the terminal; reads no settings yet, so that help and completions work with broken ones.
    pub fn new(global: Global) -> Self {
        let output = Output::new(global.output, global.color);
        Self { global, output }
    }

    /// Where settings come from: flags before environment before file, then `DATABASE_URL`, then `PG*`.
    pub fn sources(&self) -> Sources {
        let mut flags = self.global.set.clone();
        flags.extend(self.global.database.iter().map(|url| ("database.url".to_owned(), url.clone())));
        Sources { file: self.global.config.clone(), environment: environment(), flags }
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// [`CliError::Mistakes`], one for each: file, line, key and rule.
    pub fn settings(&self) -> Result<Settings, CliError> {
        Settings::load(&self.sources())
            .map_err(|e| CliError::Mistakes(e.to_string().lines().map(str::to_owned).collect()))
    }

    /// The database to talk to: the one of the settings, else the private PostgreSQL that runs under `data_dir`.
    ///
    /// # Errors
    /// [`CliError::Usage`] if there is neither.
    pub fn database_url(&self) -> Result<String, CliError> {
        let settings = self.settings()?;
        let private = || cluster::running_url(&settings.data_dir, bootstrap::OWNER, bootstrap::DATABASE);
        settings.database.url.clone().or_else(private).ok_or_else(|| {
            CliError::Usage(format!(
                "no database is named, and no private PostgreSQL runs under {}: give --database URL, set DATABASE_URL or \
                 PGHOST, write [database] url into the settings file, or start `yardmaster serve`",
                settings.data_dir.display()
            ))
        })
    }

    /// Connects to the database.
    ///
    /// # Errors
    /// Within 5 s, with the place and the reason.
    pub async fn connect(&self) -> Result<Connection, CliError> {
        let url = self.database_url()?;
        Ok(client::connect(&url).await?)
    }
}

/// The environment, as far as it is text.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
}

/// Reads a job file (TOML, or YAML or JSON by its name's ending) into what `job_submit` takes. A `command_file`
/// is looked for beside the job file.
///
/// # Errors
/// The mistakes, each rendered with its place.
pub fn parse_job_file(
    name: &str,
    text: &str,
    variables: &BTreeMap<String, String>,
) -> Result<Value, Vec<String>> {
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let read_file =
        |file: &str| std::fs::read_to_string(folder.join(file)).map_err(|e| format!("cannot be read: {e}"));
    let options = jobfile::Options { known_nodes: None, variables, read_file: &read_file };
    match jobfile::parse_with(name, text, &options) {
        Ok(job) => Ok(job.to_submission()),
        Err(mistakes) => Err(mistakes.iter().map(ToString::to_string).collect()),
    }
}

/// Reads `NAME=VALUE`.
///
/// # Errors
/// What is missing.
pub fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_job_file_is_placed() {
        let mistakes =
            parse_job_file("a.toml", "description = \"x\"\n[[task]\n", &BTreeMap::new()).unwrap_err();
        assert!(mistakes[0].starts_with("a.toml:2:"), "{mistakes:?}");
        let text = "[[task]]\nname = \"t\"\ncommand = \"SELECT 1\"\nnot_before = 2026-12-01T08:00:00Z\n";
        let job = parse_job_file("a.toml", text, &BTreeMap::new()).unwrap();
        assert_eq!(job["task"][0]["not_before"], "2026-12-01T08:00:00Z");
    }
}
