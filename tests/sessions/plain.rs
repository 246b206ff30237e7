//! Commands outside a transaction.

use crate::cluster::{Yard, committed, failed, plain};
use yardmaster::db::AttemptEnd;

#[tokio::test]
async fn what_refuses_a_transaction_runs_outside_one() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    committed(yard.run(&mut s, "CREATE TABLE t (i int)").await);
    failed(yard.run(&mut s, "VACUUM t").await, "25001");
    for (command, tag) in [("VACUUM t", "VACUUM"), ("CREATE INDEX CONCURRENTLY x ON t (i)", "CREATE INDEX")] {
        assert_eq!(s.run_plain(&plain(command)).await, AttemptEnd::Succeeded { message: tag.into() });
    }
    assert!(s.is_reusable());
}

#[tokio::test]
async fn errors_are_failures_and_an_open_transaction_is_not_success() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let message = failed(s.run_plain(&plain("SELECT 1;\nSELEC 2")).await, "42601");
    assert_eq!(message, "ERROR: syntax error at or near \"SELEC\"\nPOSITION: 11 (line 2, column 1)");
    failed(s.run_plain(&plain("SELECT 1; VACUUM")).await, "25001");
    assert!(s.is_reusable());
    failed(s.run_plain(&plain("BEGIN; CREATE TABLE t ()")).await, "0A000");
    assert!(!s.is_reusable(), "it cannot be reset inside a transaction");

    let mut s = yard.open().await;
    let end = s.run_plain(&plain("SELECT pg_terminate_backend(pg_backend_pid())")).await;
    assert!(matches!(end, AttemptEnd::Doubt { fatal: Some(_), .. }), "{end:?}");
}
