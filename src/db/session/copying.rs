//! A run whose COPY data goes to a file.

use futures::join;
use tokio::time::timeout;

use super::super::attempt::{AttemptEnd, Completion, Order};
use super::super::output::{Output, OutputError, Saving};
use super::super::replies::lock;
use super::super::verdict::{self, Circumstances, TRANSACTIONAL_PHASES};
use super::{RESET_LIMIT, SETTLE, Session, complete};

impl Session {
    /// Runs a single `COPY … TO STDOUT` in one transaction, as [`Session::run_transactional`] does, and streams what it sends to
    /// a file. The file has its name before the transaction commits, so what is done has its file.
    pub async fn run_output(
        &mut self,
        order: &Order<'_>,
        completion: &Completion,
        output: &Output,
    ) -> AttemptEnd {
        if let Some(end) = self.refuse(order) {
            return end;
        }
        let (mut saving, sink) = match Saving::begin(output, &order.name).await {
            Ok(begun) => begun,
            Err(e) => return no_output(&e),
        };
        let mut text = String::from("BEGIN; ");
        let settings = self.write_settings("SET LOCAL", order, &mut text);
        let prefix_chars = text.len(); // all ASCII
        text.push_str(order.command);

        self.begin_run(1 + settings, TRANSACTIONAL_PHASES);
        lock(&self.replies).sink = Some(sink);
        let canceller = self.canceller();
        let client = &self.client;
        let sent = {
            let command = client.batch_execute(&text);
            tokio::pin!(command);
            tokio::select! {
                sent = &mut command => sent,
                () = saving.trouble() => {
                    // Nobody wants the rest. Should the request not arrive, the rest is dropped.
                    let _ = canceller.cancel().await;
                    command.await
                }
            }
        };
        // The writer ends with the sink.
        lock(&self.replies).sink = None;
        let saved = match sent {
            Ok(()) => Some(saving.finish().await),
            // It was cut short by the trouble that finish tells, or it failed by itself.
            Err(_) => saving.finish_failed().await.map(Err),
        };
        if let Some(Err(e)) = &saved {
            let _ = timeout(RESET_LIMIT, self.client.batch_execute("ROLLBACK")).await;
            self.end_run(false, prefix_chars, order, |_, _| no_output(e))
        } else {
            let work = async {
                join!(
                    self.client.batch_execute(SETTLE),
                    complete(&self.client, order, completion),
                    self.client.batch_execute("COMMIT"),
                )
                .1
            };
            let recorded = work.await;
            let end = self.end_run(false, prefix_chars, order, |heard, around| {
                verdict::of_transactional(heard, &Circumstances { recorded, ..around })
            });
            match (end, saved) {
                (AttemptEnd::Committed { recorded, message }, Some(Ok(bytes))) => AttemptEnd::Committed {
                    recorded,
                    message: format!("{message}\noutput: {}, {bytes} bytes", output.name),
                },
                (end, _) => end,
            }
        }
    }
}

fn no_output(error: &OutputError) -> AttemptEnd {
    let message = format!("ERROR: {error}\nHINT: {}", error.hint());
    AttemptEnd::Failed { sqlstate: error.sqlstate().to_owned(), message }
}
