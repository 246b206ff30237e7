//! Reads from the server's replies how an attempt ended. Pure: the one place that decides it.
//!
//! A transactional attempt is five messages; each is a phase that the server ends with a ReadyForQuery:
//!
//! ```text
//! 0 BEGIN; SET LOCAL …; the command
//! 1 SET CONSTRAINTS ALL IMMEDIATE; CLOSE ALL; SET LOCAL …
//! 2 SELECT … yardmaster.complete(…)
//! 3 COMMIT
//! 4 RESET ALL; DEALLOCATE ALL; …    (says nothing about the attempt)
//! ```
//! Only the answer to COMMIT makes it certain. `COMMIT` of a failed transaction succeeds with the tag `ROLLBACK`,
//! and without a transaction (its BEGIN never ran, because the text does not parse) even with `COMMIT`: so an error
//! in an earlier phase decides first.

use super::attempt::AttemptEnd;
use super::replies::{Heard, Phase, TransactionStatus};
use crate::model::Report;

/// The phase of the command.
pub const COMMAND: usize = 0;
const CONSTRAINTS: usize = 1;
const COMPLETE: usize = 2;
const COMMIT: usize = 3;
/// The phases whose notices belong to the message: all but the reset.
pub const TRANSACTIONAL_PHASES: usize = 4;

/// Of `feature_not_supported`: permanent by default, a human must change the command.
const NOT_SUPPORTED: &str = "0A000";
const UNIQUE_VIOLATION: &str = "23505";

/// What is known beside the replies.
#[derive(Debug)]
pub struct Circumstances<'a> {
    /// The command's text, to say where an error points.
    pub command: &'a str,
    /// How many characters of ours stand in front of it in its message.
    pub prefix_chars: usize,
    /// What `yardmaster.complete` returned.
    pub recorded: Option<bool>,
    /// The FATAL or PANIC that ended the session.
    pub fatal: Option<Report>,
    /// The server asked for COPY data.
    pub copy_in: bool,
    /// Why the connection ended, if it did.
    pub end: Option<String>,
}

/// Judges a transactional attempt.
pub fn of_transactional(heard: Heard, around: &Circumstances<'_>) -> AttemptEnd {
    let phase = |number| heard.phase(number).cloned().unwrap_or_default();
    let (command, constraints, complete, commit) =
        (phase(COMMAND), phase(CONSTRAINTS), phase(COMPLETE), phase(COMMIT));
    if around.copy_in {
        return copied_in(heard);
    }
    if commit.status.is_none() {
        return doubt(heard, around);
    }
    if let Some(error) = command.error {
        return failed(heard, at_command(error, around), around.command);
    }
    let committed = commit.error.is_none() && commit.tag.as_deref() == Some("COMMIT");
    let recorded = around.recorded == Some(true) && complete.error.is_none();
    if heard.ended_transaction || command.status != Some(TransactionStatus::Open) {
        // A record that stands must not be contradicted, even this one.
        if !(committed && recorded) {
            return ended_by_itself(heard);
        }
    }
    if let Some(error) = constraints.error {
        return failed(heard, Report { position: None, ..error }, "");
    }
    match complete.error {
        Some(error) if error.sqlstate == UNIQUE_VIOLATION => return revoked(heard),
        Some(error) => return failed(heard, Report { position: None, ..error }, ""),
        None => {}
    }
    if let Some(error) = commit.error {
        return failed(heard, error, "");
    }
    match around.recorded {
        Some(recorded) if committed => {
            AttemptEnd::Committed { recorded, message: heard.transcript.finish(None) }
        }
        _ => doubt(heard, around),
    }
}

/// Judges a command that ran outside a transaction of ours: phase 0 alone.
pub fn of_plain(heard: Heard, around: &Circumstances<'_>) -> AttemptEnd {
    if around.copy_in {
        return copied_in(heard);
    }
    let Phase { error, status, .. } = heard.phase(COMMAND).cloned().unwrap_or_default();
    match (status, error) {
        (None, _) => doubt(heard, around),
        (Some(_), Some(error)) => failed(heard, at_command(error, around), around.command),
        (Some(TransactionStatus::Idle), None) => {
            AttemptEnd::Succeeded { message: heard.transcript.finish(None) }
        }
        (Some(TransactionStatus::Open | TransactionStatus::Aborted), None) => ended_by_itself(heard),
    }
}

/// Moves the position of an error from the message to the command in it.
fn at_command(error: Report, around: &Circumstances<'_>) -> Report {
    let position = error.position.and_then(|p| p.checked_sub(around.prefix_chars)).filter(|p| *p > 0);
    Report { position, ..error }
}

fn failed(heard: Heard, error: Report, command: &str) -> AttemptEnd {
    let message = heard.transcript.finish(Some(&error.render_in(command)));
    AttemptEnd::Failed { sqlstate: error.sqlstate, message }
}

/// The safety net behind the parser, which refuses such commands before anything runs.
fn ended_by_itself(heard: Heard) -> AttemptEnd {
    let words = "ERROR: the command begins or ends a transaction by itself, so what it did may be committed or not\n\
                 HINT: Remove BEGIN, COMMIT, ROLLBACK and PREPARE TRANSACTION from it.\n";
    AttemptEnd::Failed { sqlstate: NOT_SUPPORTED.into(), message: heard.transcript.finish(Some(words)) }
}

