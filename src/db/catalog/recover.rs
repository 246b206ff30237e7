//! Resolving an attempt whose end nobody witnessed: the connection was lost, the Executor crashed, or the service did.
//!
//! The order is what makes it safe: *read the record first* (a committed attempt is done, whatever happened to its
//! backend); then see that its backend is gone (a transactional one is ended; one outside a transaction is left to
//! end); then insert `revoked` under the attempt's key. Whoever inserts second waits for the first and learns the
//! truth, so a commit that was on its way either wins here or never happens. Idempotent, and safe if it dies half way.
//!
//! Runs on a control connection, one key per transaction, never inside a turn.

use std::time::Duration;

use tokio_postgres::Client;

use super::super::error::DbError;
use super::super::record::TicketKeys;
use super::leadership::Office;
use crate::model::{Backend, ClaimedTask};

/// What the catalog says about a lost attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Its record says committed.
    Committed,
    /// Its backend is gone and `revoked` stands under its key: if it was transactional, it never happened.
    Revoked,
}

/// How a running backend was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Liveness {
    Gone,
    Alive,
}

const READ: &str = "
SELECT r.kind::text, r.epoch, r.token FROM yardmaster.record r WHERE r.task_id = $1 AND r.task_key = $2 AND r.series = $3";

/// Waits for a twin's uncommitted insert, up to `lock_timeout`.
const REVOKE: &str = "
INSERT INTO yardmaster.record (task_id, task_key, series, kind, attempt, epoch, token)
VALUES ($1, $2, $3, 'revoked', $4, $5, $6) ON CONFLICT DO NOTHING";

/// Names can be forged, pids are reused: pid and start together cannot.
const ALIVE: &str = "
SELECT count(*) FROM pg_stat_activity a WHERE a.pid = $1 AND a.backend_start = $2";

/// Only the backend that is meant: the start is compared in the same statement.
const TERMINATE: &str = "
SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a WHERE a.pid = $1 AND a.backend_start = $2";

/// Is a newer live attempt claimed on this backend? Then the backend is not this attempt's any more.
const NEWER: &str = "
SELECT count(*) FROM yardmaster.task_state s, yardmaster.task_state mine
 WHERE mine.task_id = $1 AND mine.attempt = $4 AND s.status IN ('running', 'cancelling') AND s.pid = $2 AND s.backend_start = $3
   AND s.started_at > mine.started_at";

const SERVER_STARTED: &str = "SELECT pg_postmaster_start_time()";

const TICKET_KEYS: &str = "SELECT s.inner_key, s.outer_key FROM yardmaster.secret s";

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[
    ("READ", READ),
    ("REVOKE", REVOKE),
    ("ALIVE", ALIVE),
    ("TERMINATE", TERMINATE),
    ("NEWER", NEWER),
    ("SERVER_STARTED", SERVER_STARTED),
    ("TICKET_KEYS", TICKET_KEYS),
];

/// How often a backend is looked at while its end is awaited.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Resolves an attempt; returns when its outcome is certain.
///
/// `patience` is how long the backend may go on before it is ended: zero for a transactional command, since one that
/// has not committed by now is to run again anyway.
///
/// # Errors
/// When home cannot be reached or refuses: nothing is decided, call again later. [`DbError::Unsuitable`] when a
/// `revoked` of another leader of an epoch not below ours stands there: there are two homes.
pub async fn resolve(
    client: &Client,
    office: Office,
    task: &ClaimedTask,
    patience: Duration,
) -> Result<Resolution, DbError> {
    if let Some(resolution) = read(client, office, task).await? {
        return Ok(resolution);
    }
    if let Some(backend) = task.backend {
        let reused = client
            .query_one(NEWER, &[&task.task.0, &backend.pid, &backend.start, &task.attempt])
            .await
            .map_err(DbError::postgres("look for a newer attempt on the backend"))?
            .get::<_, i64>(0);
        if reused == 0 {
            let deadline = tokio::time::Instant::now() + patience;
            while tokio::time::Instant::now() < deadline && alive(client, backend).await? == Liveness::Alive {
                tokio::time::sleep(LOOK_AGAIN * 4).await;
            }
            end(client, backend).await?;
        }
    }
    loop {
        let inserted = client
            .execute(
                REVOKE,
                &[&task.task.0, &task.task_key, &task.series, &task.attempt, &office.epoch.0, &office.token],
            )
            .await;
        match inserted {
            Ok(1) => return Ok(Resolution::Revoked),
            Ok(_) => {
                if let Some(resolution) = read(client, office, task).await? {
                    return Ok(resolution);
                }
            }
            // Somebody's uncommitted record is in the way: end the backend that can have written it, and repeat.
            Err(e) if e.code().is_some_and(|c| c.code() == "55P03") => {
                if let Some(backend) = task.backend {
                    end(client, backend).await?;
                }
            }
            Err(e) => return Err(DbError::postgres("revoke an attempt")(e)),
        }
    }
}

