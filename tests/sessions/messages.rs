//! What a task's message says.

use crate::cluster::{Yard, committed, failed, new_attempt};
use yardmaster::db::AttemptEnd;

#[tokio::test]
async fn tags_and_notices_come_in_order_with_context() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let message = committed(yard.run(&mut s, "SELECT 1; DO $$BEGIN RAISE NOTICE 'n'; END$$; SELECT 2").await);
    let context = "CONTEXT: PL/pgSQL function inline_code_block line 1 at RAISE";
    assert_eq!(message, format!("SELECT 1\nNOTICE: n\n{context}\nDO\nSELECT 1"));

    let warning = "DO $$BEGIN RAISE WARNING 'w' USING DETAIL = 'd', HINT = 'h'; END$$";
    assert_eq!(
        committed(yard.run(&mut s, warning).await),
        format!("WARNING: w\nDETAIL: d\nHINT: h\n{context}\nDO")
    );
    assert_eq!(committed(yard.run(&mut s, "-- nothing\n").await), "");
    assert_eq!(committed(yard.run(&mut s, "VALUES (1),(2);;\n").await), "SELECT 2");
    assert!(s.is_reusable());
    assert_eq!(s.uses(), 4);
}

#[tokio::test]
async fn a_syntax_error_is_placed_and_nothing_runs() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let command = "CREATE TABLE t();\n  SELEC 1";
    let message = failed(yard.run(&mut s, command).await, "42601");
    assert_eq!(message, "ERROR: syntax error at or near \"SELEC\"\nPOSITION: 21 (line 2, column 3)");
    let message = failed(yard.run(&mut s, "SELECT 'é', nowhere").await, "42703");
    assert_eq!(message, "ERROR: column \"nowhere\" does not exist\nPOSITION: 13 (line 1, column 13)");
    assert_eq!(yard.value("SELECT to_regclass('t') IS NULL").await, "t");
    for open in ["/*", "SELECT 'x", "SELECT \"x", "$$"] {
        failed(yard.run(&mut s, open).await, "42601");
    }
    assert!(s.is_reusable());
}

#[tokio::test]
async fn an_error_rolls_everything_back_and_comes_last() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    committed(yard.run(&mut s, "CREATE TABLE t (i int)").await);
    let end = yard
        .run(&mut s, "INSERT INTO t VALUES (1); DO $$BEGIN RAISE NOTICE 'n'; PERFORM 1/0; END$$; SELECT 1")
        .await;
    let message = failed(end, "22012");
    let (first, rest) = message.split_once('\n').unwrap();
    assert_eq!(first, "INSERT 0 1");
    assert!(rest.starts_with("NOTICE: n\nCONTEXT: "), "{rest}");
    assert!(rest.contains("\nERROR: division by zero\nCONTEXT: SQL statement \"SELECT 1/0\"\n"), "{rest}");
    assert_eq!(yard.value("SELECT count(*) FROM t").await, "0");
    assert!(s.is_reusable());
    assert_eq!(committed(yard.run(&mut s, "INSERT INTO t VALUES (1)").await), "INSERT 0 1");
}

#[tokio::test]
async fn a_deferred_constraint_and_its_notices_are_the_tasks_own() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let tables = "CREATE TABLE a (i int PRIMARY KEY); \
                  CREATE TABLE b (i int REFERENCES a DEFERRABLE INITIALLY DEFERRED); \
                  CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE NOTICE 'late'; RETURN NULL; END$$; \
                  CREATE CONSTRAINT TRIGGER c AFTER INSERT ON a DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION talk()";
    committed(yard.run(&mut s, tables).await);
    let message = failed(yard.run(&mut s, "INSERT INTO b VALUES (5)").await, "23503");
    assert!(
        message.starts_with("INSERT 0 1\nERROR: insert or update on table \"b\" violates foreign key"),
        "{message}"
    );
    assert!(message.contains("\nDETAIL: Key (i)=(5) is not present in table \"a\"."), "{message}");
    let message = committed(yard.run(&mut s, "INSERT INTO a VALUES (1)").await);
    assert!(message.starts_with("INSERT 0 1\nNOTICE: late\nCONTEXT: "), "{message}");
}

