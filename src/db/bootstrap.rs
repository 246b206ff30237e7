//! Makes a private server ready: the service's own role and database. Only for a server that is ours alone.

use tokio_postgres::Client;

use super::connect::{self, Access, Purpose};
use super::error::DbError;

/// The login role of the service on a private server. It is a superuser there, since tasks may be owned by one, whose
/// backends only a superuser can end.
pub const SERVICE_ROLE: &str = "yardmaster";
/// The home database on a private server.
pub const DATABASE: &str = "yardmaster";
/// The default owner of tasks on a private server.
pub const OWNER: &str = "postgres";

const ROLE: &str = "
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'yardmaster') THEN
        CREATE ROLE yardmaster SUPERUSER LOGIN;
    END IF;
END $$";
const HAS_DATABASE: &str = "SELECT FROM pg_catalog.pg_database WHERE datname = 'yardmaster'";
const CREATE_DATABASE: &str = "CREATE DATABASE yardmaster";

/// Makes role and database if they are not there; `admin` leads to database `postgres` as the superuser of `initdb`.
///
/// # Errors
/// When the server cannot be reached or refuses.
pub async fn bootstrap(admin: &Access) -> Result<(), DbError> {
    let (client, _): (Client, _) = connect::connect(admin, Purpose::Migrate).await?;
    client.batch_execute(ROLE).await.map_err(DbError::postgres("create the role yardmaster"))?;
    let found = client
        .query_opt(HAS_DATABASE, &[])
        .await
        .map_err(DbError::postgres("look for the database yardmaster"))?;
    if found.is_none() {
        client
            .batch_execute(CREATE_DATABASE)
            .await
            .map_err(DbError::postgres("create the database yardmaster"))?;
    }
    Ok(())
}
