//! Scratch schemas: made for a job, found by its tasks, gone afterwards.

use std::time::Duration;

use serde_json::{Value, json};
use yardmaster::cluster::StopMode;

use crate::node::NodeDb;
use crate::support::{Db, Launch, eventually, own, until, yardmaster};

/// Schemas of ours there.
const SCHEMAS: &str = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^yardmaster_.'";
/// The one there is.
const SCHEMA: &str = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^yardmaster_.'";
const FILL: &str = "CREATE UNLOGGED TABLE a AS SELECT g FROM generate_series(1,1000) g";

const NONE: &[&str] = &[];

async fn node(which: usize) -> NodeDb {
    let node = NodeDb::new(which).await;
    allow(&node).await;
    node
}

/// Owners make the schemas themselves.
async fn allow(node: &NodeDb) {
    node.admin.batch_execute(&format!("GRANT CREATE ON DATABASE {} TO alice, bob", node.name)).await.unwrap();
}

fn task<S: serde::Serialize>(name: &str, node: &str, command: &str, after: &[S]) -> Value {
    json!({ "name": name, "command": command, "node": node, "depends_on": after })
}

async fn rows(db: &Db) -> String {
    let sql = "SELECT coalesce(string_agg(format('%s %s', node, state), ', ' ORDER BY node, state), '') FROM yardmaster.scratch";
    db.value(sql).await
}

async fn await_clean(db: &Db, nodes: &[&NodeDb]) {
    until("the catalog knows of no scratch schema", async || rows(db).await.is_empty()).await;
    for node in nodes {
        assert_eq!(node.value(SCHEMAS).await, "0");
    }
}

/// Scenarios 12 and 13.
#[tokio::test]
async fn scenarios_12_and_13_tasks_share_their_jobs_schema_which_clean_up_drops() {
    let db = Db::new().await;
    let (n1, n2) = (node(0).await, node(1).await);
    let settings = format!("{}{}", n1.settings("n1"), n2.settings("n2"));
    let _service = Launch::on(&db).settings(&settings).start().await;
    let job = |cleanup: &str| {
        json!({ "scratch": true, "cleanup": cleanup, "task": [
            task("fill", "n1", FILL, NONE),
            task("fill too", "n2", FILL, NONE),
            task("look", "n1", "DO $$ BEGIN ASSERT (SELECT count(*) FROM a) = 1000; END $$", &["fill"]),
        ] })
    };
    let kept = db.submit(job("never")).await;
    db.await_job(kept, "finished").await;
    let schema = n1.value(SCHEMA).await;
    assert_eq!(n2.value(SCHEMA).await, schema, "one name everywhere");
    let owner = format!("SELECT tableowner FROM pg_tables WHERE schemaname = '{schema}' AND tablename = 'a'");
    assert_eq!(n1.value(&owner).await, "alice");
    let cli =
        yardmaster(&["node", "scratch", "-o", "json"]).env("DATABASE_URL", db.url("alice")).output().unwrap();
    let listed: Value = serde_json::from_slice(&cli.stdout).unwrap();
    assert_eq!((&listed[1]["node"], &listed[1]["state"]), (&json!("n2"), &json!("kept")), "{listed}");
    let bob = n1.server.connect("bob", &n1.name).await;
    let denied = bob.query(&format!("SELECT * FROM {schema}.a"), &[]).await.unwrap_err();
    assert_eq!(denied.code().unwrap().code(), "42501");
    // Another job with a table of that name is a world of its own, and goes when it ends.
    let other = db.submit(job("on_end")).await;
    db.await_job(other, "finished").await;
    until("the other is clean", async || rows(&db).await == "n1 kept, n2 kept").await;
    assert_eq!(n1.value(SCHEMAS).await, "1");
    for _ in 0..2 {
        db.alice(&format!("SELECT yardmaster.job_cleanup({kept})")).await;
        await_clean(&db, &[&n1, &n2]).await;
    }
    db.await_true("SELECT bool_and(outcome ~ 'is finished') FROM yardmaster.request").await;
    let alive = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^yardmaster [0-9]+/'";
    until("nothing of it is alive", async || n1.value(alive).await == "0").await;
}