/// Certain although the connection ends: a server that waits for COPY data meets our next message or the end of the
/// connection instead, and both make it fail. A safety net too.
fn copied_in(heard: Heard) -> AttemptEnd {
    let words = "ERROR: the command copies from the client, which has no data to send\n\
                 HINT: Use INSERT, or COPY from a file or program on the server.\n";
    AttemptEnd::Failed { sqlstate: NOT_SUPPORTED.into(), message: heard.transcript.finish(Some(words)) }
}

fn revoked(heard: Heard) -> AttemptEnd {
    let words =
        "the completion record was refused: its key is taken, so the attempt was revoked or made before\n";
    AttemptEnd::Doubt { fatal: None, message: heard.transcript.finish(Some(words)) }
}

fn doubt(heard: Heard, around: &Circumstances<'_>) -> AttemptEnd {
    let said = around.fatal.as_ref().map(|fatal| fatal.render());
    let why = around.end.as_deref().unwrap_or("no answer that makes sense");
    let words = format!("{}the outcome is not known here: {why}\n", said.unwrap_or_default());
    AttemptEnd::Doubt {
        fatal: around.fatal.as_ref().map(|fatal| (fatal.sqlstate.clone(), fatal.text.clone())),
        message: heard.transcript.finish(Some(&words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::replies::Replies;
    use TransactionStatus::{Aborted, Idle, Open};

    fn error(sqlstate: &str) -> Report {
        Report {
            severity: "ERROR".into(),
            sqlstate: sqlstate.into(),
            text: "x".into(),
            position: Some(13),
            ..Report::default()
        }
    }

    /// Each phase as (tag, SQLSTATE, status); an empty string is none.
    fn judge(phases: &[(&str, &str, TransactionStatus)], recorded: Option<bool>) -> AttemptEnd {
        let mut replies = Replies::default();
        replies.begin_attempt(1024, 0, TRANSACTIONAL_PHASES);
        for (tag, sqlstate, status) in phases {
            if !sqlstate.is_empty() {
                replies.error(error(sqlstate));
            }
            if !tag.is_empty() {
                replies.tag((*tag).into());
            }
            replies.ready(*status);
        }
        let around = Circumstances {
            command: "ab\ncd",
            prefix_chars: 10,
            recorded,
            fatal: None,
            copy_in: false,
            end: None,
        };
        of_transactional(replies.end_attempt().unwrap(), &around)
    }

    fn failed_with(end: &AttemptEnd, state: &str) -> bool {
        matches!(end, AttemptEnd::Failed { sqlstate, .. } if sqlstate == state)
    }

    #[test]
    fn only_the_answer_to_commit_makes_it_certain() {
        let all = [("INSERT 0 1", "", Open), ("SET", "", Open), ("SELECT 1", "", Open), ("COMMIT", "", Idle)];
        assert_eq!(
            judge(&all, Some(true)),
            AttemptEnd::Committed { recorded: true, message: "INSERT 0 1".into() }
        );
        for answered in 0..4 {
            assert!(matches!(judge(&all[..answered], Some(true)), AttemptEnd::Doubt { .. }), "{answered}");
        }
        assert!(matches!(judge(&all, None), AttemptEnd::Doubt { .. }));
    }

    #[test]
    fn the_first_error_is_the_tasks_own() {
        let rolled_back = ("ROLLBACK", "", Idle);
        let echo = ("", "25P02", Aborted);
        let ok = ("SET", "", Open);
        let end = judge(&[("", "22012", Aborted), echo, echo, rolled_back], None);
        let message = "ERROR: x\nPOSITION: 3 (line 1, column 3)".to_owned();
        assert_eq!(end, AttemptEnd::Failed { sqlstate: "22012".into(), message });
        assert!(failed_with(&judge(&[ok, ("", "23503", Aborted), echo, rolled_back], None), "23503"));
        assert!(failed_with(&judge(&[ok, ok, ("", "YM001", Aborted), rolled_back], None), "YM001"));
        assert!(failed_with(
            &judge(&[ok, ok, ("SELECT 1", "", Open), ("", "40001", Idle)], Some(true)),
            "40001"
        ));
    }

    #[test]
    fn a_text_that_does_not_parse_failed_although_commit_says_commit() {
        let end = judge(
            &[("", "42601", Idle), ("SET", "", Idle), ("SELECT 1", "", Idle), ("COMMIT", "", Idle)],
            Some(false),
        );
        assert!(failed_with(&end, "42601"), "{end:?}");
    }

    #[test]
    fn a_refused_record_is_a_doubt_and_an_own_commit_a_failure() {
        let ok = ("SET", "", Open);
        let end = judge(&[ok, ok, ("", "23505", Aborted), ("ROLLBACK", "", Idle)], None);
        assert!(matches!(end, AttemptEnd::Doubt { fatal: None, .. }), "{end:?}");
        for command in [("COMMIT", "", Open), ("SELECT 1", "", Idle)] {
            let all = [command, ok, ok, ("COMMIT", "", Idle)];
            let end = judge(&all, Some(false));
            assert!(failed_with(&end, NOT_SUPPORTED), "{end:?}");
            assert!(matches!(judge(&all, Some(true)), AttemptEnd::Committed { recorded: true, .. }));
        }
    }
}
