//! Acceptance people.md 9.

use std::collections::HashMap;

use prometheus_parse::{Scrape, Value};
use serde_json::json;

use crate::client::Site;
use crate::support::{Db, Launch, PATIENCE, Proxy, Service, Weather, eventually, until, yardmaster};

/// People 9.
#[tokio::test]
async fn readyz_tells_whether_the_catalog_answers_and_is_led() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let site = Site::of(&service).await;
    until("readyz is 200", async || site.get("/readyz").status == 200).await;
    let ready = site.get("/readyz").json();
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["epoch"], "1");
    assert_eq!(site.get("/livez").status, 200);
    // A leader that is silent for longer than it may be is none.
    db.sql("UPDATE yardmaster.leader_renewal SET renewed_at = now() - interval '1 hour'").await;
    db.sql("ALTER TABLE yardmaster.leader_renewal RENAME TO hidden").await;
    until("readyz is 503", async || site.get("/readyz").status == 503).await;
    assert_eq!(site.get("/livez").status, 200);
}

/// People 9.
#[tokio::test]
async fn without_a_database_it_is_live_and_not_ready() {
    let service = Launch::at("host=127.0.0.1 port=1 user=nobody dbname=none").spawn();
    let site = Site::of(&service).await;
    service.await_log("home is not usable").await;
    let ready = site.get("/readyz");
    assert_eq!((ready.status, ready.json()["ready"].clone()), (503, json!(false)));
    assert!(ready.json()["reason"].as_str().unwrap().contains("127.0.0.1"), "{}", ready.text);
    assert_eq!(site.get("/livez").status, 200);
    let figures = figures(&site);
    assert_eq!(figures["yardmaster_home_up"], 0.0);
    assert_eq!(figures["yardmaster_home_outages_total"], 1.0);
    let jobs = site.get("/");
    assert_eq!(jobs.status, 503);
    assert!(jobs.kind.starts_with("text/html"), "{}", jobs.kind);
}

/// People 9.
#[tokio::test]
async fn the_figures_parse_and_are_true() {
    let db = Db::new().await;
    let service = Launch::on(&db)
        .settings("[nodes.shelf]\nmax_task_executors = 3\n")
        .set("retry.max_retries", "0")
        .start()
        .await;
    let site = Site::of(&service).await;
    let job = db
        .submit(json!({ "task": [
            { "name": "a", "command": "SELECT 1" },
            { "name": "b", "command": "SELECT 1/0", "depends_on": ["a"] },
            { "name": "c", "command": "SELECT 1", "depends_on": ["b"] },
            { "name": "d", "command": "SELECT pg_sleep(600)", "nodes_involved": ["shelf"], "depends_on": ["a"] },
            { "name": "e", "command": "SELECT 1", "not_before": "2100-01-01T00:00:00Z" },
        ]}))
        .await;
    db.await_job(job, "failing").await;
    db.await_task(db.tasks(job).await[3], "running").await;
    let wanted = eventually(PATIENCE, async || {
        let figures = figures(&site);
        (figures.get("yardmaster_tasks{status=failed}") == Some(&2.0)
            && figures.get("yardmaster_tasks{status=running}") == Some(&1.0))
        .then_some(figures)
    });
    let figures = wanted.await.expect("the figures come");
    for (name, value) in [
        ("yardmaster_tasks{status=done}", 1.0),
        ("yardmaster_tasks{status=runnable}", 1.0),
        ("yardmaster_tasks{status=blocked}", 0.0),
        ("yardmaster_jobs{status=open}", 1.0),
        ("yardmaster_slots_used{node=all}", 1.0),
        ("yardmaster_slots_limit{node=all}", 4.0),
        ("yardmaster_slots_used{node=shelf}", 1.0),
        ("yardmaster_slots_limit{node=shelf}", 3.0),
        ("yardmaster_node_up{node=shelf}", 1.0),
        ("yardmaster_leading", 1.0),
        ("yardmaster_leader_epoch", 1.0),
        ("yardmaster_home_up", 1.0),
        ("yardmaster_home_outages_total", 0.0),
        ("yardmaster_oldest_runnable_age_seconds", 0.0),
        ("yardmaster_task_start_delay_seconds_count", 3.0),
        ("yardmaster_attempt_duration_seconds_count{outcome=done}", 1.0),
        ("yardmaster_attempt_duration_seconds_count{outcome=failed}", 1.0),
    ] {
        assert_eq!(figures.get(name), Some(&value), "{name} in {figures:#?}");
    }
}

/// Every sample by name and labels; a text that a parser does not take fails.
fn figures(site: &Site) -> HashMap<String, f64> {
    let answer = site.get("/metrics");
    assert_eq!(answer.status, 200);
    let lines = answer.text.lines().map(|line| Ok(line.to_owned()));
    let scrape = Scrape::parse(lines).unwrap();
    let mut figures = HashMap::new();
    for sample in scrape.samples {
        let labels = sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        match sample.value {
            Value::Counter(v) | Value::Gauge(v) | Value::Untyped(v) => {
                figures.insert(format!("{}{labels}", sample.metric), v);
            }
            Value::Histogram(buckets) => {
                let all = buckets.iter().find(|bucket| bucket.less_than.is_infinite()).unwrap();
                figures.insert(format!("{}_count{labels}", sample.metric), all.count);
            }
            Value::Summary(_) => panic!("there is no summary"),
        }
    }
    figures
}

/// An outage is counted once, however long it is.
#[tokio::test]
async fn an_outage_is_counted() {
    let db = Db::new().await;
    let proxy = Proxy::before(&db);
    let service = Launch::at(&proxy.url("yard_service", &db.name)).start().await;
    let site = Site::of(&service).await;
    // The network runs on this thread, which must not block.
    let beside = async || {
        let site = site.clone();
        tokio::task::spawn_blocking(move || (site.get("/readyz").status, figures(&site))).await.unwrap()
    };
    until("it is ready", async || beside().await.0 == 200).await;
    proxy.set("yardmaster", Weather::CutAfter(0));
    service.await_log("home is not usable").await;
    until("the figures tell", async || beside().await.1["yardmaster_home_up"] == 0.0).await;
    proxy.set("yardmaster", Weather::Fair);
    service.await_log("home is back").await;
    until("it is ready again", async || beside().await.0 == 200).await;
    assert_eq!(beside().await.1["yardmaster_home_outages_total"], 1.0);
}

/// Whoever starts a second service on one machine is told what to do.
#[tokio::test]
async fn a_port_in_use_is_a_clear_error() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("http.listen={}", holder.local_addr().unwrap());
    let told =
        yardmaster(&["serve", "--database", "host=127.0.0.1 port=1", "--set", &listen]).output().unwrap();
    let text = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(2), "{text}");
    assert!(text.contains(&listen.replace('=', " = ")) && text.contains("in use"), "{text}");
}
