//! Owners who mean harm, and owners who vanish: only their own tasks suffer.

use serde_json::json;
use tokio_postgres::Client;

use crate::ledger;
use crate::support::{Db, Launch, Service, until};

/// Submits a job of one task as whoever is connected; returns the task.
async fn submit_as(client: &Client, db: &Db, command: &str) -> i64 {
    let job = json!({ "task": [{ "command": command }] });
    let row = client.query_one("SELECT yardmaster.job_submit($1)", &[&job]).await.unwrap();
    db.tasks(row.get(0)).await[0]
}

/// Scenario 19: each of these as mallory, who may nothing; then bob's task runs as if nothing had been.
#[tokio::test]
async fn hostile_statements_gain_nothing_and_disturb_nobody() {
    let db = Db::new().await;
    let service =
        Launch::on(&db).set("limits.max_task_executors", "4").set("retry.max_retries", "0").start().await;
    // Roles are the server's: one of this test's own, since it spoils its own settings.
    db.sql("CREATE ROLE mallory LOGIN IN ROLE yardmaster_user; GRANT CREATE ON SCHEMA public TO mallory")
        .await;
    let (mallory, bob) = (db.connect("mallory").await, db.connect("bob").await);
    bob.batch_execute("CREATE TABLE public.bobs (who name, super text)").await.unwrap();
    bob.query_one("SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 42\", \"not_before\": \"2999-01-01\"}]}')", &[]).await.unwrap();
    let attacks = [
        ("RESET ROLE; SELECT * FROM yardmaster.secret", "error"),
        ("SET SESSION AUTHORIZATION yard_service", "error"),
        ("SET ROLE yardmaster_owner", "error"),
        ("DO $$ BEGIN EXECUTE 'SET ROLE postgres'; END $$", "error"),
        ("LOCK TABLE yardmaster.task_state", "error"),
        ("LOCK TABLE yardmaster.leadership IN EXCLUSIVE MODE", "error"),
        ("UPDATE yardmaster.task SET command = 'SELECT 666'", "error"),
        ("UPDATE yardmaster.task_state SET status = 'done'", "error"),
        ("INSERT INTO yardmaster.record SELECT task_id, task_key, 1, 'committed', 1, 1, task_key FROM yardmaster.task", "error"),
        ("SELECT yardmaster.complete(1, gen_random_uuid(), 1, 1, 1, gen_random_uuid(), 'guess'::bytea); CREATE TEMP TABLE x ()", "done"),
        ("SELECT 1 / count(*) FROM yardmaster.task WHERE owner = 'bob'", "error"),
        ("SELECT yardmaster.fence(1, gen_random_uuid())", "error"),
        ("SELECT pg_advisory_lock(8746397786917265764)", "done"),
        ("DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_notify('yardmaster', i::text); END LOOP; END $$", "done"),
        ("ALTER ROLE mallory SET search_path = pg_temp, public; ALTER ROLE mallory SET statement_timeout = '1ms'; ALTER ROLE mallory SET role = 'none';
          ALTER ROLE mallory SET client_min_messages = 'error'", "done"),
        ("CREATE TEMP TABLE task_state (i integer); CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'", "done"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT current_user; SET statement_timeout = '1ms'; SET yardmaster.notify = off", "done"),
        ("SET standard_conforming_strings = off; SET client_encoding = LATIN1; SET datestyle = 'German'", "done"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "error"),
    ];
    for (attack, end) in attacks {
        let task = submit_as(&mallory, &db, attack).await;
        db.await_task(task, end).await;
    }
    // A trigger that fires at the commit still runs as mallory.
    mallory.batch_execute(
        "CREATE TABLE public.trap (i integer);
              CREATE FUNCTION public.spring() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.caught SELECT current_user, session_user; RETURN NULL; END';
              CREATE TABLE public.caught (who name, session name);
              CREATE CONSTRAINT TRIGGER t AFTER INSERT ON public.trap DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.spring()").await.unwrap();
    db.sql("ALTER ROLE mallory RESET ALL").await;
    let task = submit_as(&mallory, &db, "INSERT INTO public.trap VALUES (1)").await;
    db.await_task(task, "done").await;
    assert_eq!(db.value("SELECT who || ' ' || session FROM public.caught").await, "mallory mallory");

    let row = bob
        .query_one("SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"INSERT INTO public.bobs SELECT current_user, current_setting(''is_superuser'')\"}]}')", &[])
        .await
        .unwrap();
    db.await_job(row.get(0), "finished").await;
    assert_eq!(db.value("SELECT who || ' ' || super FROM public.bobs").await, "bob off");
    assert_eq!(
        db.value("SELECT count(*) FROM yardmaster.task WHERE owner = 'bob' AND attempt = 0").await,
        "1",
        "bob's own is untouched"
    );
    assert_eq!(service.log().matches("office taken").count(), 1, "the service stayed up and in office");
}

/// Scenario 13.
#[tokio::test]
async fn a_session_shows_nothing_of_the_task_before() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    let residue = "SET work_mem = '1MB'; SET my.guc = 'left'; CREATE TEMP TABLE left_over (); PREPARE left_over AS SELECT 1; LISTEN left_over;
                   SELECT pg_advisory_lock(4711); DECLARE left_over CURSOR WITH HOLD FOR SELECT 1";
    let look = "SELECT 1 / (NOT EXISTS (SELECT FROM pg_prepared_statements) AND NOT EXISTS (SELECT FROM pg_cursors)
                AND NOT EXISTS (SELECT FROM pg_listening_channels()) AND to_regclass('pg_temp.left_over') IS NULL
                AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
                AND coalesce(current_setting('my.guc', true), '') = '' AND current_setting('work_mem') <> '1MB')::integer";
    for ending in ["", "; SELECT 1/0 FROM generate_series(1, 1)"] {
        let tasks = json!([
            { "name": "a", "command": format!("{residue}{ending}"), "retry": { "max_retries": 0 } },
            { "name": "b", "command": look, "retry": { "max_retries": 0 } },
        ]);
        let job = db.submit(json!({ "task": tasks })).await;
        until("both have ended", async || ["finished", "failed"].contains(&db.job(job).await.as_str())).await;
        assert_eq!(db.statuses(job).await[1], "done", "after {ending:?}");
    }
    // Cancelled while it holds all that.
    let (job, task) = db.submit_one(&format!("{residue}; SELECT pg_sleep(60)")).await;
    until("it sleeps", async || db.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()").await == "1").await;
    db.cancel(job).await;
    db.await_task(task, "cancelled").await;
    let (_, clean) = db.submit_one(look).await;
    db.await_task(clean, "done").await;
}

/// Scenario 20.
#[tokio::test]
async fn a_role_that_is_gone_stops_only_its_own_tasks() {
    let db = Db::new().await;
    ledger::make(&db).await;
    db.sql("CREATE ROLE goes_dropped LOGIN IN ROLE yardmaster_user; CREATE ROLE goes_nologin LOGIN IN ROLE yardmaster_user;
            CREATE ROLE goes_renamed LOGIN IN ROLE yardmaster_user").await;
    let _service = Launch::on(&db).set("retry.delays", "50ms").set("retry.max_retries", "1").start().await;
    let mut tasks = Vec::new();
    for role in ["goes_dropped", "goes_nologin", "goes_renamed"] {
        let client = db.connect(role).await;
        let submit = "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"SELECT 1\", \"not_before\": \"NOW+1s\"}]}')";
        let soon =
            db.value("SELECT to_char(now() + interval '1 second', 'YYYY-MM-DD HH24:MI:SS.MSOF')").await;
        let row = client.query_one(&submit.replace("NOW+1s", &soon), &[]).await.unwrap();
        tasks.push(db.tasks(row.get(0)).await[0]);
    }
    db.sql("DROP ROLE goes_dropped; ALTER ROLE goes_nologin NOLOGIN; ALTER ROLE goes_renamed RENAME TO has_renamed").await;
    for task in &tasks {
        let ended = db.await_task(*task, "error").await;
        assert!(ended.text().contains("goes_"), "the reason names the role: {}", ended.text());
    }
    db.sql("DROP ROLE has_renamed; DROP ROLE goes_nologin").await;
    let (_, good) = db.submit_one(&ledger::write(1, 0.0)).await;
    db.await_task(good, "done").await;
}

/// Scenario 20: who takes a dropped role's name is another, and never gets a session of the old one.
#[tokio::test]
async fn a_role_made_anew_gets_a_session_of_its_own() {
    let db = Db::new().await;
    let make = "CREATE ROLE comes_again LOGIN IN ROLE yardmaster_user";
    db.sql(make).await;
    let _service = Service::start(&db).await;
    let submit = async || {
        let client = db.connect("comes_again").await;
        let submit = "SELECT yardmaster.job_submit('{\"task\": [{\"command\": \"DO $$BEGIN RAISE NOTICE ''I am % by %'', current_user, pg_backend_pid(); END$$\"}]}')";
        let job = client.query_one(submit, &[]).await.unwrap().get(0);
        db.await_task(db.tasks(job).await[0], "done").await.text().to_owned()
    };
    assert!(submit().await.contains("I am comes_again by "));
    // All of them wait to be lent again.
    let waiting = "SELECT string_agg(pid::text, ',') FROM pg_stat_activity
                    WHERE usename = 'comes_again' AND datname = current_database() AND application_name LIKE 'yardmaster%'";
    db.await_true(&format!("SELECT ({waiting}) IS NOT NULL")).await;
    let old = db.value(waiting).await;
    db.sql("DROP ROLE comes_again").await;
    db.sql(make).await;
    let other = submit().await;
    assert!(other.contains("I am comes_again by "), "{other}");
    assert!(!old.split(',').any(|pid| other.contains(&format!(" by {pid}\n"))), "{other} after {old}");
    db.sql("DROP ROLE comes_again").await;
}

/// Scenario 33: an operator of the caller's is never executed with anybody else's rights.
#[tokio::test]
async fn operators_of_the_caller_are_not_used_by_our_functions() {
    let db = Db::new().await;
    let mut service = Service::start(&db).await;
    db.alice("CREATE TABLE public.ran_as (who name);
              CREATE FUNCTION public.spy(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS
                'BEGIN INSERT INTO public.ran_as VALUES (current_user); RETURN $1 OPERATOR(pg_catalog.=) $2; END';
              CREATE FUNCTION public.spy(text, text) RETURNS boolean LANGUAGE plpgsql AS
                'BEGIN INSERT INTO public.ran_as VALUES (current_user); RETURN $1 OPERATOR(pg_catalog.=) $2; END';
              CREATE OPERATOR public.= (FUNCTION = public.spy, LEFTARG = bigint, RIGHTARG = bigint);
              CREATE OPERATOR public.= (FUNCTION = public.spy, LEFTARG = text, RIGHTARG = text);
              GRANT ALL ON public.ran_as TO public").await;
    let submitter = db.connect("postgres").await;
    submitter.batch_execute("SET search_path = public, pg_catalog").await.unwrap();
    db.alice("SET search_path = public, pg_catalog").await;
    let job = db.submit(json!({ "key": "k", "task": [{ "name": "a", "command": "SELECT 1" }, { "command": "SELECT 1", "depends_on": ["a"] }] })).await;
    db.alice(&format!(
        "INSERT INTO yardmaster.job (description) VALUES ('plain'); SELECT yardmaster.job_pause({job}); SELECT yardmaster.job_resume({job});
         SELECT * FROM yardmaster.job; SELECT * FROM yardmaster.task; SELECT yardmaster.task_why(task_id) FROM yardmaster.task"
    ))
    .await;
    submitter
        .batch_execute(&format!("SELECT yardmaster.job_cancel({job}); SELECT * FROM yardmaster.task"))
        .await
        .unwrap();
    until("the job has ended", async || ["finished", "cancelled"].contains(&db.job(job).await.as_str()))
        .await;
    assert_eq!(
        db.value("SELECT string_agg(DISTINCT who, ',') FROM public.ran_as WHERE who <> 'alice'").await,
        ""
    );
    assert_eq!(service.stop().await, 0);
}
