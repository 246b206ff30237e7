//! Sizes: memory stays flat whatever a command says or returns.

use crate::cluster::{MESSAGE_BYTES, Yard, committed, failed};

/// The highest resident memory of this process so far, in MB. All tests of this binary share it, which only makes
/// the bound harder to keep.
fn peak_mb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

/// Less than any one of the values below.
const PEAK_MB: usize = 200;

#[tokio::test]
async fn rows_and_one_huge_value_stream_by() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let rows = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)";
    assert_eq!(committed(yard.run(&mut s, rows).await), "SELECT 200000");
    let value = "SELECT repeat('x', 240 * 1024 * 1024)";
    assert_eq!(committed(yard.run(&mut s, value).await), "SELECT 1");
    assert!(s.is_reusable());
    assert!(peak_mb() < PEAK_MB, "{} MB", peak_mb());
}

#[tokio::test]
async fn five_thousand_notices_and_a_huge_one_are_bounded_and_marked() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let many = "DO $$BEGIN FOR i IN 1..5000 LOOP RAISE NOTICE 'notice %', i; END LOOP; END$$";
    let message = committed(yard.run(&mut s, many).await);
    assert!(message.len() <= MESSAGE_BYTES && message.contains(" bytes cut …\n"));
    assert!(
        message.starts_with("NOTICE: notice 1\n") && message.contains("NOTICE: notice 5000\n"),
        "{message}"
    );
    assert!(message.ends_with("\nDO"));
    for size in ["200000", "20 * 1024 * 1024", "240 * 1024 * 1024"] {
        let huge = format!(
            "DO $$BEGIN RAISE NOTICE 'a'; RAISE NOTICE '%', repeat('é', {size} / 2); RAISE NOTICE 'b'; END$$"
        );
        let message = committed(yard.run(&mut s, &huge).await);
        assert!(message.len() <= MESSAGE_BYTES && message.contains(" bytes cut …"), "{}", message.len());
        assert!(
            message.starts_with("NOTICE: a\n") && message.contains("\nNOTICE: b\n"),
            "both neighbours are there"
        );
    }
    assert!(peak_mb() < PEAK_MB, "{} MB", peak_mb());
}

#[tokio::test]
async fn a_huge_error_is_a_failure_like_any_other() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let message = failed(
        yard.run(&mut s, "DO $$BEGIN RAISE EXCEPTION '%', repeat('é', 240 * 1024 * 1024 / 2); END$$").await,
        "P0001",
    );
    assert!(message.starts_with("ERROR: éé") && message.len() <= MESSAGE_BYTES, "{}", message.len());
    assert!(s.is_reusable());
    committed(yard.run(&mut s, "SELECT 1").await);
    assert!(peak_mb() < PEAK_MB, "{} MB", peak_mb());
}

#[tokio::test]
async fn large_commands_and_noise_pass() {
    let yard = Yard::new().await;
    let mut s = yard.open().await;
    let literal = format!("SELECT length('{}')", "x".repeat(5 * 1024 * 1024));
    assert_eq!(committed(yard.run(&mut s, &literal).await), "SELECT 1");
    let statements = "SELECT 1;".repeat(20_000);
    let message = committed(yard.run(&mut s, &statements).await);
    assert!(message.len() <= MESSAGE_BYTES && message.contains(" bytes cut …"));
    let noise = "LISTEN ch; SELECT pg_notify('ch', repeat('x', 7000) || i) FROM generate_series(1, 1000) i";
    assert_eq!(committed(yard.run(&mut s, noise).await), "LISTEN\nSELECT 1000");
    assert!(s.is_reusable());
}
