//! Running a command outside a transaction: at least once across a crash, and made safe by `verify` and `undo`.
//!
//! ```text
//!   claim flushed ─▶ first attempt? ─ no ─▶ verify ─ true ─▶ done
//!                        │ yes                │ false
//!                        ▼                    ▼
//!                     command ◀──────────── undo
//! ```
//! No record proves what such a command has done, so whatever came before it counts as a doubt: a failed index build
//! leaves an invalid index as well as an interrupted one does.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::executor::{Ended, How, Nudge, Run, failed, refusal_of};
use super::runner::Runner;
use crate::db::outside::{identifier, is_done, is_invalid, says_yes};
use crate::messages::Flush;
use crate::model::Outcome;
use crate::sql::{self, BuiltIndex};

/// SQLSTATE duplicate_table, PostgreSQL's own for an index of that name: somebody must look, no retry will mend it.
const IN_THE_WAY: &str = "42P07";

impl Run<'_> {
    /// Runs the command, and what must come before and after.
    pub(super) async fn outside(
        &self,
        session: &mut dyn Runner,
        deadline: Option<(Instant, Duration)>,
        nudges: &mut watch::Receiver<Nudge>,
    ) -> Ended {
        // A crash of home that forgets the claim would not undo what the command has done. Elsewhere it is flushed
        // already.
        if self.task.site.is_none() && !self.peers.flush.send(Flush).await.unwrap_or(false) {
            let message = "home did not confirm the claim".to_owned();
            return Ended::Certain(Outcome::Interrupted { revoked: false, message });
        }
        if self.task.attempt > 1 {
            if let Some(verify) = &self.task.verify {
                let Some(query) = sql::sole_statement(verify) else {
                    return failed(
                        "42601",
                        "verify: ERROR: it must be one query that yields true or false".to_owned(),
                    );
                };
                let question = is_done(query);
                match self.beside("verify", &question, session, deadline, nudges).await {
                    Ok(said) if says_yes(&said) => {
                        let message = "verify: it was done already".to_owned();
                        return Ended::Certain(Outcome::Done { message, recorded: false });
                    }
                    Ok(_) => {}
                    Err(ended) => return ended,
                }
            }
            if let Some(undo) = &self.task.undo
                && let Err(ended) = self.beside("undo", undo, session, deadline, nudges).await
            {
                return ended;
            }
        }
        let ended = self.watched(session, How::Outside(&self.task.command), deadline, nudges).await;
        match (sql::kept_index(&self.task.command), &ended) {
            (Some(index), Ended::Certain(Outcome::Done { message, .. })) => {
                let question = is_invalid(&index);
                match self.beside("looking at the index", &question, session, deadline, nudges).await {
                    Ok(said) if says_yes(&said) => {
                        failed(IN_THE_WAY, format!("{message}\n{}", useless(&index)))
                    }
                    Ok(_) => ended,
                    Err(ended) => ended,
                }
            }
            _ => ended,
        }
    }

    /// Runs what is not the command itself; answers what the server said, or how the attempt ends without success.
    async fn beside(
        &self,
        what: &str,
        sql: &str,
        session: &mut dyn Runner,
        deadline: Option<(Instant, Duration)>,
        nudges: &mut watch::Receiver<Nudge>,
    ) -> Result<String, Ended> {
        if let Err(refusal) = sql::inspect_lenient(sql) {
            let (sqlstate, message) = refusal_of(&refusal);
            return Err(failed(sqlstate, format!("{what}: {message}")));
        }
        match self.watched(session, How::Outside(sql), deadline, nudges).await {
            Ended::Certain(Outcome::Done { message, .. }) => Ok(message),
            Ended::Certain(Outcome::Failed { sqlstate, message, revoked }) => {
                let message = format!("{what}: {message}");
                Err(Ended::Certain(Outcome::Failed { sqlstate, message, revoked }))
            }
            ended @ (Ended::Certain(Outcome::Interrupted { .. } | Outcome::Withdrawn)
            | Ended::Doubt { .. }) => Err(ended),
        }
    }
}

fn useless(index: &BuiltIndex) -> String {
    let name = match &index.schema {
        Some(schema) => format!("{}.{}", identifier(schema), identifier(&index.name)),
        None => identifier(&index.name),
    };
    format!(
        "ERROR: index {name} exists but is invalid: an earlier build of it was cut short\n\
         HINT: Drop it with DROP INDEX CONCURRENTLY {name} and retry the task; a task's `undo` can do that before each new attempt."
    )
}
