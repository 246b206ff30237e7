//! Pictures of the pages with real data, for `docs/`: `make screenshots` runs this.

use serde_json::{Value, json};

use crate::client::{Site, with_token};
use crate::driver::Browser;
use crate::support::{Db, Launch, until};

fn nightly() -> Value {
    let regions = ["north", "south", "east", "west", "core", "edge"];
    let mut tasks: Vec<Value> = Vec::new();
    for (layer, verb) in ["extract", "load", "index", "sum", "report"].into_iter().enumerate() {
        for (i, region) in regions.iter().enumerate() {
            let mut depends_on = Vec::new();
            if let Some(before) = layer.checked_sub(1).map(|l| ["extract", "load", "index", "sum"][l]) {
                depends_on.push(format!("{before}-{region}"));
                if i % 2 == 0 {
                    depends_on.push(format!("{before}-{}", regions[i + 1]));
                }
            }
            if layer == 3 && i == 2 {
                depends_on.push("extract-east".to_owned());
            }
            let command = match (verb, *region) {
                ("load", "east") => {
                    "DO $$ BEGIN RAISE NOTICE 'loading 3 files'; END $$; SELECT 100 / 0 AS share".to_owned()
                }
                ("report", "core") => "SELECT pg_sleep(3600)".to_owned(),
                _ => format!("SELECT pg_sleep({})", 0.2 + 0.15 * i as f64),
            };
            let node = ["shelf-1", "shelf-2"][i % 2];
            tasks.push(json!({ "name": format!("{verb}-{region}"), "command": command, "depends_on": depends_on,
                "nodes_involved": [node], "retry": { "max_retries": 1, "delays": ["500ms"], "permanent_sqlstates": [] } }));
        }
    }
    json!({ "description": "Nightly totals of six regions", "job_type": "nightly", "task": tasks })
}

#[tokio::test]
#[ignore = "makes pictures: make screenshots"]
async fn pictures_for_the_documentation() {
    let browser = Browser::start(1280, 800).expect("chromedriver is installed: scripts/setup browser");
    let db = Db::new().await;
    let settings = "[limits]\nmax_task_executors = 8\n[nodes.shelf-1]\nmax_task_executors = 3\n[nodes.shelf-2]\nmax_task_executors = 3\n";
    let (launch, _file) = with_token(Launch::on(&db).settings(settings).set("instance_name", "yard-1"));
    let service = launch.start().await;
    let site = Site::of(&service).await;
    for (description, tasks, command) in
        [("Vacuum the archive", 3, "SELECT 1"), ("Import of returns", 4, "SELECT * FROM return_2026_11")]
    {
        let tasks: Vec<Value> =
            (1..=tasks).map(|i| json!({ "name": format!("part-{i}"), "command": command })).collect();
        let job = db.submit(json!({ "description": description, "task": tasks })).await;
        db.await_true(&format!("SELECT finished_at IS NOT NULL FROM yardmaster.job WHERE job_id = {job}"))
            .await;
    }
    let job = db.submit(nightly()).await;
    let tasks: Vec<Value> = (1..=40)
        .map(|i| json!({ "name": format!("part-{i:02}"), "command": "SELECT pg_sleep(3)" }))
        .collect();
    let other =
        db.submit(json!({ "description": "Rebuild the search index", "priority": -1, "task": tasks })).await;
    db.submit(json!({ "description": "Year's end", "task": [{ "command": "SELECT 1", "not_before": "2100-12-31T22:00:00Z" }] })).await;
    let waited = format!(
        "SELECT count(*) = 1 AND bool_and(name = 'report-core') FROM yardmaster.task WHERE job_id = {job} AND status NOT IN ('done', 'error', 'unscheduled')"
    );
    db.await_true(&waited).await;
    db.await_true(&format!("SELECT tasks_done > 3 FROM yardmaster.job WHERE job_id = {other}")).await;
    let failed = db
        .value(&format!("SELECT task_id FROM yardmaster.task WHERE job_id = {job} AND status = 'error'"))
        .await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, path, width, height, dark) in [
        ("jobs", "/".to_owned(), 1280, 620, false),
        ("job", format!("/jobs/{job}"), 1280, 1180, false),
        ("job-dark", format!("/jobs/{job}"), 1280, 1180, true),
        ("task", format!("/tasks/{failed}"), 1280, 860, false),
        ("nodes", "/nodes".to_owned(), 1280, 720, false),
        ("jobs-narrow", "/".to_owned(), 400, 800, true),
        ("job-narrow", format!("/jobs/{job}"), 400, 800, false),
    ] {
        browser.resize(width, height);
        browser.dark(dark);
        browser.go(&format!("{}{path}", site.root));
        until("the page is live", async || browser.text(".live") == "live").await;
        std::fs::write(folder.join(format!("{name}.png")), browser.picture()).unwrap();
    }
}
