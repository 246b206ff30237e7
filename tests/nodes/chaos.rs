//! The crash test over three nodes: services are killed, one node's server crashes, another falls silent, nodes are drained,
//! while jobs are submitted and cancelled. In the end every effect is there exactly once, in one place, and nothing is left.
//!
//! `YARDMASTER_CHAOS_SEED` and `_SECONDS` override the seed (printed) and for how long harm is done.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_postgres::NoTls;
use yardmaster::cluster::StopMode;

use crate::dice::Dice;
use crate::node::{NodeDb, section};
use crate::support::{Db, Launch, Proxy, Service, Weather, own, until};

/// The limit of each node.
const LIMIT: usize = 4;

/// An attempt is told from the next one on the same backend by its name and its transaction. Task 0 is the clean-up of
/// scratch schemas, which needs no slot.
const ATTEMPTS: &str = "SELECT concat_ws(' ', pid, application_name, xact_start) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name ~ '^yardmaster [0-9]+/[1-9]' AND state = 'active' AND xact_start IS NOT NULL";

const LEFT_BEHIND: &str = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^yardmaster_.'";

fn setting(name: &str, default: u64) -> u64 {
    let variable = format!("YARDMASTER_CHAOS_{name}");
    std::env::var(&variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

/// The most attempts seen alive at once, and in how many looks. A look is no snapshot, so what counts is in two that follow
/// one another: it was alive in between.
async fn crowd(url: String, stop: watch::Receiver<bool>) -> (usize, u32) {
    let (mut most, mut looks) = (0, 0);
    while !*stop.borrow() {
        tokio::time::sleep(Duration::from_millis(25)).await;
        let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await else { continue };
        tokio::spawn(connection);
        let look = async || -> Option<HashSet<String>> {
            Some(client.query(ATTEMPTS, &[]).await.ok()?.iter().map(|row| row.get(0)).collect())
        };
        while let (Some(before), Some(after)) = (look().await, look().await) {
            most = most.max(before.intersection(&after).count());
            looks += 1;
            let stopped = *stop.borrow();
            if stopped {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
    (most, looks)
}

/// Ten tasks, each of which writes its number somewhere.
fn job(dice: &mut Dice, first: u64) -> Value {
    let choices = [
        json!("n1"),
        json!("n2"),
        json!("n3"),
        json!(["n1", "n3"]),
        json!(["n2", "n3"]),
        json!(["n1", "n2", "n3"]),
    ];
    let scratch = dice.percent(50);
    let task = |k: u64| {
        let write = format!("INSERT INTO public.ledger VALUES ({k})");
        let nap = dice.below(15);
        let keep = if scratch { format!("CREATE TABLE kept{k} (k int); ") } else { String::new() };
        let command = match dice.below(20) {
            0 => format!("{write}; SELECT 1/0"),
            1..10 => format!("{write}; SELECT pg_sleep(0.{nap:02})"),
            _ => format!("SELECT pg_sleep(0.{nap:02}); {keep}{write}"),
        };
        let node = &choices[usize::try_from(dice.below(6)).unwrap()];
        json!({ "name": format!("k{k}"), "command": command, "node": node, "retry": { "permanent_sqlstates": ["22012"] } })
    };
    let tasks: Vec<Value> = (first..first + 10).map(task).collect();
    json!({ "scratch": scratch, "task": tasks })
}

#[tokio::test]
async fn chaos_over_three_nodes_loses_and_doubles_nothing_and_leaves_nothing_behind() {
    let seed = setting("SEED", u64::from(uuid::Uuid::new_v4().as_fields().0));
    let harm = Duration::from_secs(setting("SECONDS", 5));
    println!("YARDMASTER_CHAOS_SEED={seed} YARDMASTER_CHAOS_SECONDS={}", harm.as_secs());
    let mut dice = Dice::new(seed);

    let db = Db::new().await;
    let (mut server, private) = own(&[]).await;
    let mut nodes = [NodeDb::on(private).await, NodeDb::new(0).await, NodeDb::new(1).await];
    for node in &nodes {
        node.admin.batch_execute(&format!("GRANT CREATE ON DATABASE {} TO alice", node.name)).await.unwrap();
    }
    let network = Proxy::of(nodes[1].server);
    let urls = [nodes[0].url(), network.url("yard_service", &nodes[1].name), nodes[2].url()];
    let settings: String = (1..).zip(&urls).map(|(n, url)| section(&format!("n{n}"), url)).collect();
    let settings = settings.replace("executors = 8", &format!("executors = {LIMIT}"));
    let launch = || {
        Launch::on(&db)
            .settings(&settings)
            .set("limits.max_task_executors", "16")
            .set("cancel.grace", "500ms")
            .spawn()
    };
    let mut services: [Service; 2] = [launch(), launch()];
    db.await_true("SELECT count(*) = 3 FROM yardmaster.node").await;

    let (stop, stopped) = watch::channel(false);
    let watchers = nodes
        .each_ref()
        .map(|node| tokio::spawn(crowd(node.server.url("postgres", &node.name), stopped.clone())));
    let mut faults: BTreeMap<&str, u32> = BTreeMap::new();
    let mut jobs = Vec::new();
    let over = Instant::now() + harm;
    while Instant::now() < over {
        jobs.push(db.submit(job(&mut dice, 1 + 10 * jobs.len() as u64)).await);
        if dice.percent(20) {
            db.cancel(jobs[usize::try_from(dice.below(jobs.len() as u64)).unwrap()]).await;
        }
        tokio::time::sleep(Duration::from_millis(50 + dice.below(400))).await;
        let fault = match dice.below(100) {
            0..35 => {
                let which = usize::try_from(dice.below(2)).unwrap();
                services[which].kill9();
                services[which].respawn();
                "service killed"
            }
            35..50 => {
                server.restart(StopMode::Immediate).await.unwrap();
                "n1 crashed"
            }
            50..65 => {
                network.set("yardmaster", Weather::Silent);
                "n2 fell silent"
            }
            65..80 => {
                network.set("yardmaster", Weather::Fair);
                "n2 was heard again"
            }
            80..90 => {
                db.sql("SELECT yardmaster.node_drain('n3')").await;
                "n3 was drained"
            }
            _ => {
                db.sql("SELECT yardmaster.node_resume('n3')").await;
                "n3 was resumed"
            }
        };
        *faults.entry(fault).or_default() += 1;
    }
    network.set("yardmaster", Weather::Fair);
    db.sql("SELECT yardmaster.node_resume('n3')").await;
    for job in &jobs {
        until("every job ends", async || {
            ["finished", "failed", "cancelled"].contains(&db.job(*job).await.as_str())
        })
        .await;
    }
    until("no scratch schema is left", async || {
        db.value("SELECT count(*) FROM yardmaster.scratch").await == "0"
    })
    .await;
    stop.send_replace(true);
    nodes[0].again().await;

    let mut effects: BTreeMap<i64, u32> = BTreeMap::new();
    for (node, watcher) in nodes.iter().zip(watchers) {
        for row in node.admin.query("SELECT k FROM public.ledger", &[]).await.unwrap() {
            *effects.entry(row.get(0)).or_default() += 1;
        }
        assert_eq!(node.value(LEFT_BEHIND).await, "0", "seed {seed}: a schema is left");
        let (most, looks) = watcher.await.unwrap();
        assert!(most <= LIMIT, "seed {seed}: {most} at once on {}", node.name);
        // A test in which nothing happened proves nothing.
        assert!(most > 0 && looks > 10, "{most} at once in {looks} looks");
    }
    let tasks = db.admin.query("SELECT substr(name, 2)::bigint, status::text FROM yardmaster.task", &[]);
    let failures = "SELECT coalesce(string_agg(format('%s on %s: %s', task_id, node, message), E'\n'), '') FROM yardmaster.attempt
        WHERE outcome = 'failed' AND sqlstate IS DISTINCT FROM '22012'";
    assert_eq!(db.value(failures).await, "", "seed {seed}: faults of nodes are no failures");
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for row in tasks.await.unwrap() {
        let (k, status): (i64, String) = (row.get(0), row.get(1));
        let times = effects.remove(&k).unwrap_or(0);
        assert_eq!(times, u32::from(status == "done"), "seed {seed}: task k{k} is {status}");
        *ends.entry(status).or_default() += 1;
    }
    assert!(effects.is_empty(), "seed {seed}: effects of nobody: {effects:?}");
    println!(
        "{faults:?}; {ends:?}; {} interruptions",
        db.value("SELECT sum(interruptions) FROM yardmaster.task").await
    );
    assert!(ends.get("done").is_some_and(|n| *n > 20), "{ends:?}");
}
