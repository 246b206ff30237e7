//! Schedules: each tick makes its job once, whoever leads and whatever happened meanwhile.

use serde_json::{Value, json};

use crate::gate::Gate;
use crate::support::{Db, Launch, Service};

/// A schedule as alice: the rule, and a job of one task.
async fn schedule(db: &Db, rule: Value, command: &str) -> i64 {
    let file = json!({ "schedule": rule, "description": "again", "task": [{ "command": command }] });
    db.alice.query_one("SELECT yardmaster.schedule_submit($1)", &[&file]).await.unwrap().get(0)
}

/// What alice is told when she submits this.
async fn refusal(db: &Db, file: Value) -> String {
    let e = db.alice.query_one("SELECT yardmaster.schedule_submit($1)", &[&file]).await.unwrap_err();
    e.as_db_error().unwrap().message().to_owned()
}

fn outcomes(outcome: &str, comparison: &str) -> String {
    format!("SELECT count(*) {comparison} FROM yardmaster.schedule_tick WHERE outcome = '{outcome}'")
}

#[tokio::test]
async fn each_tick_makes_one_job_with_several_services_and_a_kill() {
    let db = Db::new().await;
    db.alice("CREATE TABLE r (v int)").await;
    let mut first = Service::start(&db).await;
    let _second = Launch::on(&db).start_standby().await;
    let rule = json!({ "name": "often", "every": "1s", "overlap": "allow", "catch_up": "all" });
    let id = schedule(&db, rule.clone(), "INSERT INTO r VALUES (1)").await;
    assert_eq!(schedule(&db, rule, "INSERT INTO r VALUES (1)").await, id, "the same is the same schedule");
    db.await_true(&outcomes("made", ">= 2")).await;
    first.kill9();
    // Also those that came while nobody led.
    db.await_true(&outcomes("made", ">= 5")).await;
    db.alice(&format!("SELECT yardmaster.schedule_pause({id})")).await;
    db.await_true("SELECT paused AND next_tick IS NULL FROM yardmaster.schedule").await;
    db.await_true("SELECT next_tick IS NULL FROM yardmaster.schedule_state").await;
    db.await_true("SELECT NOT EXISTS (SELECT FROM yardmaster.job WHERE finished_at IS NULL)").await;
    let all = "SELECT count(*) = count(DISTINCT tick) AND count(*) = count(DISTINCT job_id)
                      AND count(*) = (SELECT count(*) FROM yardmaster.job WHERE state = 'finished' AND owner = 'alice')
                      AND count(*) = (SELECT count(*) FROM r)
                      AND max(tick) - min(tick) = (count(*) - 1) * interval '1 second'
                 FROM yardmaster.schedule_tick WHERE outcome = 'made'";
    assert_eq!(db.value(all).await, "t");
}

#[tokio::test]
async fn a_tick_is_skipped_or_waits_while_the_job_before_runs() {
    let db = Db::new().await;
    let (skipping, queueing) = (Gate::close(&db, 1).await, Gate::close(&db, 2).await);
    let _service = Launch::on(&db).settings("[limits]\nmax_task_executors = 9").start().await;
    schedule(&db, json!({ "name": "skips", "every": "1s" }), &skipping.command()).await;
    let rule = json!({ "name": "queues", "cron": "* * * * * *", "overlap": "queue" });
    let queues = schedule(&db, rule, &queueing.command()).await;
    db.await_true(&outcomes("overlaps", ">= 2")).await;
    db.await_true(&outcomes("made", "= 2")).await;
    queueing.open().await;
    let second = format!(
        "SELECT count(*) >= 2 FROM yardmaster.schedule_tick WHERE outcome = 'made' AND schedule_id = {queues}"
    );
    db.await_true(&second).await;
    let early = "SELECT count(*) FROM yardmaster.schedule_tick a JOIN yardmaster.job j ON j.job_id = a.job_id
                  WHERE EXISTS (SELECT FROM yardmaster.schedule_tick b JOIN yardmaster.job k ON k.job_id = b.job_id
                                 WHERE b.schedule_id = a.schedule_id AND b.tick < a.tick AND k.finished_at > j.submitted_at)";
    assert_eq!(db.value(early).await, "0");
    skipping.open().await;
}

#[tokio::test]
async fn what_was_missed_is_made_good_once_and_a_pause_is_not() {
    let db = Db::new().await;
    let mut service = Service::start(&db).await;
    let missed = schedule(&db, json!({ "name": "missed", "every": "1h" }), "SELECT 1").await;
    let paused = schedule(&db, json!({ "name": "paused", "every": "1h" }), "SELECT 1").await;
    db.alice(&format!("SELECT yardmaster.schedule_pause({paused})")).await;
    let noticed = "SELECT count(*) FILTER (WHERE next_tick IS NOT NULL) = 1 AND count(*) FILTER (WHERE paused) = 1 FROM yardmaster.schedule";
    db.await_true(noticed).await;
    assert_eq!(service.stop().await, 0);
    // As if it had been away for three hours and a half.
    db.sql(
        "UPDATE yardmaster.schedule_spec SET submitted_at = submitted_at - interval '3.5 hours';
         UPDATE yardmaster.schedule_state SET next_tick = next_tick - interval '3.5 hours'",
    )
    .await;
    db.alice(&format!("SELECT yardmaster.schedule_resume({paused})")).await;
    service.restart().await;
    db.await_true(&outcomes("made", "= 1")).await;
    db.await_true("SELECT count(*) = 2 FROM yardmaster.schedule WHERE next_tick > now()").await;
    let told = format!(
        "SELECT string_agg(schedule_id || outcome, ' ' ORDER BY tick) = '{missed}missed {missed}missed {missed}made' FROM yardmaster.schedule_tick"
    );
    assert_eq!(
        db.value(&told).await,
        "t",
        "{}",
        db.value(
            "SELECT string_agg(schedule_id || outcome, ' ' ORDER BY tick) FROM yardmaster.schedule_tick"
        )
        .await
    );
}