#[tokio::test]
async fn an_error_at_commit_is_a_failure_with_its_text() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    // A trigger that is deferred again after our SET CONSTRAINTS ALL IMMEDIATE fires at COMMIT itself.
    let tables = "CREATE TABLE a (i int); CREATE TABLE b (i int); \
        CREATE FUNCTION boom() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'at commit' USING ERRCODE = 'P0009'; END$$; \
        CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN SET CONSTRAINTS ALL DEFERRED; INSERT INTO b VALUES (1); RETURN NULL; END$$; \
        CREATE CONSTRAINT TRIGGER c AFTER INSERT ON a DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION again(); \
        CREATE CONSTRAINT TRIGGER c AFTER INSERT ON b DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION boom()";
    committed(yard.run(&mut s, tables).await);
    let message = failed(yard.run(&mut s, "INSERT INTO a VALUES (1)").await, "P0009");
    assert!(message.contains("\nERROR: at commit\nCONTEXT: "), "{message}");
    assert_eq!(yard.value("SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM yardmaster.record WHERE kind = 'committed')").await, "1");
}

#[tokio::test]
async fn bytes_that_are_no_utf8_are_stored_safely() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let latin = "SET client_encoding = 'LATIN1'; DO $$BEGIN RAISE NOTICE '%', chr(233); RAISE EXCEPTION '%', chr(233); END$$";
    let message = failed(yard.run(&mut s, latin).await, "P0001");
    assert!(message.contains("NOTICE: \u{FFFD}\n") && message.contains("ERROR: \u{FFFD}\n"), "{message}");
    assert!(s.is_reusable());
    let message = failed(
        yard.run(&mut s, "DO $$BEGIN RAISE EXCEPTION 'é€ % \\u0000', chr(27) || chr(7); END$$").await,
        "P0001",
    );
    assert!(message.starts_with("ERROR: é€ \u{1b}\u{7} \\u0000\n"), "{message}");

    yard.admin
        .batch_execute(
            "CREATE DATABASE raw TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'",
        )
        .await
        .unwrap();
    let mut raw =
        yardmaster::db::open(&crate::cluster::target("raw"), &yard.owner, None, crate::cluster::LIMIT, 4096)
            .await
            .unwrap();
    let order = crate::cluster::plain(
        "SET client_encoding = 'SQL_ASCII'; DO $$BEGIN RAISE EXCEPTION '%', E'a\\xff\\xfeb'; END$$",
    );
    let AttemptEnd::Failed { message, .. } = raw.run_plain(&order).await else { panic!("not failed") };
    assert!(message.starts_with("SET\nERROR: a\u{FFFD}\u{FFFD}b\n"), "{message}");
    let order = crate::cluster::plain(
        "SET client_encoding = 'SQL_ASCII'; LISTEN x; SELECT pg_notify('x', E'\\xff'); SELECT set_config('application_name', E'\\xff', false); SELECT E'\\xff' AS \"\u{e9}\"",
    );
    assert_eq!(
        raw.run_plain(&order).await,
        AttemptEnd::Succeeded { message: "SET\nLISTEN\nSELECT 1\nSELECT 1\nSELECT 1".into() }
    );
    assert!(raw.is_reusable());
}

#[tokio::test]
async fn the_attempt_is_named_for_people_and_for_the_command() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let name = new_attempt();
    let command = "DO $$BEGIN RAISE NOTICE '% %', current_setting('application_name'), current_setting('yardmaster.attempt_key'); END$$";
    let message = committed(yard.run_as(&mut s, name, command).await);
    let line = format!("NOTICE: yardmaster {0}/{0}/1 {1}/1/1\n", name.task, name.task_key);
    assert!(message.starts_with(&line), "{message}");
    let AttemptEnd::Succeeded { message } = s.run_plain(&yardmaster::db::Order { name, command }).await
    else {
        panic!()
    };
    assert!(message.starts_with(&line), "{message}");
    let pid = s.backend().pid;
    let shown = yard.value(&format!("SELECT application_name FROM pg_stat_activity WHERE pid = {pid}")).await;
    assert_eq!(shown, "yardmaster", "an idle session names no attempt");
}

#[tokio::test]
async fn a_latin1_database_speaks_utf8_to_us() {
    let yard = Yard::new().await;
    yard.admin
        .batch_execute(
            "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
        )
        .await
        .unwrap();
    let at = crate::cluster::target("latin");
    let mut s = yardmaster::db::open(&at, &yard.owner, None, crate::cluster::LIMIT, 4096).await.unwrap();
    let order = crate::cluster::plain("DO $$BEGIN RAISE EXCEPTION 'é'; END$$");
    assert!(failed(s.run_plain(&order).await, "P0001").starts_with("ERROR: é\n"));
    let order = crate::cluster::plain("DO $$BEGIN RAISE EXCEPTION 'é€'; END$$");
    let message = failed(s.run_plain(&order).await, "22P05");
    assert!(message.starts_with("ERROR: character with byte sequence 0xe2 0x82 0xac"), "{message}");
    assert!(s.is_reusable());
}
