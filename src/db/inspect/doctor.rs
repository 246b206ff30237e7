//! What `doctor` asks: about the server, the rights of the role that asks, the catalog's tables, and owners' logins.
//!
//! Unlike its neighbours it looks at the system catalogs, and at the catalog's own tables where the role may.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::QueryError;
use crate::db::{OpenError, Target, login, passwords};

/// A server and the role that we are on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// As a number: 150020.
    pub version: i32,
    /// As the server writes it.
    pub version_text: String,
    /// The role.
    pub role: String,
    /// Is it a superuser?
    pub is_superuser: bool,
    /// Has it the rights of `pg_read_all_stats`?
    pub reads_stats: bool,
    /// Has it the rights of `pg_signal_backend`?
    pub signals_backends: bool,
    /// Has it the rights of `yardmaster_owner`? None if there is no such role.
    pub owns_catalog: Option<bool>,
    /// Is the server a standby?
    pub is_standby: bool,
    /// Connections that ordinary roles may have.
    pub connections: i32,
    /// Is autovacuum on?
    pub autovacuum: bool,
    /// The share of the notification queue in use, 0 to 1.
    pub notify_usage: f64,
    /// The server's clock.
    pub now: Timestamp,
    /// Whether the schema `yardmaster` exists.
    pub has_catalog: bool,
}

/// One of the catalog's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableHealth {
    /// Its name.
    pub name: String,
    /// Rows, as far as statistics know.
    pub live: i64,
    /// Dead rows.
    pub dead: i64,
    /// Bytes with indexes.
    pub bytes: i64,
}

/// A transaction that keeps dead rows from being removed.
#[derive(Debug, Clone, PartialEq)]
pub struct OldSnapshot {
    /// Its backend.
    pub pid: i32,
    /// Whose it is.
    pub role: String,
    /// Its age in seconds.
    pub seconds: f64,
}

/// An owner with tasks that have not ended, and where they are to run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingOwner {
    /// The node; empty: home.
    pub node: String,
    /// The role.
    pub owner: String,
}

const SERVER: &str = "
    SELECT pg_catalog.current_setting('server_version_num')::int4, pg_catalog.current_setting('server_version'),
           current_user::text, r.rolsuper, pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'),
           pg_catalog.pg_has_role('pg_signal_backend', 'USAGE'),
           (SELECT pg_catalog.pg_has_role(o.oid, 'USAGE') FROM pg_catalog.pg_roles o WHERE o.rolname = 'yardmaster_owner'),
           pg_catalog.pg_is_in_recovery(),
           pg_catalog.current_setting('max_connections')::int4
             - pg_catalog.current_setting('superuser_reserved_connections')::int4,
           pg_catalog.current_setting('autovacuum')::bool, pg_catalog.pg_notification_queue_usage(),
           pg_catalog.clock_timestamp(), EXISTS (SELECT FROM pg_catalog.pg_namespace n WHERE n.nspname = 'yardmaster')
      FROM pg_catalog.pg_roles r WHERE r.rolname = current_user";

const PID: &str = "SELECT pg_catalog.pg_backend_pid()";

const SCHEMA_VERSION: &str = "SELECT max(h.version)::int4 FROM yardmaster.schema_history h";

const TABLES: &str = "
    SELECT s.relname::text, s.n_live_tup, s.n_dead_tup, pg_catalog.pg_total_relation_size(s.relid)
      FROM pg_catalog.pg_stat_user_tables s WHERE s.schemaname = 'yardmaster' ORDER BY 1";

const OLD_SNAPSHOT: &str = "
    SELECT a.pid, coalesce(a.usename::text, ''),
           extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::float8
      FROM pg_catalog.pg_stat_activity a
     WHERE a.backend_xmin IS NOT NULL AND a.xact_start IS NOT NULL AND a.datname = pg_catalog.current_database()
       AND a.pid <> pg_catalog.pg_backend_pid()
     ORDER BY a.xact_start LIMIT 1";

/// Job by job over the index (job_id, task_id), open jobs only.
const PENDING_OWNERS: &str = "
    SELECT DISTINCT coalesce(t.node, ''), t.owner::text
      FROM yardmaster.job j
     CROSS JOIN LATERAL (SELECT t.node, t.owner FROM yardmaster.task t
                          WHERE t.job_id = j.job_id AND t.status::text IN ('blocked', 'runnable', 'running') OFFSET 0) t
     WHERE j.state::text NOT IN ('finished', 'cancelled', 'failed')
     ORDER BY 1, 2 LIMIT $1";

