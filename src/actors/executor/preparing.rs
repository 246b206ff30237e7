//! What some attempts need before their command is sent: a folder for the output file, a scratch schema.

use tokio::sync::watch;
use tokio::time::Instant;

use super::super::runner::Runner;
use super::{Ended, How, Nudge, REFUSED, Run, failed};
use crate::db::{AttemptEnd, Output};
use crate::messages::{PrepareOutput, UseScratch};
use crate::model::{Outcome, is_output_name};

/// SQLSTATE of trouble with output files.
const IO_ERROR: &str = "58030";

impl Run<'_> {
    /// Runs a `COPY … TO STDOUT` into a file in the job's folder.
    pub(super) async fn copy_out(
        &self,
        session: &mut dyn Runner,
        name: &str,
        nudges: &mut watch::Receiver<Nudge>,
    ) -> Ended {
        let prepared = self.peers.output.send(PrepareOutput(self.task.job)).await;
        let (folder, max_bytes) = match prepared {
            Ok(Ok(prepared)) if is_output_name(name) => prepared,
            Ok(Ok(_)) => {
                return failed(
                    REFUSED,
                    format!("ERROR: \"{name}\" is not the name of a file in the folder of the job"),
                );
            }
            Ok(Err(message)) => return failed(IO_ERROR, format!("ERROR: {message}")),
            // The Ledger is gone, and the process is ending.
            Err(e) => return Ended::Certain(Outcome::Interrupted { revoked: false, message: e.to_string() }),
        };
        let output = Output { folder, name: name.to_owned(), max_bytes };
        let deadline = self.task.timeout.map(|t| (Instant::now() + t, t));
        self.watched(session, How::ToFile(&output), deadline, nudges).await
    }

    /// Records the use of the job's scratch schema, then makes it. What it takes is bounded; nudges are heard afterwards.
    pub(super) async fn use_scratch(&self, session: &mut dyn Runner) -> Result<(), AttemptEnd> {
        let (task, attempt, node) = (self.task.task, self.task.attempt, self.node.to_owned());
        let recorded =
            self.peers.scratch.send(UseScratch { task, attempt, node, site: self.task.site }).await;
        match recorded {
            Ok(Ok(schema)) => session.use_scratch(&schema).await,
            Ok(Err(message)) => Err(AttemptEnd::NotSent { message }),
            // The Ledger is gone, and the process is ending.
            Err(e) => Err(AttemptEnd::NotSent { message: e.to_string() }),
        }
    }
}
