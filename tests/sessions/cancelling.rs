//! Cancelling a run, and never anybody else's.

use std::time::Duration;

use crate::cluster::{Yard, committed, failed, plain};
use yardmaster::db::AttemptEnd;

#[tokio::test]
async fn a_cancel_ends_the_command_and_spends_the_session() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let (canceller, pid) = (s.canceller(), s.backend().pid);
    let cancel = async {
        yard.until(&format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep')"
        ))
        .await;
        canceller.cancel().await.unwrap()
    };
    let (end, sent) = tokio::join!(yard.run(&mut s, "CREATE TABLE t (); SELECT pg_sleep(60)"), cancel);
    assert!(sent);
    assert_eq!(failed(end, "57014"), "CREATE TABLE\nERROR: canceling statement due to user request");
    assert!(!s.is_reusable());
    assert_eq!(yard.value("SELECT to_regclass('t') IS NULL").await, "t");
    s.close(Duration::from_secs(5)).await;
    yard.until(&format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})")).await;
}

#[tokio::test]
async fn a_cancel_before_the_start_prevents_it_and_one_after_the_end_is_not_sent() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let old = s.canceller();
    committed(yard.run(&mut s, "SELECT 1").await);
    assert!(!old.cancel().await.unwrap());
    assert!(s.is_reusable());
    assert!(s.canceller().cancel().await.unwrap());
    assert!(!s.is_reusable());
    let end = yard.run(&mut s, "SELECT 1").await;
    assert_eq!(end, AttemptEnd::NotSent { message: "cancelled before the command was sent".into() });
}

#[tokio::test]
async fn somebodys_cancel_is_a_failure_and_their_terminate_a_doubt() {
    let yard = Yard::new().await;
    let sleeping = |pid| {
        format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep')")
    };
    for (call, fatal) in [("pg_cancel_backend", false), ("pg_terminate_backend", true)] {
        let mut s = yard.open().await;
        let pid = s.backend().pid;
        let act = async {
            yard.until(&sleeping(pid)).await;
            yard.value(&format!("SELECT {call}({pid})")).await
        };
        let (end, _) = tokio::join!(yard.run(&mut s, "SELECT pg_sleep(60)"), act);
        match end {
            AttemptEnd::Failed { sqlstate, .. } => assert!(!fatal && sqlstate == "57014"),
            AttemptEnd::Doubt { fatal: Some((sqlstate, _)), .. } => assert!(fatal && sqlstate == "57P01"),
            other => panic!("{other:?}"),
        }
        assert!(!s.is_reusable());
    }
}

#[tokio::test]
async fn a_cancel_at_any_moment_leaves_effect_and_record_together() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    committed(yard.run(&mut s, "CREATE TABLE t (i bigint)").await);
    let (mut done, mut not) = (0, 0);
    for round in 0..120u64 {
        let mut s = yard.open().await;
        let name = crate::cluster::new_attempt();
        let canceller = s.canceller();
        let cancel = async {
            tokio::time::sleep(Duration::from_micros(round * 37)).await;
            canceller.cancel().await.unwrap()
        };
        let command = format!("INSERT INTO t VALUES ({})", name.task);
        let (end, _) = tokio::join!(biased; yard.run_as(&mut s, name, &command), cancel);
        let found = yard
            .value(&format!(
                "SELECT (SELECT count(*) FROM t WHERE i = {0}) || ' ' || (SELECT count(*) FROM yardmaster.record WHERE task_id = {0})",
                name.task
            ))
            .await;
        match end {
            AttemptEnd::Committed { recorded: true, .. } => {
                assert_eq!(found, "1 1");
                done += 1;
            }
            AttemptEnd::Failed { .. } => {
                assert_eq!(found, "0 0", "{end:?}");
                not += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(done > 0 && not > 0, "both must have happened: {done} done, {not} not");
}

#[tokio::test]
async fn a_plain_command_is_cancelled_too() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let (canceller, pid) = (s.canceller(), s.backend().pid);
    let cancel = async {
        yard.until(&format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep')"
        ))
        .await;
        canceller.cancel().await.unwrap()
    };
    let order = plain("SELECT pg_sleep(60)");
    let (end, _) = tokio::join!(s.run_plain(&order), cancel);
    failed(end, "57014");
    assert!(!s.is_reusable());
}

/// In particular one that hits BEGIN: the command behind it must not run on its own.
#[tokio::test]
async fn a_storm_of_cancels_leaves_effect_and_record_together() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    committed(yard.run(&mut s, "CREATE TABLE t (i bigint)").await);
    let storm = yard.open_admin().await;
    let owner = yard.owner.clone();
    let storm = tokio::spawn(async move {
        let sql = format!(
            "DO $$BEGIN LOOP PERFORM pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = '{owner}'; \
             PERFORM pg_sleep(0.0002), pg_stat_clear_snapshot(); END LOOP; END$$"
        );
        let _ = storm.batch_execute(&sql).await;
    });
    let (mut done, mut not) = (0, 0);
    for _ in 0..150 {
        while !s.is_reusable() {
            // A cancel can hit the login's own question as well.
            if let Ok(again) =
                yardmaster::db::open(&yard.target(), &yard.owner, None, Duration::from_secs(5), 4096).await
            {
                s = again;
            }
        }
        let name = crate::cluster::new_attempt();
        let end = yard.run_as(&mut s, name, &format!("INSERT INTO t VALUES ({})", name.task)).await;
        let found = yard
            .value(&format!(
                "SELECT (SELECT count(*) FROM t WHERE i = {0}) || ' ' || (SELECT count(*) FROM yardmaster.record WHERE task_id = {0})",
                name.task
            ))
            .await;
        match end {
            AttemptEnd::Committed { recorded: true, .. } => {
                assert_eq!(found, "1 1");
                done += 1;
            }
            AttemptEnd::Failed { .. } => {
                assert_eq!(found, "0 0", "{end:?}");
                not += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    storm.abort();
    yard.value(&format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'DO%{}%'",
        yard.owner
    ))
    .await;
    assert!(done > 0 && not > 0, "both must have happened: {done} done, {not} not");
}
