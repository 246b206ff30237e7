//! What every verb needs, and the seams to the parts that other floors own: settings and job files.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::CliError;
use super::output::{ColorChoice, Format, Output};
use crate::db::client::{self, Connection};

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

/// The part of the settings that the command line needs.
/// SEAM: becomes `crate::settings::Settings` when that is merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// `database.url`, from wherever it was given.
    pub database_url: Option<String>,
}

impl Context {
    /// Looks at the terminal; reads no settings yet, so that help and completions work with broken ones.
    pub fn new(global: Global) -> Self {
        let output = Output::new(global.output, global.color);
        Self { global, output }
    }

    /// Reads the settings: flags before environment before file, then `DATABASE_URL`, then `PG*`.
    /// SEAM: becomes `Settings::load(&Sources { file, environment, flags })`.
    ///
    /// # Errors
    /// [`CliError::Usage`] with file, key and rule.
    pub fn settings(&self) -> Result<ClientSettings, CliError> {
        let flags = self
            .global
            .set
            .iter()
            .rev()
            .find(|(key, _)| key == "database.url")
            .map(|(_, value)| value.clone());
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let mut url =
            self.global.database.clone().or(flags).or_else(|| variable("YARDMASTER__DATABASE__URL"));
        if url.is_none()
            && let Some(file) =
                self.global.config.clone().or_else(|| variable("YARDMASTER_CONFIG").map(PathBuf::from))
        {
            url = url_of_file(&file)?;
        }
        let database_url = url.or_else(|| variable("DATABASE_URL")).or_else(|| libpq_variables(variable));
        Ok(ClientSettings { database_url })
    }

    /// The database to talk to.
    ///
    /// # Errors
    /// [`CliError::Usage`] if none is named.
    pub fn database_url(&self) -> Result<String, CliError> {
        // SEAM: without a URL, a running private PostgreSQL under `data_dir` is the database (crate::cluster).
        self.settings()?.database_url.ok_or_else(|| {
            CliError::Usage(
                "no database is named: give --database URL, set DATABASE_URL or PGHOST, or write [database] url into \
                 the settings file"
                    .to_owned(),
            )
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

fn url_of_file(file: &Path) -> Result<Option<String>, CliError> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|e| CliError::Usage(format!("cannot read the settings file {shown}: {e}")))?;
    let table: toml::Table =
        toml::from_str(&text).map_err(|e| CliError::Usage(format!("{shown}: {}", e.message())))?;
    match table.get("database").and_then(|database| database.get("url")) {
        None => Ok(None),
        Some(toml::Value::String(url)) => Ok(Some(url.clone())),
        Some(_) => Err(CliError::Usage(format!("{shown}: database.url must be a string"))),
    }
}

/// The libpq variables as a `key=value` string, if one of those that say where is set.
fn libpq_variables(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    const WHERE: [&str; 4] = ["PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE"];
    const ALL: [(&str, &str); 8] = [
        ("PGHOST", "host"),
        ("PGHOSTADDR", "hostaddr"),
        ("PGPORT", "port"),
        ("PGDATABASE", "dbname"),
        ("PGUSER", "user"),
        ("PGPASSWORD", "password"),
        ("PGSSLMODE", "sslmode"),
        ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ];
    WHERE.iter().find_map(|name| variable(name))?;
    let quote = |value: String| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"));
    let pairs =
        ALL.iter().filter_map(|(name, key)| variable(name).map(|value| format!("{key}={}", quote(value))));
    Some(pairs.collect::<Vec<_>>().join(" "))
}

/// Reads a job file into what `job_submit` takes: the same keys.
/// SEAM: becomes `crate::jobfile::parse(name, text, nodes)` and `JobFile::to_submission()`, which know lines and
/// columns and find all mistakes at once; until then the catalog's function finds them, one at a time.
///
/// # Errors
/// The mistakes, each rendered.
pub fn parse_job_file(name: &str, text: &str) -> Result<Value, Vec<String>> {
    if name.ends_with(".json") {
        return serde_json::from_str(text)
            .map_err(|e| vec![format!("{name}:{}:{}: {e}", e.line(), e.column())]);
    }
    let table: toml::Table = toml::from_str(text).map_err(|e| {
        let before = &text[..e.span().map_or(0, |span| span.start)];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        vec![format!("{name}:{line}:{column}: {}", e.message())]
    })?;
    Ok(json_of(toml::Value::Table(table)))
}

/// TOML as JSON: moments become their text.
fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => Value::from(number),
        toml::Value::Boolean(truth) => Value::Bool(truth),
        toml::Value::Datetime(moment) => Value::String(moment.to_string()),
        toml::Value::Array(items) => Value::Array(items.into_iter().map(json_of).collect()),
        toml::Value::Table(table) => Value::Object(table.into_iter().map(|(k, v)| (k, json_of(v))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libpq_variables_make_a_target_only_if_one_says_where() {
        let set = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        assert_eq!(libpq_variables(set(&[("PGUSER", "a"), ("PGPASSWORD", "p")])), None);
        let target = libpq_variables(set(&[("PGHOST", "db"), ("PGPASSWORD", "it's")])).unwrap();
        assert_eq!(target, "host='db' password='it\\'s'");
        assert_eq!(
            target.parse::<tokio_postgres::Config>().unwrap().get_password(),
            Some(b"it's".as_slice())
        );
    }

    #[test]
    fn a_broken_job_file_is_placed() {
        let mistakes = parse_job_file("a.toml", "description = \"x\"\n[[task]\n").unwrap_err();
        assert!(mistakes[0].starts_with("a.toml:2:"), "{mistakes:?}");
        let job =
            parse_job_file("a.toml", "[[task]]\nname = \"t\"\nnot_before = 2026-12-01T08:00:00Z\n").unwrap();
        assert_eq!(job["task"][0]["not_before"], "2026-12-01T08:00:00Z");
    }
}
