//! What the leader publishes for others to read: nodes with their limits, and the settings that submission checks.

use tokio_postgres::Client;

use super::super::error::DbError;

/// A node as it is published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedNode {
    /// Its name.
    pub name: String,
    /// Its limit of running tasks.
    pub max_task_executors: i32,
    /// Its limit of tracked tasks, if any.
    pub max_tracked_tasks: Option<i32>,
}

const NODES: &str = "
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::integer[], $3::integer[]) AS g(name, max_task_executors, max_tracked_tasks)
), gone AS (
    DELETE FROM yardmaster.node_state n WHERE NOT n.draining AND NOT EXISTS (SELECT FROM given g WHERE g.name = n.name)
), kept AS (
    UPDATE yardmaster.node_state n SET declared = false, fault = NULL
     WHERE n.draining AND NOT EXISTS (SELECT FROM given g WHERE g.name = n.name)
)
INSERT INTO yardmaster.node_state AS n (name, declared, max_task_executors, max_tracked_tasks)
SELECT g.name, true, g.max_task_executors, g.max_tracked_tasks FROM given g
    ON CONFLICT (name) DO UPDATE SET declared = true, max_task_executors = excluded.max_task_executors,
                                     max_tracked_tasks = excluded.max_tracked_tasks
 WHERE (n.declared, n.max_task_executors, n.max_tracked_tasks)
       IS DISTINCT FROM (true, excluded.max_task_executors, excluded.max_tracked_tasks)";

/// How nodes are: names (`$1`) and why they are down (`$2`, NULL when they are well). A node may have been heard of before
/// it is published.
const HEALTH: &str = "
INSERT INTO yardmaster.node_state AS n (name, declared, max_task_executors, fault, fault_since)
SELECT g.name, false, 1, g.fault, now() FROM unnest($1::text[], $2::text[]) AS g(name, fault)
    ON CONFLICT (name) DO UPDATE SET fault = excluded.fault,
       fault_since = CASE WHEN n.fault IS NULL THEN excluded.fault_since ELSE n.fault_since END
 WHERE n.fault IS DISTINCT FROM excluded.fault";

const SETTINGS: &str = "
INSERT INTO yardmaster.published AS p (key, value) SELECT * FROM unnest($1::text[], $2::text[])
    ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE p.value <> excluded.value";

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[("NODES", NODES), ("HEALTH", HEALTH), ("SETTINGS", SETTINGS)];

/// Publishes nodes and settings; `settings` are pairs of key and text.
///
/// # Errors
/// When a statement fails; the next reload or office publishes again.
pub async fn publish(
    client: &Client,
    nodes: &[PublishedNode],
    settings: &[(&str, String)],
) -> Result<(), DbError> {
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    let limits: Vec<i32> = nodes.iter().map(|n| n.max_task_executors).collect();
    let tracked: Vec<Option<i32>> = nodes.iter().map(|n| n.max_tracked_tasks).collect();
    client
        .execute(NODES, &[&names, &limits, &tracked])
        .await
        .map_err(DbError::postgres("publish the nodes"))?;
    let mut keys: Vec<&str> = settings.iter().map(|(k, _)| *k).collect();
    let mut values: Vec<&str> = settings.iter().map(|(_, v)| v.as_str()).collect();
    // Its presence says that the list of nodes can be trusted.
    keys.push("nodes");
    values.push("published");
    client.execute(SETTINGS, &[&keys, &values]).await.map_err(DbError::postgres("publish the settings"))?;
    Ok(())
}

/// Writes on nodes why they are down, or that they are well.
///
/// # Errors
/// When the statement fails; it is said again in the next office.
pub async fn health(client: &Client, nodes: &[(String, Option<String>)]) -> Result<(), DbError> {
    let (names, faults): (Vec<&str>, Vec<Option<&str>>) =
        nodes.iter().map(|(name, fault)| (name.as_str(), fault.as_deref())).unzip();
    client
        .execute(HEALTH, &[&names, &faults])
        .await
        .map_err(DbError::postgres("publish the health of nodes"))?;
    Ok(())
}
