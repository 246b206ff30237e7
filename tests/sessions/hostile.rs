//! Residue, and commands that try to be more than they are.

use crate::cluster::{Yard, committed, failed};
use yardmaster::db::AttemptEnd;

#[tokio::test]
async fn nothing_is_left_for_the_next_task() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let pid = s.backend().pid;
    yard.admin
        .batch_execute(&format!("CREATE ROLE other{pid}; GRANT other{pid} TO {}", yard.owner))
        .await
        .unwrap();
    let residue = format!(
        "SET work_mem = '7MB'; SET my.own = 'x'; CREATE TEMP TABLE tt (i int); PREPARE p AS SELECT 1; LISTEN ch; \
         SELECT pg_advisory_lock(42); DECLARE c CURSOR WITH HOLD FOR SELECT 1; SET search_path = pg_temp; \
         SET client_min_messages = error; SET statement_timeout = '1min'; SET ROLE other{pid}"
    );
    committed(yard.run(&mut s, &residue).await);
    let AttemptEnd::Succeeded { .. } = s.run_plain(&crate::cluster::plain(&residue)).await else { panic!() };
    assert!(s.is_reusable());
    let look = "DO $$BEGIN RAISE NOTICE '% % % % % % % % %', current_setting('work_mem'), current_setting('my.own', true), \
        to_regclass('pg_temp.tt'), (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()), \
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), \
        (SELECT count(*) FROM pg_cursors WHERE is_holdable), current_schema(), current_user; END$$";
    let message = committed(yard.run(&mut s, look).await);
    let clean = format!("NOTICE: 4MB  <NULL> 0 0 0 0 public {}\n", yard.owner);
    assert!(message.starts_with(&clean), "{message}");
}

#[tokio::test]
async fn the_role_stays_the_owners() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    for escape in
        ["SELECT 1", "RESET ROLE", "RESET SESSION AUTHORIZATION", "SET SESSION AUTHORIZATION DEFAULT"]
    {
        let command = format!("{escape}; DO $$BEGIN RAISE NOTICE '% %', session_user, current_user; END$$");
        let message = committed(yard.run(&mut s, &command).await);
        assert!(message.contains(&format!("NOTICE: {0} {0}\n", yard.owner)), "{message}");
    }
    failed(yard.run(&mut s, "SET SESSION AUTHORIZATION postgres").await, "42501");
    failed(yard.run(&mut s, "SET ROLE postgres").await, "42501");
    failed(yard.run(&mut s, "CREATE ROLE x").await, "42501");
    assert!(s.is_reusable());
}

#[tokio::test]
async fn the_roles_own_settings_cannot_weaken_ours_but_its_search_path_holds() {
    let yard = Yard::new().await;
    let owner = &yard.owner;
    let other = format!("{owner}_other");
    yard.admin
        .batch_execute(&format!(
            "CREATE ROLE {other}; GRANT {other} TO {owner}; CREATE SCHEMA mine AUTHORIZATION {owner}"
        ))
        .await
        .unwrap();
    for setting in [
        "statement_timeout = '1ms'",
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '1ms'",
        "idle_session_timeout = '1ms'",
        "client_min_messages = error",
        "client_encoding = 'LATIN1'",
        "standard_conforming_strings = off",
        "synchronous_commit = off",
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "exit_on_error = on",
        "client_connection_check_interval = 0",
        "search_path = mine",
        "application_name = 'forged'",
        &format!("role = '{other}'"),
    ] {
        yard.admin.batch_execute(&format!("ALTER ROLE {owner} SET {setting}")).await.unwrap();
    }
    let mut s = yard.open().await;
    let look = "SELECT pg_sleep(0.02); DO $$DECLARE n text; a text := ''; BEGIN FOREACH n IN ARRAY ARRAY['statement_timeout', 'lock_timeout', \
        'idle_in_transaction_session_timeout', 'idle_session_timeout', 'client_encoding', 'standard_conforming_strings', \
        'synchronous_commit', 'transaction_isolation', 'transaction_deferrable', 'exit_on_error', \
        'client_connection_check_interval', 'search_path', 'role'] LOOP a := a || current_setting(n) || ' '; END LOOP; \
        RAISE NOTICE '% %', btrim(a), current_user; END$$";
    for _ in 0..2 {
        let message = committed(yard.run(&mut s, look).await);
        let expected = format!("NOTICE: 0 0 1min 0 UTF8 on on read committed off off 1s mine none {owner}\n");
        assert!(message.contains(&expected), "{message}");
        // exit_on_error would have ended the session here.
        failed(yard.run(&mut s, "SELECT 1/0").await, "22012");
    }
    assert!(s.is_reusable());
}

