//! Where results, warnings and errors go: tables or JSON on standard output, everything else on standard error.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Row, Table, presets};
use serde::Serialize;

use super::CliError;
use super::text::{inert, inert_lines};
use crate::model::{JobStatus, TaskStatus};

/// The narrowest table that is attempted.
const MIN_WIDTH: u16 = 40;
/// The widest line that is used for anything but commands and messages, so that columns stay near each other.
const MAX_WIDTH: u16 = 200;

/// The shape of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb.
    Auto,
    /// In any case.
    Always,
    /// Never.
    Never,
}

/// What is known about the two streams.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// The shape of results.
    pub format: Format,
    /// Colour on standard output.
    pub colour: bool,
    /// Colour on standard error.
    pub colour_err: bool,
    /// Is standard error a terminal, so that live progress makes sense?
    pub live: bool,
    /// Columns to fit tables into; none: as wide as they get (for pipes).
    pub width: Option<u16>,
}

impl Output {
    /// Looks at the streams and the environment.
    pub fn new(format: Format, choice: ColorChoice) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let allowed = !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let colour = |is_terminal: bool| match choice {
            ColorChoice::Auto => is_terminal && allowed,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        let live = std::io::stderr().is_terminal();
        let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let terminal = std::io::stdout().is_terminal();
        let width = if terminal { Table::new().width().or(columns) } else { columns };
        Self {
            format,
            colour: colour(terminal),
            colour_err: colour(live),
            live: live && allowed_motion(),
            width: width.map(|w: u16| w.clamp(MIN_WIDTH, MAX_WIDTH)),
        }
    }

    /// Is JSON wanted?
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints one JSON document.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn json(&self, value: &impl Serialize) -> Result<(), CliError> {
        let mut text = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
        text.push('\n');
        self.write(&text)
    }

    /// Prints a line, or several; the text must be inert already.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn line(&self, text: &str) -> Result<(), CliError> {
        self.write(&format!("{text}\n"))
    }

    /// Prints text as it is.
    ///
    /// # Errors
    /// If standard output cannot be written; [`CliError::OutputClosed`] if nobody reads it.
    pub fn write(&self, text: &str) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Says something on standard error that is neither result nor error.
    pub fn warn(&self, text: &str) {
        self.tell("warning:", "33", text);
    }

    /// Reports a failure of the work, which is not an error of the command.
    pub fn fail(&self, text: &str) {
        self.tell("error:", "31", text);
    }

    /// Reports the error that ended the command, and what to do about it.
    pub fn complain(&self, e: &CliError) {
        match e {
            CliError::OutputClosed => return,
            CliError::Mistakes(mistakes) => mistakes.iter().for_each(|m| self.tell("error:", "31", m)),
            _ => self.tell("error:", "31", &e.to_string()),
        }
        if let Some(hint) = e.hint() {
            self.tell("hint:", "36", &hint);
        }
    }

    fn tell(&self, label: &str, colour: &str, text: &str) {
        let text = inert_lines(text);
        // There is nowhere left to report that standard error is closed.
        let _ = if self.colour_err {
            writeln!(std::io::stderr(), "\u{1b}[1;{colour}m{label}\u{1b}[0m {text}")
        } else {
            writeln!(std::io::stderr(), "{label} {text}")
        };
    }

    /// Lays out rows under titles, one line each, cut to the width.
    pub fn table(&self, titles: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(self.width.unwrap_or(u16::MAX));
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(titles.iter().map(|title| Cell::new(title.to_uppercase())));
        for cells in rows {
            let mut row = Row::from(cells);
            row.max_height(1);
            table.add_row(row);
        }
        let last = titles.len().saturating_sub(1);
        for (i, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if i == last { 0 } else { 2 }));
        }
        table.trim_fmt()
    }
}

/// A dumb terminal shows the tricks of a progress bar as rubbish.
fn allowed_motion() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A cell of text that may have come from anywhere.
pub fn cell(text: impl AsRef<str>) -> Cell {
    Cell::new(inert(text.as_ref()))
}

/// A cell of text that may be missing.
pub fn maybe(text: Option<&str>) -> Cell {
    cell(text.unwrap_or("-"))
}

/// A cell of a number, flush right.
pub fn number(text: impl std::fmt::Display) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// A job's state in its colour.
pub fn job_cell(state: JobStatus) -> Cell {
    let colour = match state {
        JobStatus::Finished => Color::Green,
        JobStatus::Failed | JobStatus::Failing => Color::Red,
        JobStatus::Running => Color::Cyan,
        JobStatus::Cancelling | JobStatus::Cancelled => Color::Yellow,
        JobStatus::Scheduled => return Cell::new(state),
    };
    Cell::new(state).fg(colour)
}

/// A task's status in its colour.
pub fn task_cell(status: TaskStatus) -> Cell {
    let colour = match status {
        TaskStatus::Done => Color::Green,
        TaskStatus::Error => Color::Red,
        TaskStatus::Running => Color::Cyan,
        TaskStatus::Cancelling | TaskStatus::Cancelled | TaskStatus::Unscheduled => Color::Yellow,
        TaskStatus::Blocked | TaskStatus::Runnable => return Cell::new(status),
    };
    Cell::new(status).fg(colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(width: Option<u16>, colour: bool) -> Output {
        Output { format: Format::Table, colour, colour_err: colour, live: false, width }
    }

    fn sample(output: Output) -> String {
        let long = "a description that goes on and on ".repeat(8);
        let rows = (1..4).map(|i| vec![number(i), job_cell(JobStatus::Failed), cell("alice"), cell(&long)]);
        output.table(&["job", "state", "owner", "description"], rows)
    }

    #[test]
    fn tables_fit_80_and_200_columns_with_one_line_a_row() {
        for width in [80_u16, 120, 200] {
            let text = sample(output(Some(width), false));
            assert_eq!(text.lines().count(), 4, "{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
            assert!(text.contains("failed"), "{text}");
            assert!(text.contains('…'), "{text}");
        }
    }

    #[test]
    fn a_pipe_gets_everything_and_no_colour() {
        let text = sample(output(None, false));
        assert!(text.contains(&"a description that goes on and on ".repeat(7)));
        assert!(!text.contains('\u{1b}'));
        assert!(sample(output(Some(80), true)).contains('\u{1b}'));
    }
}
