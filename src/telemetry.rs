//! Logging: one subscriber for the process, to standard error.
//!
//! `main` calls [`start`] once, before anything may log, and keeps the [`Telemetry`]; the Reload path uses it to change
//! the filter. Human output is one line an event whatever a field holds: control characters (a task's message may
//! carry any) are written as escapes, so that nobody forges lines or steers a terminal. Colour only on a terminal.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::settings::{Log, LogFormat};

/// Logging could not be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one.
    #[error("log.level = {directive:?} is not a filter: write a level, or target=level directives")]
    Filter {
        /// The text that was given.
        directive: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// Somebody has already set a subscriber for this process.
    #[error("logging is already set up")]
    AlreadyStarted(#[from] TryInitError),
    /// The subscriber has gone, at the very end of the process.
    #[error("logging has ended")]
    Ended(#[from] reload::Error),
}

/// The handle by which a reload changes what is logged.
#[derive(Clone, Debug)]
pub struct Telemetry {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Telemetry {
    /// Puts new filter directives (`log.level`) into effect, for every thread at once.
    ///
    /// # Errors
    /// Fails, and leaves the filter as it is, if `directive` is no filter.
    pub fn set_level(&self, directive: &str) -> Result<(), TelemetryError> {
        Ok(self.filter.reload(filter(directive)?)?)
    }
}

/// Sets up logging for the whole process.
///
/// # Errors
/// Fails if `log.level` is no filter, or if logging has been set up before.
pub fn start(log: &Log) -> Result<Telemetry, TelemetryError> {
    let colour = may_colour(io::stderr().is_terminal(), |name| std::env::var(name).ok());
    let (subscriber, telemetry) = build(log, colour, io::stderr)?;
    subscriber.try_init()?;
    Ok(telemetry)
}

/// Decides on colour: a terminal that knows it, and no wish against it (<https://no-color.org>).
fn may_colour(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let unwanted = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let unable = variable("TERM").is_some_and(|terminal| terminal == "dumb");
    is_terminal && !unwanted && !unable
}

fn filter(directive: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(directive)
        .map_err(|source| TelemetryError::Filter { directive: directive.to_owned(), source })
}

fn build<W>(
    log: &Log,
    colour: bool,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync + 'static, Telemetry), TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(&log.level)?);
    // `log_internal_errors` would report a closed standard error by `eprintln!`, which panics there.
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
    let lines = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        LogFormat::Human => lines.with_ansi(colour).fmt_fields(fields()).boxed(),
    };
    Ok((tracing_subscriber::registry().with(filter).with(lines), Telemetry { filter: handle }))
}

/// Writes fields as `message key=value`, every one inert.
fn fields() -> impl for<'w> tracing_subscriber::fmt::FormatFields<'w> + Send + Sync + 'static {
    debug_fn(|writer, field, value| {
        let mut inert = Inert(writer);
        match field.name() {
            "message" => write!(inert, "{value:?}"),
            name => write!(inert, "{}={value:?}", name.strip_prefix("r#").unwrap_or(name)),
        }
    })
    .delimited(" ")
}

/// Passes text on with control characters, and those that reorder text, as escapes.
struct Inert<'a, W>(&'a mut W);

impl<W: Write> Write for Inert<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| self.write_char(character))
    }

    fn write_char(&mut self, character: char) -> fmt::Result {
        if is_unsafe(character) {
            write!(self.0, "{}", character.escape_default())
        } else {
            self.0.write_char(character)
        }
    }
}

/// Control characters (C0, DEL, C1), line and paragraph separators, and bidirectional controls (Unicode UAX #9).
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
