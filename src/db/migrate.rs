//! Brings a database's catalog to this version, safely beside other instances that do the same.
//!
//! The steps are in `migrations/`, embedded in the binary and applied by refinery. Around it we take an advisory lock
//! (anybody could squat on it, so the wait is bounded and the holder is named), make the roles and the schema, and
//! refuse what is not ours or newer than we are.

use std::time::Duration;

use tokio_postgres::Client;

use super::connect::{self, Access, Purpose};
use super::error::DbError;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The advisory lock of migrations: "yard" in ASCII, twice.
const LOCK_KEY: i64 = 0x7961_7264_7961_7264;
/// How long another migration may hold us up before we say who it is.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Where refinery keeps its history.
const HISTORY: &str = "yardmaster.schema_history";

/// Called once per migration: makes the four group roles. Concurrent creation in another database of the same
/// server ends in `duplicate_object` or `unique_violation`; both mean that the role is there.
const CREATE_ROLES: &str = "
DO $$
DECLARE wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['yardmaster_owner', 'yardmaster_user', 'yardmaster_monitor', 'yardmaster_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
    IF NOT pg_catalog.pg_has_role('yardmaster_owner', 'USAGE') THEN
        EXECUTE pg_catalog.format('GRANT yardmaster_owner TO %I', current_user);
    END IF;
END $$";

/// Called once per node: makes the role that owns what is installed there.
const CREATE_OWNER: &str = "
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'yardmaster_owner') THEN
        BEGIN
            CREATE ROLE yardmaster_owner NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END IF;
    IF NOT pg_catalog.pg_has_role('yardmaster_owner', 'USAGE') THEN
        EXECUTE pg_catalog.format('GRANT yardmaster_owner TO %I', current_user);
    END IF;
END $$";

/// Who owns the schema, if it exists.
const SCHEMA_OWNER: &str = "
SELECT r.rolname::text FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
 WHERE n.nspname = 'yardmaster'";

/// Plain CREATE: a schema that somebody prepared for us is refused, not used.
const CREATE_SCHEMA: &str = "CREATE SCHEMA yardmaster AUTHORIZATION yardmaster_owner";

/// The newest applied step; fails with 42P01 before the first.
const APPLIED: &str = "SELECT max(version)::integer FROM yardmaster.schema_history";

/// Who holds the migration lock, for the message.
const LOCK_HOLDER: &str = "
SELECT a.pid, a.usename::text, a.application_name FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
   AND l.classid = ($1::bigint >> 32)::oid AND l.objid = ($1::bigint & 4294967295)::oid LIMIT 1";

/// The version of the catalog that this binary works with.
pub fn own_version() -> i32 {
    embedded::migrations::runner()
        .get_migrations()
        .iter()
        .map(refinery::Migration::version)
        .max()
        .unwrap_or(0)
}

/// What a migration found and did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// The version before; 0 for an empty database.
    pub from: i32,
    /// The version now.
    pub to: i32,
}

/// Migrates the database that `config` names.
///
/// # Errors
/// [`DbError::Unsuitable`] for a server or schema that we cannot use, or a lock that is held too long; connection
/// and SQL failures otherwise. Nothing is half done: each step is a transaction.
pub async fn migrate(config: &Access) -> Result<Migrated, DbError> {
    let (mut client, _) = connect::connect(config, Purpose::Migrate).await?;
    check_server(&client).await?;
    // Nothing is locked when nothing is to do: anybody could squat on the lock.
    if schema_owner(&client).await?.as_deref() == Some("yardmaster_owner") {
        let (from, own) = (check_version(&client).await?, own_version());
        if from == own {
            return Ok(Migrated { from, to: own });
        }
    }
    prepare(&client, CREATE_ROLES).await?;
    let from = applied(&client).await?;
    let own = own_version();
    if from > own {
        return Err(newer(from, own));
    }
    if from < own {
        let mut runner = embedded::migrations::runner();
        runner.set_migration_table_name(HISTORY);
        let migrated = runner
            .run_async(&mut client)
            .await
            .map_err(|e| DbError::Unsuitable(format!("migrate the catalog: {}", chain(&e))));
        if client.is_closed() {
            return Err(DbError::Busy("the connection was lost while the catalog was migrated".to_owned()));
        }
        migrated?;
    }
    Ok(Migrated { from, to: own })
}

/// Takes the lock, makes the roles and the schema, and becomes their owner.
async fn prepare(client: &Client, create_roles: &str) -> Result<(), DbError> {
    // The scans of these statements are catalogs and one-row tables; the service's plan settings do not matter.
    client
        .batch_execute("SET lock_timeout = '10s'")
        .await
        .map_err(DbError::postgres("prepare the migration"))?;
    lock(client).await?;

    let owner = schema_owner(client).await?;
    client
        .batch_execute(create_roles)
        .await
        .map_err(DbError::postgres("create the roles of yardmaster (needs CREATEROLE, once)"))?;
    match owner {
        None => client
            .batch_execute(CREATE_SCHEMA)
            .await
            .map_err(DbError::postgres("create the schema yardmaster"))?,
        Some(owner) if owner == "yardmaster_owner" => {}
        Some(owner) => {
            return Err(DbError::Unsuitable(format!(
                "schema yardmaster exists but belongs to role \"{owner}\", not to yardmaster_owner: it is not ours; rename or drop it"
            )));
        }
    }
    client
        .batch_execute("SET ROLE yardmaster_owner")
        .await
        .map_err(DbError::postgres("become yardmaster_owner"))?;
    Ok(())
}

