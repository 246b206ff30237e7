//! Installs and upgrades the record table on a node: the same statements that make home's.
//!
//! The service's role needs little there: CREATE on the database, once; membership in `yardmaster_owner`, which owns
//! what is installed and which it makes itself if it has CREATEROLE; and, as at home, `pg_read_all_stats` and
//! `pg_signal_backend`. A database with a whole catalog (home itself, or the home of another installation) has it already.

use tokio_postgres::{Client, Row};

use super::super::connect::Access;
use super::super::error::DbError;
use super::super::migrate;
use super::super::record::TicketKeys;
use super::Site;

/// The steps; forward-only.
const STEPS: [(&str, &str); 2] =
    [("V1__record", include_str!("../../../migrations/V2__record.sql")), ("V2__record_grants", GRANTS)];

/// As V3 and V7 do at home: every owner of a task completes it; the ticket is the right to.
const GRANTS: &str = "
GRANT USAGE ON SCHEMA yardmaster TO PUBLIC;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA yardmaster FROM PUBLIC;
GRANT EXECUTE ON FUNCTION yardmaster.complete(bigint, uuid, integer, integer, bigint, uuid, bytea) TO PUBLIC;";

/// Where refinery keeps the history of the steps.
const HISTORY: &str = "yardmaster.record_history";

/// What is there: is it a standby; is there a catalog, or the record table alone; and what the service may do.
const FOUND: &str = "
SELECT pg_catalog.pg_is_in_recovery(),
       pg_catalog.to_regclass('yardmaster.schema_history') IS NOT NULL,
       pg_catalog.to_regclass('yardmaster.record_history') IS NOT NULL,
       pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AND pg_catalog.pg_has_role('pg_signal_backend', 'USAGE'),
       CAST(current_user AS pg_catalog.text)";

/// The newest applied step.
const APPLIED: &str = "SELECT max(h.version)::integer FROM yardmaster.record_history h";

/// Which database it is, and the keys to its tickets.
pub(super) const SITE: &str = "SELECT s.site, s.inner_key, s.outer_key FROM yardmaster.secret s";

/// The statements of this family, for the test that prepares them all. (The history of a node is not in a catalog.)
pub const STATEMENTS: &[(&str, &str)] = &[("FOUND", FOUND), ("SITE", SITE)];

/// Sees that what completion needs is there and is ours, and that the service may do its work.
///
/// # Errors
/// [`DbError::Busy`] for a standby, and with the remedy when a right is missing; what installing said otherwise.
pub(super) async fn check(client: &Client, config: &Access) -> Result<(), DbError> {
    // A schema that somebody prepared for us is refused, not used.
    if let Some(owner) = migrate::schema_owner(client).await?.filter(|owner| owner != "yardmaster_owner") {
        return Err(DbError::Busy(format!(
            "schema yardmaster belongs to role \"{owner}\", not to yardmaster_owner: it is not ours; rename or drop it"
        )));
    }
    let row = client.query_one(FOUND, &[]).await.map_err(DbError::postgres("look at a node"))?;
    let (standby, catalog, installed, may): (bool, bool, bool, bool) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    let role: String = row.get(4);
    if standby {
        return Err(DbError::Busy("the node is a standby; commands need its primary".to_owned()));
    }
    if !may {
        return Err(DbError::Busy(format!(
            "role \"{role}\" may not see and end backends: GRANT pg_read_all_stats, pg_signal_backend TO \"{role}\""
        )));
    }
    if catalog {
        return Ok(());
    }
    let own = i32::try_from(STEPS.len()).unwrap_or(i32::MAX);
    let applied = if installed {
        let row = client.query_one(APPLIED, &[]).await.map_err(DbError::postgres("read a node's version"))?;
        row.get::<_, Option<i32>>(0).unwrap_or(0)
    } else {
        0
    };
    if applied < own {
        migrate::install(config, HISTORY, &STEPS).await?;
        tracing::info!(from = applied, to = own, "completion records installed on a node");
    }
    Ok(())
}

/// Maps the row of [`SITE`].
pub(super) fn site(rows: &[Row]) -> Result<Site, DbError> {
    let row =
        rows.first().ok_or_else(|| DbError::Busy("yardmaster.secret is empty: restore it".to_owned()))?;
    let keys = TicketKeys::new(row.get(1), row.get(2)).map_err(|e| DbError::Busy(e.to_string()))?;
    Ok(Site { id: row.get(0), keys })
}
