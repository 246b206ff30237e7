//! Runs `examples/move-orders.toml` on three private servers, which end with it: home, and the nodes east and west.
//!
//! `make run-nodes` builds and calls it with the service's binary.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tokio_postgres::{Client, NoTls};
use yardmaster::cluster::{Binaries, Cluster, ClusterOptions, StopMode};

const JOB: &str = "examples/move-orders.toml";
const EAST: &str = include_str!("east.sql");
const WEST: &str = include_str!("west.sql");

/// The database on each of the servers.
const DATABASE: &str = "postgres";
const COUNT: &str =
    "SELECT region, count(*), round(sum(amount), 2)::text FROM shop.orders GROUP BY region ORDER BY region";
const SCRATCH: &str = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'yardmaster\\__%'";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let binary = std::env::args_os().nth(1).context("usage: two_nodes PATH-TO-YARDMASTER")?;
    let folder = tempfile::Builder::new().prefix("yardmaster-nodes-").tempdir()?;
    println!("starting three private servers in {}", folder.path().display());
    let binaries = Binaries::find()?;
    let start = |name: &str| {
        let options = ClusterOptions { fsync: false, ..ClusterOptions::new(folder.path().join(name)) };
        Cluster::start(&binaries, options)
    };
    // Together: making one takes seconds.
    let (home, east, west) = tokio::try_join!(start("home"), start("east"), start("west"))?;

    let (at_home, at_east, at_west) = (connect(&home).await?, connect(&east).await?, connect(&west).await?);
    at_home.batch_execute("CREATE ROLE app LOGIN").await?;
    at_east.batch_execute(&EAST.replace("{database}", DATABASE)).await?;
    let west_sql = WEST
        .replace("{database}", DATABASE)
        .replace("{east}", DATABASE)
        .replace("{host}", &east.socket_dir().display().to_string())
        .replace("{port}", &east.port().to_string());
    at_west.batch_execute(&west_sql).await?;
    show("before", &at_east, &at_west).await?;

    let settings = write_settings(folder.path(), &home, &east, &west)?;
    let mut run = tokio::process::Command::new(binary);
    run.arg("run").arg("--config").arg(settings).arg(JOB);
    let mut run = run.spawn().context("start yardmaster")?;
    let status = loop {
        tokio::select! {
            status = run.wait() => break status?,
            // It hears Ctrl-C, too, and cancels its job; the servers are needed for that.
            heard = tokio::signal::ctrl_c() => heard?,
        }
    };
    ensure!(status.success(), "yardmaster ended with {status}");
    show("after", &at_east, &at_west).await?;
    for (node, client) in [("east", &at_east), ("west", &at_west)] {
        let left: i64 = client.query_one(SCRATCH, &[]).await?.get(0);
        println!("  node {node}: {left} scratch schemas");
    }
    for cluster in [home, east, west] {
        cluster.stop(StopMode::Fast).await?;
    }
    Ok(())
}

async fn connect(cluster: &Cluster) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(&cluster.url("postgres", DATABASE), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn write_settings(folder: &Path, home: &Cluster, east: &Cluster, west: &Cluster) -> anyhow::Result<PathBuf> {
    let url = |cluster: &Cluster| cluster.url("postgres", DATABASE);
    let text = format!(
        "data_dir = {:?}\n[database]\nurl = {:?}\n[http]\nlisten = \"127.0.0.1:0\"\n[nodes.east]\nurl = {:?}\nmax_task_executors = 2\n[nodes.west]\nurl = {:?}\nmax_task_executors = 2\n",
        folder.join("yardmaster"),
        url(home),
        url(east),
        url(west)
    );
    let path = folder.join("Settings.toml");
    std::fs::write(&path, text)?;
    Ok(path)
}

async fn show(when: &str, east: &Client, west: &Client) -> anyhow::Result<()> {
    println!("{when}:");
    for (node, client) in [("east", east), ("west", west)] {
        let rows = client.query(COUNT, &[]).await?;
        for row in &rows {
            let (region, n, amount): (&str, i64, &str) = (row.get(0), row.get(1), row.get(2));
            println!("  node {node}: {n} orders of region {region}, {amount} in all");
        }
        if rows.is_empty() {
            println!("  node {node}: no orders");
        }
    }
    Ok(())
}