/// Installs the record table on a node that has no catalog: the steps in order, each a transaction, with a history table
/// of their own.
///
/// # Errors
/// As [`migrate`]; what says how to help names the rights that are missing.
pub(super) async fn install(config: &Access, history: &str, steps: &[(&str, &str)]) -> Result<(), DbError> {
    let (mut client, _) = connect::connect(config, Purpose::Migrate).await?;
    check_server(&client).await?;
    prepare(&client, CREATE_OWNER).await?;
    let steps: Result<Vec<_>, _> =
        steps.iter().map(|(name, sql)| refinery::Migration::unapplied(name, sql)).collect();
    let steps = steps.map_err(|e| DbError::Unsuitable(format!("read the steps of a node: {e}")))?;
    let mut runner = refinery::Runner::new(&steps);
    runner.set_migration_table_name(history);
    let installed = runner.run_async(&mut client).await;
    installed.map(drop).map_err(|e| DbError::Busy(format!("install completion records: {}", chain(&e))))
}

/// The catalog's version, 0 without one; refuses a newer one.
///
/// # Errors
/// [`DbError::Unsuitable`] naming both versions when the catalog is newer than this binary.
pub async fn check_version(client: &Client) -> Result<i32, DbError> {
    let found = applied(client).await?;
    let own = own_version();
    if found > own { Err(newer(found, own)) } else { Ok(found) }
}

fn newer(found: i32, own: i32) -> DbError {
    DbError::Unsuitable(format!(
        "the catalog has version {found}, newer than this binary's {own}: upgrade yardmaster on this host"
    ))
}

/// Who owns the schema, if it is there.
pub(super) async fn schema_owner(client: &Client) -> Result<Option<String>, DbError> {
    let row = client.query_opt(SCHEMA_OWNER, &[]).await.map_err(DbError::postgres("look for the schema"))?;
    Ok(row.map(|row| row.get(0)))
}

async fn applied(client: &Client) -> Result<i32, DbError> {
    match client.query_one(APPLIED, &[]).await {
        Ok(row) => Ok(row.get::<_, Option<i32>>(0).unwrap_or(0)),
        Err(e) if matches!(e.code().map(|c| c.code()), Some("42P01" | "3F000")) => Ok(0),
        Err(e) => Err(DbError::postgres("read the catalog's version")(e)),
    }
}

async fn check_server(client: &Client) -> Result<(), DbError> {
    let row = client
        .query_one("SELECT current_setting('server_version_num')::integer, current_setting('server_version'), pg_backend_pid()", &[])
        .await
        .map_err(DbError::postgres("ask for the server's version"))?;
    let (number, text, first_pid) = (row.get::<_, i32>(0), row.get::<_, String>(1), row.get::<_, i32>(2));
    if !(140_000..190_000).contains(&number) {
        return Err(DbError::Unsuitable(format!("PostgreSQL {text} is not supported: 14 to 18 are")));
    }
    let row = client
        .query_one("SELECT pg_backend_pid()", &[])
        .await
        .map_err(DbError::postgres("look for a pooler"))?;
    if row.get::<_, i32>(0) != first_pid {
        return Err(DbError::Unsuitable(
            "two statements ran on different backends: there is a transaction pooler in between, through which locks and LISTEN \
             are silently wrong; connect to PostgreSQL directly"
                .to_owned(),
        ));
    }
    Ok(())
}

async fn lock(client: &Client) -> Result<(), DbError> {
    let wait = client.query_one("SELECT pg_advisory_lock($1)", &[&LOCK_KEY]);
    match tokio::time::timeout(LOCK_WAIT + Duration::from_secs(2), wait).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) if e.code().is_some_and(|c| c.code() == "55P03") => {
            let holder = client.query_opt(LOCK_HOLDER, &[&LOCK_KEY]).await.ok().flatten();
            let holder = holder.map_or_else(
                || "unknown".to_owned(),
                |row| {
                    format!(
                        "pid {}, role {}, {}",
                        row.get::<_, i32>(0),
                        row.get::<_, String>(1),
                        row.get::<_, String>(2)
                    )
                },
            );
            Err(DbError::Busy(format!(
                "another session holds the migration lock for more than {} s ({holder}): wait for it or end it",
                LOCK_WAIT.as_secs()
            )))
        }
        Ok(Err(e)) => Err(DbError::postgres("take the migration lock")(e)),
        Err(_) => {
            Err(DbError::Timeout { context: "take the migration lock", seconds: LOCK_WAIT.as_secs() + 2 })
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