/// Scenario 11.
#[tokio::test]
async fn scenario_11_nothing_is_made_before_the_commit_and_nothing_after_a_rollback() {
    let db = Db::new().await;
    let n1 = node(0).await;
    let _service = Launch::on(&db).settings(&n1.settings("n1")).start().await;
    let submit = |k: i32| {
        let file = json!({ "scratch": true, "cleanup": "never",
            "task": [task("t", "n1", &format!("CREATE TABLE here(); INSERT INTO ledger VALUES ({k})"), NONE)] });
        format!("SELECT yardmaster.job_submit('{file}')")
    };
    db.alice(&format!("BEGIN; {}; ROLLBACK", submit(44))).await;
    db.alice(&format!("BEGIN; {}; SELECT pg_sleep(1)", submit(1))).await;
    assert_eq!(n1.value(SCHEMAS).await, "0");
    n1.is_exactly(0).await;
    db.alice("COMMIT").await;
    db.await_true("SELECT count(*) = 1 AND bool_and(state = 'finished') FROM yardmaster.job").await;
    n1.is_exactly(1).await;
    let here = "SELECT n.nspname ~ '^yardmaster_.' FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = 'here'";
    assert_eq!(n1.value(here).await, "t");
}

/// Many tables: no statement takes more locks than there is room for.
async fn many(tables: u32) {
    let db = Db::new().await;
    let (_server, private) = own(&[("max_connections", "20")]).await;
    let n1 = NodeDb::on(private).await;
    allow(&n1).await;
    let _service = Launch::on(&db).settings(&n1.settings("n1")).start().await;
    // Made in parts: making them needs locks, too.
    let part = |k| {
        let sql = format!(
            "DO $$ BEGIN FOR i IN 1..500 LOOP EXECUTE format('CREATE TABLE t%s (id bigserial PRIMARY KEY, x text)', {k} * 500 + i); END LOOP; END $$"
        );
        // One after another.
        let before = format!("part {}", k - 1);
        task(&format!("part {k}"), "n1", &sql, if k == 0 { &[] } else { std::slice::from_ref(&before) })
    };
    let tasks: Vec<Value> = (0..i64::from(tables / 500)).map(part).collect();
    let job = db.submit(json!({ "scratch": true, "task": tasks })).await;
    let long = Duration::from_secs(600);
    let done = eventually(long, async || (db.job(job).await == "finished").then_some(())).await;
    assert!(done.is_some(), "{:?}", db.statuses(job).await);
    let clean = eventually(long, async || rows(&db).await.is_empty().then_some(())).await;
    assert!(clean.is_some(), "{}", db.value("SELECT reason FROM yardmaster.scratch").await);
    assert_eq!(n1.value(SCHEMAS).await, "0");
}

/// Scenario 14, shortened: still more than one transaction of that server has locks for.
#[tokio::test]
async fn scenario_14_clean_up_of_many_tables_goes_in_batches() {
    many(1000).await;
}

/// Scenario 14.
#[tokio::test]
#[ignore = "slow: make test-slow"]
async fn scenario_14_clean_up_of_12000_tables() {
    many(12_000).await;
}

/// Scenario 15; and the service is killed meanwhile.
#[tokio::test]
async fn scenario_15_clean_up_waits_for_a_node_that_is_down() {
    let db = Db::new().await;
    let n1 = node(0).await;
    let (mut server, private) = own(&[]).await;
    let mut n2 = NodeDb::on(private).await;
    allow(&n2).await;
    let settings = format!("{}{}", n1.settings("n1"), n2.settings("n2"));
    let mut service = Launch::on(&db).settings(&settings).start().await;
    let tasks = [task("one", "n1", FILL, NONE), task("two", "n2", FILL, NONE)];
    let job = db.submit(json!({ "scratch": true, "cleanup": "never", "task": tasks })).await;
    db.await_job(job, "finished").await;
    crate::health::stop(&mut server).await;
    db.alice(&format!("SELECT yardmaster.job_cleanup({job})")).await;
    db.await_true(
        "SELECT count(*) = 1 AND bool_and(node = 'n2' AND reason ~ 'PGSQL') FROM yardmaster.scratch",
    )
    .await;
    assert_eq!(n1.value(SCHEMAS).await, "0");
    service.kill9();
    server.restart(StopMode::Immediate).await.unwrap();
    service.restart().await;
    n2.again().await;
    await_clean(&db, &[&n2]).await;
}

