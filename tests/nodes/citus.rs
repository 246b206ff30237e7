//! Nodes that home names: a Citus coordinator, or a table of that shape.

use serde_json::{Value, json};

use crate::node::NodeDb;
use crate::support::{Db, Launch, until};

async fn nodes(db: &Db) -> String {
    db.value("SELECT coalesce(string_agg(name, ',' ORDER BY name), '') FROM yardmaster.node").await
}

/// Scenario 20.
#[tokio::test]
async fn scenario_20_nodes_of_a_coordinator_appear_by_id_and_nodes_involved_counts_against_them() {
    let db = Db::new().await;
    let mut there = Vec::new();
    for which in [0, 1] {
        let node = NodeDb::new(which).await;
        // A coordinator and its workers have a database of one name.
        let rename = format!("ALTER DATABASE {} RENAME TO {}", node.name, db.name);
        drop(node.admin);
        let outside = node.server.connect("postgres", "postgres").await;
        until("nobody is there", async || outside.batch_execute(&rename).await.is_ok()).await;
        there.push(node.server);
    }
    let rows: Vec<String> = there
        .iter()
        .zip(1..)
        .map(|(server, id)| {
            format!("({id}, '{}', {}, true, 'primary')", server.socket.display(), server.port())
        })
        .collect();
    db.sql(&format!(
        "SET allow_system_table_mods = on;
         CREATE TYPE pg_catalog.noderole AS ENUM ('primary', 'secondary');
         CREATE TABLE pg_catalog.pg_dist_node (nodeid int, nodename text, nodeport int, isactive bool, noderole noderole);
         INSERT INTO pg_dist_node VALUES {}, (3, 'gone', 1, false, 'primary'), (4, 'twin', 1, true, 'secondary')",
        rows.join(", ")
    ))
    .await;
    db.sql("GRANT SELECT ON pg_dist_node TO PUBLIC").await;
    let limits = "[database]\ncitus_nodes = true\n[limits]\nmax_task_executors = 8\n";
    let service = Launch::on(&db).settings(limits).start().await;
    assert_eq!(nodes(&db).await, "1,2", "known before anything is admitted");
    // Both burden both nodes, of which each takes one task; commands run where the table says.
    let insert = "INSERT INTO yardmaster.task (job_id, command, nodes_involved)
                  SELECT $1, 'SELECT pg_sleep(0.3)', ARRAY[1,2] FROM generate_series(1,2)";
    let job = db.new_job().await;
    db.alice.execute(insert, &[&job]).await.unwrap();
    let on = |node: &str| json!({ "command": format!("INSERT INTO ledger VALUES ({node})"), "node": node });
    let tasks: Vec<Value> = vec![on("1"), on("2")];
    let ran = db.submit(json!({ "task": tasks })).await;
    db.await_job(job, "finished").await;
    db.await_job(ran, "finished").await;
    let apart =
        "SELECT max(started_at) >= min(finished_at) FROM yardmaster.task WHERE nodes_involved = '{1,2}'";
    assert_eq!(db.value(apart).await, "t");
    for (server, id) in there.iter().zip(1_i64..) {
        let admin = server.connect("postgres", &db.name).await;
        let k: i64 = admin.query_one("SELECT k FROM ledger", &[]).await.unwrap().get(0);
        assert_eq!(k, id);
    }
    // What changes there is noticed; a reload keeps what home names, or leaves it out.
    db.sql("DELETE FROM pg_dist_node WHERE nodeid = 2").await;
    until("it is noticed", async || nodes(&db).await == "1").await;
    service.reload(&limits.replace("= 8", "= 9")).await;
    until("it is kept", async || nodes(&db).await == "1").await;
    service.reload("").await;
    until("it is left out", async || nodes(&db).await.is_empty()).await;
}
