//! With a Citus coordinator as home: the nodes that it knows, from `pg_dist_node`.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use super::super::error::DbError;

/// Is home a coordinator?
const PRESENT: &str = "SELECT to_regclass('pg_catalog.pg_dist_node') IS NOT NULL";

/// The primaries. Not among [`STATEMENTS`]: where there is no such table it cannot be prepared.
const NODES: &str = "
SELECT d.nodeid::bigint, d.nodename::text, d.nodeport::integer FROM pg_catalog.pg_dist_node d
 WHERE d.isactive AND d.noderole::text = 'primary'";

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[("PRESENT", PRESENT)];

/// The nodes by their ids, with host and port; `None` if home is no coordinator.
///
/// # Errors
/// When home cannot be asked, or does not let the service read the table.
pub async fn nodes(client: &Client) -> Result<Option<BTreeMap<String, (String, u16)>>, DbError> {
    let read = || DbError::postgres("read pg_dist_node");
    let present = client.query_one(PRESENT, &[]).await.map_err(read())?;
    if !present.get::<_, bool>(0) {
        return Ok(None);
    }
    let rows = client.query(NODES, &[]).await.map_err(read())?;
    let place = |row: &tokio_postgres::Row| {
        let (id, host, port): (i64, String, i32) = (row.get(0), row.get(1), row.get(2));
        Some((id.to_string(), (host, u16::try_from(port).ok()?)))
    };
    Ok(Some(rows.iter().filter_map(place).collect()))
}