/// When the server was started: another answer than before means that every earlier session was lost with it.
///
/// # Errors
/// When the server cannot be asked.
pub async fn server_started(client: &Client) -> Result<jiff::Timestamp, DbError> {
    let row = client
        .query_one(SERVER_STARTED, &[])
        .await
        .map_err(DbError::postgres("ask when the server started"))?;
    Ok(row.get(0))
}

/// The keys that make the tickets of this catalog.
///
/// # Errors
/// When they cannot be read, or are not what a migration makes.
pub async fn ticket_keys(client: &Client) -> Result<TicketKeys, DbError> {
    let row = client.query_one(TICKET_KEYS, &[]).await.map_err(DbError::postgres("read the ticket keys"))?;
    TicketKeys::new(row.get(0), row.get(1)).map_err(|e| DbError::Unsuitable(e.to_string()))
}

/// Ends a backend if it is still the one that is meant; does not wait for its end.
///
/// # Errors
/// When the statement fails, for instance for want of the role `pg_signal_backend`.
pub async fn terminate(client: &Client, backend: Backend) -> Result<(), DbError> {
    client
        .query_one(TERMINATE, &[&backend.pid, &backend.start])
        .await
        .map_err(DbError::postgres("end a backend"))?;
    Ok(())
}

/// Ends a backend and waits until it is gone. A backend that survives its termination for 30 s is an error; the
/// caller tries again, since a server can be slow to notice.
async fn end(client: &Client, backend: Backend) -> Result<(), DbError> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while alive(client, backend).await? == Liveness::Alive {
        terminate(client, backend).await?;
        if alive(client, backend).await? == Liveness::Gone {
            break;
        }
        if tokio::time::Instant::now() > deadline {
            return Err(DbError::Timeout { context: "wait for a terminated backend to end", seconds: 30 });
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

async fn alive(client: &Client, backend: Backend) -> Result<Liveness, DbError> {
    let row = client
        .query_one(ALIVE, &[&backend.pid, &backend.start])
        .await
        .map_err(DbError::postgres("look for a backend"))?;
    Ok(if row.get::<_, i64>(0) > 0 { Liveness::Alive } else { Liveness::Gone })
}

async fn read(client: &Client, office: Office, task: &ClaimedTask) -> Result<Option<Resolution>, DbError> {
    let row = client
        .query_opt(READ, &[&task.task.0, &task.task_key, &task.series])
        .await
        .map_err(DbError::postgres("read a completion record"))?;
    let Some(row) = row else { return Ok(None) };
    if row.get::<_, String>(0) == "committed" {
        return Ok(Some(Resolution::Committed));
    }
    let (epoch, token): (i64, uuid::Uuid) = (row.get(1), row.get(2));
    if epoch >= office.epoch.0 && token != office.token {
        return Err(DbError::Unsuitable(format!(
            "task {} was revoked by another leader of epoch {epoch} while ours is {}: there are two homes; stopping",
            task.task, office.epoch
        )));
    }
    Ok(Some(Resolution::Revoked))
}
