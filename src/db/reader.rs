//! The page's connections: a few, bounded in number, in waiting and in time.
//!
//! They are not the leader's: a page that is slow or asks for much can never hold up a turn. Reading sessions are
//! read-only by the server's own word; whoever steers gets a connection of their own.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_postgres::Client;

use super::client::{self, Connection};
use super::client_error::ConnectError;
use super::inspect::QueryError;

/// So many questions at once.
const CONNECTIONS: usize = 4;
/// How long a question waits for its turn.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

const PREPARE: &str =
    "SET default_transaction_read_only = on; SET statement_timeout = '5s'; SET lock_timeout = '2s'";

/// A question without an answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// PostgreSQL did not answer as hoped.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Too many ask at once.
    #[error("too many questions at once: none of the {CONNECTIONS} connections became free within {} s", WAIT_LIMIT.as_secs())]
    Busy,
}

/// A bounded pool of reading connections. Must be used inside a tokio runtime.
pub struct Readers {
    url: String,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// A pool for the database of a URL; nothing is opened yet.
    pub fn new(url: &str) -> Readers {
        Readers { url: url.to_owned(), permits: Semaphore::new(CONNECTIONS), idle: Mutex::new(Vec::new()) }
    }

    /// Asks a question. A connection on which it failed, or whose asker left before the answer, is closed.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Client) -> Result<T, QueryError>,
    ) -> Result<T, ReadError> {
        let permit = tokio::time::timeout(WAIT_LIMIT, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(ReadError::Busy) };
        let connection = self.take().await?;
        let answer = question(&connection.client).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(answer)
    }

    /// Opens a connection that may write, for one request.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn writer(&self) -> Result<Connection, ConnectError> {
        client::connect(&self.url).await
    }

    async fn take(&self) -> Result<Connection, ReadError> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(connection) if connection.client.is_closed() => {}
                Some(connection) => return Ok(connection),
                None => break,
            }
        }
        let connection = client::connect(&self.url).await?;
        connection.client.batch_execute(PREPARE).await.map_err(QueryError::from)?;
        Ok(connection)
    }
}
