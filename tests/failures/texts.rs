//! What PostgreSQL says, in every size and shape.

use crate::support::{Db, Service};

/// Scenario 14.
#[tokio::test]
async fn notices_are_kept_in_order_and_bounded() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let (_, five) =
        db.submit_one("DO $$ BEGIN FOR i IN 1..5 LOOP RAISE NOTICE 'line %', i; END LOOP; END $$").await;
    let (_, many) = db
        .submit_one("DO $$ BEGIN FOR i IN 1..5000 LOOP RAISE NOTICE 'line %', i; END LOOP; RAISE NOTICE '%', repeat('x', 200000); END $$")
        .await;
    let (_, huge) = db.submit_one("DO $$ BEGIN RAISE NOTICE '%', repeat('y', 20000000); END $$").await;
    let (_, neighbour) = db.submit_one("SELECT 1").await;
    let five = db.await_task(five, "done").await;
    let lines: Vec<&str> = five.text().lines().filter(|l| l.starts_with("NOTICE")).collect();
    assert_eq!(lines, (1..=5).map(|i| format!("NOTICE: line {i}")).collect::<Vec<_>>(), "{}", five.text());
    let many = db.await_task(many, "done").await;
    assert!(
        many.text().len() <= 66_000 && many.text().starts_with("NOTICE: line 1\n"),
        "{}",
        many.text().len()
    );
    let huge = db.await_task(huge, "done").await;
    assert!(huge.text().len() <= 66_000, "{}", huge.text().len());
    db.await_task(neighbour, "done").await;
    assert!(service.memory(true) < 200 << 20, "{} bytes", service.memory(true));
}

/// Scenario 15, scaled.
#[tokio::test]
async fn results_of_any_size_stream_by() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let (_, literal) = db.submit_one(&format!("SELECT length('{}')", "x".repeat(5 << 20))).await;
    let (_, rows) = db.submit_one("SELECT repeat('x', 1000) FROM generate_series(1, 200000)").await;
    let (_, value) = db.submit_one("SELECT repeat('x', 200000000)").await;
    let (_, neighbour) = db.submit_one("SELECT 1").await;
    db.await_task(literal, "done").await;
    db.await_task(rows, "done").await;
    db.await_task(neighbour, "done").await;
    crate::support::until("the value is settled one way or the other", async || {
        ["done", "error"].contains(&db.status(value).await.as_str()) || db.task(value).await.retry_count > 0
    })
    .await;
    assert!(service.memory(true) < 200 << 20, "{} bytes", service.memory(true));
}

/// Scenario 17.
#[tokio::test]
async fn ids_beyond_every_rounding_stay_exact() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    for start in [2_147_483_658_i64, 9_007_199_254_740_993] {
        db.sql(&format!("ALTER SEQUENCE yardmaster.job_spec_job_id_seq RESTART {start}; ALTER SEQUENCE yardmaster.task_spec_task_id_seq RESTART {start}")).await;
        let (job, task) = db.submit_one("SELECT 1").await;
        assert_eq!((job, task), (start, start));
        db.await_task(task, "done").await;
        let mut show = crate::support::yardmaster(&["job", "show", &job.to_string(), "-o", "json"]);
        let shown = show.env("DATABASE_URL", db.url("alice")).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        assert!(text.contains(&format!("\"{start}\"")), "{text}");
    }
}

/// Scenario 18.
#[tokio::test]
async fn a_copy_from_or_to_the_client_fails_at_once_and_alone() {
    let db = Db::new().await;
    let _service = Service::start(&db).await;
    db.alice("CREATE TABLE public.t (i integer)").await;
    let (_, from) = db.submit_one("COPY public.t FROM STDIN").await;
    let (_, to) = db.submit_one("COPY (SELECT 1) TO STDOUT").await;
    let (_, hidden) = db.submit_one("SELECT 1; COPY public.t FROM STDIN; SELECT 2").await;
    let (_, neighbour) = db.submit_one("SELECT 1").await;
    for task in [from, to, hidden] {
        let ended = db.await_task(task, "error").await;
        assert_eq!(ended.attempt, 1);
        assert!(ended.text().contains("COPY") || ended.text().contains("copies"), "{}", ended.text());
    }
    db.await_task(neighbour, "done").await;
}

/// Scenario 16: a home that is not UTF-8, and text that no encoding likes.
#[tokio::test]
async fn text_that_home_cannot_store_is_kept_as_escapes() {
    let db = Db::latin1().await;
    let _service = Service::start(&db).await;
    let (_, euro) =
        db.submit_one(r"DO $$ BEGIN RAISE EXCEPTION U&'\00e9 \0001 \001b[31m \\u0000'; END $$").await;
    let (_, outside) = db.submit_one(r"DO $$ BEGIN RAISE NOTICE '%', U&'\00e9t\00e9'; END $$").await;
    crate::support::until("the exception is told", async || db.task(euro).await.retry_count > 0).await;
    assert!(db.task(euro).await.text().contains("[31m"), "{:?}", db.task(euro).await);
    db.await_task(outside, "done").await;
}
