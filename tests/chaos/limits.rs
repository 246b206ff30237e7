//! Looks at the attempts that are alive, all the time, and keeps the largest crowd it saw.
//!
//! A look at `pg_stat_activity` is no snapshot: an attempt can end and the next begin while it is taken. So two are
//! taken, and only attempts that are in both count, since those were all alive in between.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Client;

use crate::world;

/// An attempt is told from the next one on the same backend by its name and its transaction.
const ALIVE: &str = "
SELECT a.pid, a.application_name, a.xact_start::text, coalesce(yardmaster.slot_nodes(t.node, t.nodes_involved), '{}')
  FROM pg_stat_activity a
  LEFT JOIN yardmaster.task_spec t ON t.task_id = split_part(split_part(a.application_name, ' ', 2), '/', 2)::bigint
 WHERE a.application_name ~ '^yardmaster [0-9]+/[1-9][0-9]*/[0-9]+$' AND a.state = 'active' AND a.xact_start IS NOT NULL";

/// The most attempts seen alive at once.
#[derive(Default, Debug)]
pub struct Crowd {
    pub looks: u32,
    pub all: usize,
    pub per_node: usize,
    pub witness: String,
}

/// Looks until told to stop.
pub async fn watch(url: String, mut stop: watch::Receiver<bool>) -> Crowd {
    let mut crowd = Crowd::default();
    while !*stop.borrow_and_update() {
        if let Some(client) = world::connect(&url).await {
            while !*stop.borrow() && look(&client, &mut crowd).await.is_some() {
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    crowd
}

type Attempt = (i32, String, Option<String>);

async fn alive(client: &Client) -> Option<HashMap<Attempt, Vec<String>>> {
    let rows = tokio::time::timeout(Duration::from_secs(5), client.query(ALIVE, &[])).await.ok()?.ok()?;
    Some(rows.iter().map(|r| ((r.get(0), r.get(1), r.get(2)), r.get(3))).collect())
}

async fn look(client: &Client, crowd: &mut Crowd) -> Option<()> {
    let (before, after) = (alive(client).await?, alive(client).await?);
    crowd.looks += 1;
    let both: HashSet<&Attempt> = before.keys().filter(|a| after.contains_key(*a)).collect();
    let mut nodes: HashMap<&String, usize> = HashMap::new();
    for node in both.iter().flat_map(|a| &after[*a]) {
        *nodes.entry(node).or_default() += 1;
    }
    let busiest = nodes.values().copied().max().unwrap_or(0);
    if both.len() > crowd.all || busiest > crowd.per_node {
        crowd.witness = format!("{both:?} on {nodes:?}");
    }
    crowd.all = crowd.all.max(both.len());
    crowd.per_node = crowd.per_node.max(busiest);
    Some(())
}