/// Policies; a failed job's schema is there until it is retried to its good end.
#[tokio::test]
async fn a_failed_job_keeps_its_schema_until_it_succeeds() {
    let db = Db::new().await;
    db.sql(&format!("GRANT CREATE ON DATABASE {} TO alice", db.name)).await;
    let _service = Launch::on(&db).start().await;
    let job = db
        .submit(json!({ "scratch": true, "cleanup": "on_success", "retry": { "max_retries": 0 }, "task": [
            { "name": "fill", "command": FILL },
            { "name": "fail", "command": "SELECT 1/0 FROM a", "depends_on": ["fill"] },
        ] }))
        .await;
    db.await_job(job, "failed").await;
    let why = db.value("SELECT reason FROM yardmaster.scratch").await;
    assert_eq!(why, format!("job {job} is failed, and its clean-up policy is on_success"));
    let task = db.tasks(job).await[1];
    db.alice(&format!("SELECT yardmaster.task_retry({task}, 'SELECT count(*) FROM a')")).await;
    db.await_job(job, "finished").await;
    until("it is dropped", async || rows(&db).await.is_empty()).await;
    assert_eq!(db.value(SCHEMAS).await, "0");
}

/// What the owner may not make is a failure of that task, which says what to grant; a lock held by somebody is the reason
/// that is shown while the schema remains; and what nobody knows of is dropped, if it is ours.
#[tokio::test]
async fn reasons_are_told_and_orphans_of_this_installation_only_are_dropped() {
    let db = Db::new().await;
    let n1 = NodeDb::new(0).await;
    let mut service = Launch::on(&db).settings(&n1.settings("n1")).start().await;
    let fill = || json!({ "scratch": true, "task": [task("fill", "n1", FILL, NONE)] });
    let denied = db.submit(fill()).await;
    db.await_job(denied, "failed").await;
    let told = db.task(db.tasks(denied).await[0]).await;
    assert_eq!(told.sqlstate.as_deref(), Some("42501"), "{}", told.text());
    assert!(told.text().contains("HINT: GRANT CREATE ON DATABASE"), "{}", told.text());

    allow(&n1).await;
    let mut held = fill();
    held["cleanup"] = json!("never");
    let job = db.submit(held).await;
    db.await_job(job, "finished").await;
    let schema = n1.value(&format!("{SCHEMA} ORDER BY oid DESC LIMIT 1")).await;
    n1.admin.batch_execute(&format!("BEGIN; LOCK TABLE {schema}.a")).await.unwrap();
    db.alice(&format!("SELECT yardmaster.job_cleanup({job})")).await;
    db.await_true("SELECT count(*) = 1 AND bool_and(reason ~ 'lock timeout') FROM yardmaster.scratch").await;
    n1.admin.batch_execute("COMMIT").await.unwrap();
    await_clean(&db, &[&n1]).await;

    let prefix = db.value("SELECT yardmaster.scratch_prefix()").await;
    let alice = n1.server.connect("alice", &n1.name).await;
    let orphans = format!("CREATE SCHEMA {prefix}4711_cafe; CREATE SCHEMA yardmaster_0123456789ab_4711_cafe");
    alice.batch_execute(&orphans).await.unwrap();
    service.kill9();
    service.restart().await;
    until("ours is dropped", async || n1.value(SCHEMAS).await == "1").await;
    assert_eq!(n1.value(SCHEMA).await, "yardmaster_0123456789ab_4711_cafe");
    until("nothing is left to do", async || rows(&db).await.is_empty()).await;
}

/// Kills at all times leave no schema behind, and tasks find their schema.
#[tokio::test]
async fn kills_of_the_service_leave_no_schema_behind() {
    let db = Db::new().await;
    let n1 = node(0).await;
    let mut service =
        Launch::on(&db).settings(&n1.settings("n1")).set("limits.max_task_executors", "16").start().await;
    for k in 0..12 {
        let tasks = [
            task("make", "n1", &format!("CREATE TABLE a AS SELECT {k} AS k; SELECT pg_sleep(0.1)"), NONE),
            task("use", "n1", "INSERT INTO ledger SELECT k + 1 FROM a; SELECT pg_sleep(0.1)", &["make"]),
        ];
        db.submit(json!({ "scratch": true, "task": tasks })).await;
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        service.kill9();
        service.restart().await;
    }
    db.await_true("SELECT bool_and(state = 'finished') FROM yardmaster.job").await;
    n1.is_exactly(12).await;
    await_clean(&db, &[&n1]).await;
}
