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

/// What libraries say at info is no news to an operator, and names paths of the machine that built us. A directive of
/// the user's own that names the library wins.
const QUIET: &str = "refinery_core=warn,actix_server=warn";

fn filter(directive: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(format!("{QUIET},{directive}"))
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A writer whose lines a test can read.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Runs `events` under a subscriber of its own and returns what was written.
    fn logged(
        format: LogFormat,
        level: &str,
        colour: bool,
        events: impl FnOnce(&Telemetry, &Lines),
    ) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = Log { format, level: level.to_owned() };
        let (subscriber, telemetry) = build(&log, colour, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || events(&telemetry, &lines));
        lines.take()
    }

    #[test]
    fn a_human_line_has_level_span_message_and_fields() {
        let text = logged(LogFormat::Human, "info", false, |_, _| {
            let _span = tracing::info_span!("attempt", job.id = 7, r#type = "sql").entered();
            tracing::info!(rows = 3, name = "x", "task ended");
        });
        assert!(text.contains(" INFO attempt{job.id=7 type=\"sql\"}: "), "{text}");
        assert!(text.ends_with(": task ended rows=3 name=\"x\"\n"), "{text}");
    }

    #[test]
    fn control_characters_cannot_forge_lines_or_steer_a_terminal() {
        let evil = "a\n2026 ERROR b\r\u{1b}[2J\u{7}\u{9b}1m\u{202e}\u{2028}é";
        for colour in [false, true] {
            let text = logged(LogFormat::Human, "info", colour, |_, _| {
                let _span = tracing::info_span!("s", owner = %evil).entered();
                tracing::info!(%evil, debug = ?evil, "{evil}");
            });
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(!text.contains(['\r', '\u{7}', '\u{9b}', '\u{202e}', '\u{2028}']), "{text:?}");
            assert!(!text.contains("\u{1b}[2J") && text.contains("\\u{1b}[2J"), "{text:?}");
            assert!(text.contains('é'), "{text:?}");
        }
    }

    #[test]
    fn json_is_one_valid_object_a_line_with_the_span() {
        let text = logged(LogFormat::Json, "info", true, |_, _| {
            let _span = tracing::info_span!("attempt", job.id = 7).entered();
            tracing::warn!(rows = 3, "two\nlines");
        });
        assert_eq!(text.lines().count(), 1);
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["message"], "two\nlines");
        assert_eq!(object["rows"], 3);
        assert_eq!(object["span"]["job.id"], 7);
    }

    #[test]
    fn the_level_changes_while_running_and_a_bad_one_changes_nothing() {
        logged(LogFormat::Human, "warn", false, |telemetry, lines| {
            tracing::info!("quiet");
            assert_eq!(lines.take(), "");
            telemetry.set_level("info").unwrap();
            tracing::info!("loud");
            assert!(lines.take().contains("loud"));
            let error = telemetry.set_level("a=loud").unwrap_err();
            assert!(error.to_string().starts_with("log.level = \"a=loud\" is not a filter"), "{error}");
            tracing::info!("still loud");
            assert!(lines.take().contains("still loud"));
        });
    }

    #[test]
    fn a_bad_level_is_refused_at_the_start() {
        let log = Log { level: "a=loud".to_owned(), ..Log::default() };
        assert!(matches!(start(&log), Err(TelemetryError::Filter { .. })));
    }

    #[test]
    fn colour_only_where_it_is_wanted_and_understood() {
        let with = |name: &'static str, value: &'static str| {
            may_colour(true, move |wanted| (wanted == name).then(|| value.to_owned()))
        };
        assert!(may_colour(true, |_| None));
        assert!(!may_colour(false, |_| None));
        assert!(!with("NO_COLOR", "1"));
        assert!(with("NO_COLOR", ""));
        assert!(!with("TERM", "dumb"));
        let plain = logged(LogFormat::Human, "info", false, |_, _| tracing::info!("x"));
        assert!(!plain.contains('\u{1b}'), "{plain:?}");
        let coloured = logged(LogFormat::Human, "info", true, |_, _| tracing::info!("x"));
        assert!(coloured.contains('\u{1b}'), "{coloured:?}");
    }
}
