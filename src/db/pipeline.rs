//! Statements that travel together: all are sent before the first answer is awaited.
//!
//! tokio-postgres sends a request when its future is first polled; polling a list in order sends it in order. An error
//! aborts the transaction on the server, what follows it there says nothing, so the first error is the one to tell.

use std::pin::Pin;
use std::task::Poll;

use futures::future::{BoxFuture, FutureExt, MaybeDone, maybe_done, poll_fn};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::error::DbError;

type Answer<'a> = MaybeDone<BoxFuture<'a, Result<Vec<Row>, Error>>>;

/// A list of statements on one connection, to be sent in one go.
pub struct Pipeline<'a> {
    client: &'a Client,
    steps: Vec<(&'static str, Answer<'a>)>,
}

/// Where the answer of a statement will be found.
#[derive(Clone, Copy, Debug)]
pub struct Step(usize);

/// The answers of a pipeline that succeeded as a whole.
#[derive(Debug)]
pub struct Answers(Vec<Vec<Row>>);

impl<'a> Pipeline<'a> {
    /// An empty list.
    pub fn new(client: &'a Client) -> Self {
        Pipeline { client, steps: Vec::with_capacity(16) }
    }

    /// Adds SQL without parameters and without an answer, such as BEGIN; `context` names it in an error.
    pub fn batch(&mut self, context: &'static str, sql: &'static str) {
        let client = self.client;
        let future = async move { client.batch_execute(sql).await.map(|()| Vec::new()) };
        self.steps.push((context, maybe_done(future.boxed())));
    }

    /// Adds a prepared statement; `context` names it in an error.
    pub fn query(
        &mut self,
        context: &'static str,
        statement: &'a Statement,
        params: &[&'a (dyn ToSql + Sync)],
    ) -> Step {
        let (client, params) = (self.client, params.to_vec());
        let future = async move { client.query(statement, &params).await };
        self.steps.push((context, maybe_done(future.boxed())));
        Step(self.steps.len() - 1)
    }

    /// Sends everything and waits for every answer.
    ///
    /// # Errors
    /// The first one in order.
    pub async fn run(mut self) -> Result<Answers, DbError> {
        poll_fn(|cx| {
            let mut pending = false;
            for (_, step) in &mut self.steps {
                pending |= Pin::new(step).poll(cx).is_pending();
            }
            if pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let mut answers = Vec::with_capacity(self.steps.len());
        for (context, step) in &mut self.steps {
            let answer = Pin::new(step).take_output().expect("every step was polled to its end");
            answers.push(answer.map_err(DbError::postgres(context))?);
        }
        Ok(Answers(answers))
    }
}

impl Answers {
    /// Takes the rows of a step; none for a step that was not part of the pipeline.
    pub fn take(&mut self, step: Option<Step>) -> Vec<Row> {
        step.map(|Step(i)| std::mem::take(&mut self.0[i])).unwrap_or_default()
    }
}
