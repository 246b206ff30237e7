//! Resolving an attempt whose end nobody witnessed: the connection was lost, the Executor crashed, or the service did.
//!
//! The order is what makes it safe: *read the record first* (a committed attempt is done, whatever happened to its
//! backend); then see that its backend is gone (a transactional one is ended; one outside a transaction is left to
//! end); then insert `revoked` under the attempt's key. Whoever inserts second waits for the first and learns the
//! truth, so a commit that was on its way either wins here or never happens. Idempotent, and safe if it dies half way.
//!
//! All of it is asked of the node where the attempt ran, one key per transaction, never inside a turn; only whether the
//! backend was used again is the catalog's to say.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::super::error::DbError;
use super::super::node::Node;
use super::super::record::TicketKeys;
use super::leadership::Office;
use crate::model::{Backend, ClaimedTask, TaskId};

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
VALUES ($1, $2, $3, 'revoked', $4, $5, $6) ON CONFLICT DO NOTHING RETURNING 1";

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
   AND s.site IS NOT DISTINCT FROM mine.site AND s.started_at > mine.started_at";

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

/// Resolves an attempt that ran on `node`; returns when its outcome is certain. `home` is a connection to the catalog.
///
/// `patience` is how long the backend may go on before it is ended: zero for a transactional command, since one that
/// has not committed by now is to run again anyway.
///
/// # Errors
/// When home or the node cannot be reached or refuses: nothing is decided, call again later. [`DbError::TwoHomes`] when a
/// `revoked` of another leader of an epoch not below ours stands there.
pub async fn resolve(
    node: &Node,
    home: &Client,
    office: Office,
    task: &ClaimedTask,
    patience: Duration,
) -> Result<Resolution, DbError> {
    if let Some(resolution) = read(node, office, task).await? {
        return Ok(resolution);
    }
    if let Some(backend) = task.backend {
        let reused = home
            .query_one(NEWER, &[&task.task.0, &backend.pid, &backend.start, &task.attempt])
            .await
            .map_err(DbError::postgres("look for a newer attempt on the backend"))?
            .get::<_, i64>(0);
        if reused == 0 {
            let deadline = tokio::time::Instant::now() + patience;
            while tokio::time::Instant::now() < deadline && alive(node, backend).await? == Liveness::Alive {
                tokio::time::sleep(LOOK_AGAIN * 4).await;
            }
            end(node, backend).await?;
        }
    }
    loop {
        let ClaimedTask { task: TaskId(id), task_key, series, attempt, .. } = task;
        let key: [&(dyn ToSql + Sync); 6] = [id, task_key, series, attempt, &office.epoch.0, &office.token];
        match node.ask("revoke an attempt", REVOKE, &key).await {
            Ok(inserted) if !inserted.is_empty() => return Ok(Resolution::Revoked),
            Ok(_) => {
                if let Some(resolution) = read(node, office, task).await? {
                    return Ok(resolution);
                }
            }
            // Somebody's uncommitted record is in the way: end the backend that can have written it, and repeat.
            Err(e) if e.sqlstate() == Some("55P03") => {
                if let Some(backend) = task.backend {
                    end(node, backend).await?;
                }
            }
            Err(e) => return Err(e),
        }
    }
}

/// When the node's server was started: another answer than before means that every earlier session was lost with it.
///
/// # Errors
/// When the server cannot be asked.
pub async fn server_started(node: &Node) -> Result<jiff::Timestamp, DbError> {
    one(&node.ask("ask when the server started", SERVER_STARTED, &[]).await?, |row| row.get(0))
}

/// The keys that make the tickets of home.
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
pub async fn terminate(node: &Node, backend: Backend) -> Result<(), DbError> {
    node.ask("end a backend", TERMINATE, &[&backend.pid, &backend.start]).await.map(drop)
}

/// Ends a backend and waits until it is gone. A backend that survives its termination for 30 s is an error; the
/// caller tries again, since a server can be slow to notice.
async fn end(node: &Node, backend: Backend) -> Result<(), DbError> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while alive(node, backend).await? == Liveness::Alive {
        terminate(node, backend).await?;
        if alive(node, backend).await? == Liveness::Gone {
            break;
        }
        if tokio::time::Instant::now() > deadline {
            return Err(DbError::Timeout { context: "wait for a terminated backend to end", seconds: 30 });
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

async fn alive(node: &Node, backend: Backend) -> Result<Liveness, DbError> {
    let rows = node.ask("look for a backend", ALIVE, &[&backend.pid, &backend.start]).await?;
    one(&rows, |row| if row.get::<_, i64>(0) > 0 { Liveness::Alive } else { Liveness::Gone })
}

async fn read(node: &Node, office: Office, task: &ClaimedTask) -> Result<Option<Resolution>, DbError> {
    let key: [&(dyn ToSql + Sync); 3] = [&task.task.0, &task.task_key, &task.series];
    let rows = node.ask("read a completion record", READ, &key).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if row.get::<_, String>(0) == "committed" {
        return Ok(Some(Resolution::Committed));
    }
    let (epoch, token): (i64, uuid::Uuid) = (row.get(1), row.get(2));
    if epoch >= office.epoch.0 && token != office.token {
        return Err(DbError::TwoHomes(format!(
            "task {} was revoked by another leader of epoch {epoch} while ours is {}: there are two homes; stopping",
            task.task, office.epoch
        )));
    }
    Ok(Some(Resolution::Revoked))
}

fn one<T>(rows: &[Row], map: impl FnOnce(&Row) -> T) -> Result<T, DbError> {
    rows.first().map(map).ok_or_else(|| DbError::Busy("a question was answered with no row".to_owned()))
}