/// Looks at the server and at ourselves.
///
/// # Errors
/// See [`QueryError`].
pub async fn server(client: &Client) -> Result<Server, QueryError> {
    let rows = client.query_typed(SERVER, &[]).await?;
    let row = rows.first().ok_or_else(|| QueryError::Unexpected("the role has no row".to_owned()))?;
    Ok(Server {
        version: row.try_get(0)?,
        version_text: row.try_get(1)?,
        role: row.try_get(2)?,
        is_superuser: row.try_get(3)?,
        reads_stats: row.try_get(4)?,
        signals_backends: row.try_get(5)?,
        owns_catalog: row.try_get(6)?,
        is_standby: row.try_get(7)?,
        connections: row.try_get(8)?,
        autovacuum: row.try_get(9)?,
        notify_usage: row.try_get(10)?,
        now: row.try_get(11)?,
        has_catalog: row.try_get(12)?,
    })
}

/// Is there a transaction pooler in between? Two connections to the same place: while a transaction is open on one,
/// the other one's statements must still run on the backend that they ran on before.
///
/// # Errors
/// See [`QueryError`].
pub async fn is_pooled(one: &Client, other: &mut Client) -> Result<bool, QueryError> {
    async fn pid(client: &impl tokio_postgres::GenericClient) -> Result<i32, QueryError> {
        let rows = client.query_typed(PID, &[]).await?;
        let row = rows.first().ok_or_else(|| QueryError::Unexpected("a backend without a pid".to_owned()))?;
        Ok(row.try_get(0)?)
    }
    let before = pid(one).await?;
    let transaction = other.transaction().await?;
    let meanwhile = pid(&transaction).await?;
    let after = pid(one).await?;
    transaction.rollback().await?;
    Ok(before != after || before == meanwhile)
}

/// The newest migration; nothing if the role may not know.
///
/// # Errors
/// See [`QueryError`]; [`QueryError::NoCatalog`] if there is none.
pub async fn schema_version(client: &Client) -> Result<Option<i32>, QueryError> {
    match client.query_typed(SCHEMA_VERSION, &[]).await.map_err(QueryError::from) {
        Ok(rows) => Ok(rows.first().map(|row| row.try_get(0)).transpose()?.flatten()),
        Err(QueryError::Denied { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The catalog's tables.
///
/// # Errors
/// See [`QueryError`].
pub async fn tables(client: &Client) -> Result<Vec<TableHealth>, QueryError> {
    let rows = client.query_typed(TABLES, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(TableHealth {
                name: row.try_get(0)?,
                live: row.try_get(1)?,
                dead: row.try_get(2)?,
                bytes: row.try_get(3)?,
            })
        })
        .collect()
}

/// The oldest transaction of the database that has a snapshot, as far as the role may see.
///
/// # Errors
/// See [`QueryError`].
pub async fn old_snapshot(client: &Client) -> Result<Option<OldSnapshot>, QueryError> {
    let rows = client.query_typed(OLD_SNAPSHOT, &[]).await?;
    rows.first()
        .map(|row| Ok(OldSnapshot { pid: row.try_get(0)?, role: row.try_get(1)?, seconds: row.try_get(2)? }))
        .transpose()
}

/// Owners of tasks that have not ended, with the nodes of those; at most `limit`.
///
/// # Errors
/// See [`QueryError`].
pub async fn pending_owners(client: &Client, limit: i64) -> Result<Vec<PendingOwner>, QueryError> {
    let rows = client.query_typed(PENDING_OWNERS, &[(&limit, Type::INT8)]).await?;
    rows.iter().map(|row| Ok(PendingOwner { node: row.try_get(0)?, owner: row.try_get(1)? })).collect()
}

/// Logs in as an owner, just as the service does before an attempt, and leaves. Says whether a password was found.
///
/// # Errors
/// What the service would be told, and whether it had a password to offer.
pub async fn try_login(
    url: &str,
    owner: &str,
    password_file: Option<&Path>,
    connect_timeout: Duration,
) -> Result<(), (OpenError, bool)> {
    let refused = |message: String| OpenError::Refused { sqlstate: "28000".to_owned(), message };
    let target = Target::parse(url).map_err(|e| (refused(e.to_string()), false))?;
    let password =
        passwords::of_owner(&target, owner, password_file).map_err(|e| (refused(e.to_string()), false))?;
    let bytes = 1024;
    login::open(&target, owner, password.as_deref(), connect_timeout, bytes)
        .await
        .map(drop)
        .map_err(|e| (e, password.is_some()))
}