#[tokio::test]
async fn mistakes_are_told_at_once_and_others_see_nothing() {
    let db = Db::new().await;
    let file = |rule: Value, task: Value| json!({ "schedule": rule, "task": [task] });
    let good = json!({ "command": "SELECT 1" });
    let hourly = json!({ "name": "n", "cron": "0 * * * *" });
    let cases = [
        (file(json!({ "name": "n" }), good.clone()), "schedule \"n\" has neither cron nor every"),
        (file(json!({ "name": "n", "every": "1s", "cron": "* * * * *" }), good.clone()), "has both"),
        (
            file(json!({ "name": "n", "every": "1s", "time_zone": "Mars/Base" }), good.clone()),
            "\"Mars/Base\" not recognized",
        ),
        (
            file(json!({ "name": "n", "every": "1s", "overlap": "dance" }), good.clone()),
            "schedule_spec_overlap_check",
        ),
        (file(json!({ "name": "n", "evry": "1s" }), good), "unknown key \"evry\" in the schedule"),
        (
            file(hourly.clone(), json!({ "command": "SELECT 1", "owner": "bob" })),
            "one of its tasks to \"bob\"",
        ),
        (file(hourly.clone(), json!({ "command": " " })), "must not be empty"),
        (json!({ "schedule": hourly, "key": "k", "task": [] }), "has a key"),
    ];
    for (file, words) in cases {
        let told = refusal(&db, file.clone()).await;
        assert!(told.contains(words), "{file}: {told}");
    }
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.job").await, "0", "a trial leaves nothing");

    let id = schedule(&db, json!({ "name": "n", "cron": "0 0 30 2 *" }), "SELECT 1").await;
    let bob = db.connect("bob").await;
    assert_eq!(bob.query("SELECT FROM yardmaster.schedule", &[]).await.unwrap().len(), 0);
    for verb in ["pause", "resume", "delete"] {
        let e = bob.execute(&format!("SELECT yardmaster.schedule_{verb}($1)"), &[&id]).await.unwrap_err();
        assert!(e.as_db_error().unwrap().message().ends_with("does not exist"), "{e:?}");
        let forged = format!(
            "INSERT INTO yardmaster.schedule_change (change_id, schedule_id, kind) VALUES (nextval('yardmaster.schedule_change_change_id_seq'), {id}, '{verb}')"
        );
        bob.execute(&forged, &[]).await.unwrap_err();
    }
    let stolen =
        "INSERT INTO yardmaster.schedule (name, owner, every, job) VALUES ('x', 'alice', '1s', '{}')";
    bob.execute(stolen, &[]).await.unwrap_err();
    db.alice.execute("UPDATE yardmaster.schedule SET name = 'x'", &[]).await.unwrap_err();

    // A pattern that only the leader can read is told on the schedule.
    let _service = Service::start(&db).await;
    db.await_true("SELECT error LIKE '%never comes true' AND next_tick IS NULL FROM yardmaster.schedule")
        .await;
    // Another rule under the same name takes its place; a deleted one is gone.
    let other = schedule(&db, json!({ "name": "n", "every": "1d" }), "SELECT 1").await;
    db.await_true(&format!(
        "SELECT count(*) = 1 AND min(schedule_id) = {other} FROM yardmaster.schedule_spec"
    ))
    .await;
    db.alice(&format!("SELECT yardmaster.schedule_delete({other})")).await;
    db.await_true("SELECT count(*) = 0 FROM yardmaster.schedule_spec").await;
}

#[tokio::test]
async fn a_tick_needs_the_rights_that_its_schedule_was_made_with() {
    let db = Db::new().await;
    db.sql("CREATE ROLE deputy LOGIN IN ROLE yardmaster_user; CREATE ROLE boss LOGIN IN ROLE yardmaster_user; GRANT boss TO deputy").await;
    let deputy = db.connect("deputy").await;
    let sql = "INSERT INTO yardmaster.schedule (name, owner, every, job) VALUES ('theirs', 'boss', '1s', '{\"task\": [{\"command\": \"SELECT 1\"}]}')";
    deputy.execute(sql, &[]).await.unwrap();
    let _service = Service::start(&db).await;
    db.await_true(&outcomes("made", ">= 1")).await;
    db.sql("REVOKE boss FROM deputy").await;
    db.await_true(&outcomes("refused", ">= 1")).await;
    assert_eq!(
        db.value("SELECT error FROM yardmaster.schedule").await,
        "role \"deputy\", which made the schedule, may not become \"boss\" any more"
    );
    assert_eq!(db.value("SELECT count(DISTINCT owner) || min(owner) FROM yardmaster.job").await, "1boss");
}