#[tokio::test]
async fn objects_named_like_ours_are_not_taken_for_ours() {
    let yard = Yard::new().await;
    yard.admin
        .batch_execute(&format!("GRANT CREATE ON DATABASE {} TO {}", yard.database, yard.owner))
        .await
        .unwrap();
    yard.admin
        .batch_execute(&format!("ALTER ROLE {} SET search_path = evil, pg_catalog", yard.owner))
        .await
        .unwrap();
    let mut s = yard.open().await;
    let evil = "CREATE SCHEMA evil; CREATE TABLE evil.record (i int); CREATE TABLE evil.secret (i int); \
        CREATE FUNCTION evil.eq(a integer, b integer) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'taken'; END$$; \
        CREATE OPERATOR evil.= (LEFTARG = integer, RIGHTARG = integer, FUNCTION = evil.eq); \
        CREATE FUNCTION evil.pg_backend_pid() RETURNS integer LANGUAGE plpgsql AS $$BEGIN RAISE 'taken'; END$$; \
        CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE plpgsql AS $$BEGIN RAISE 'taken'; END$$";
    committed(yard.run(&mut s, evil).await);
    let mut again = yard.open().await;
    let end = yard
        .run(
            &mut again,
            "CREATE TEMP TABLE record (i int); CREATE TEMP TABLE secret (i int); CREATE TABLE evil.t ()",
        )
        .await;
    assert!(matches!(end, AttemptEnd::Committed { recorded: true, .. }), "{end:?}");
    let end = yard.run(&mut again, "PREPARE s0 AS SELECT 1; DEALLOCATE ALL; CREATE TABLE evil.u ()").await;
    assert!(matches!(end, AttemptEnd::Committed { recorded: true, .. }), "{end:?}");
    failed(yard.run(&mut again, "SELECT * FROM yardmaster.secret").await, "42501");
}

#[tokio::test]
async fn its_own_end_is_a_doubt_with_the_servers_words() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let end = yard.run(&mut s, "SELECT 1; SELECT pg_terminate_backend(pg_backend_pid())").await;
    let AttemptEnd::Doubt { fatal: Some((sqlstate, text)), message } = end else { panic!("{end:?}") };
    assert_eq!(
        (sqlstate.as_str(), text.as_str()),
        ("57P01", "terminating connection due to administrator command")
    );
    assert!(
        message.starts_with("SELECT 1\nFATAL: terminating connection due to administrator command\n"),
        "{message}"
    );
    assert!(!s.is_reusable());
    let end = yard.run(&mut s, "SELECT 1").await;
    assert!(matches!(end, AttemptEnd::NotSent { .. }), "{end:?}");

    let mut s = yard.open().await;
    let end = yard.run(&mut s, "SET exit_on_error = on; SELECT 1/0").await;
    assert!(matches!(&end, AttemptEnd::Doubt { fatal: Some((state, _)), .. } if state == "22012"), "{end:?}");

    let mut s = yard.open().await;
    let end = yard.run(&mut s, "DO $$BEGIN RAISE 'forged' USING ERRCODE = '57P01'; END$$").await;
    failed(end, "57P01");
    assert!(!s.is_reusable());
}

#[tokio::test]
async fn client_copy_ends_at_once_and_clearly() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    committed(yard.run(&mut s, "CREATE TABLE t (i int)").await);
    let message = failed(yard.run(&mut s, "INSERT INTO t VALUES (1); COPY t FROM STDIN").await, "0A000");
    assert!(message.starts_with("INSERT 0 1\nERROR: the command copies from the client"), "{message}");
    assert!(!s.is_reusable());
    let pid = s.backend().pid;
    yard.until(&format!(
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND state <> 'idle')"
    ))
    .await;
    assert_eq!(yard.value("SELECT count(*) FROM t").await, "0");

    let mut s = yard.open().await;
    assert_eq!(
        committed(yard.run(&mut s, "COPY (SELECT generate_series(1, 100000)) TO STDOUT").await),
        "COPY 100000"
    );
    assert!(!s.is_reusable());
}

#[tokio::test]
async fn procedures_that_commit_are_refused_in_a_transaction_and_run_outside() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    committed(yard.run(&mut s, "CREATE TABLE t (i int); CREATE PROCEDURE p() LANGUAGE plpgsql AS $$BEGIN INSERT INTO t VALUES (1); COMMIT; END$$").await);
    let message = failed(yard.run(&mut s, "CALL p()").await, "2D000");
    assert!(message.starts_with("ERROR: invalid transaction termination\n"), "{message}");
    assert_eq!(
        s.run_plain(&crate::cluster::plain("CALL p()")).await,
        AttemptEnd::Succeeded { message: "CALL".into() }
    );
    assert_eq!(yard.value("SELECT count(*) FROM t").await, "1");
}
