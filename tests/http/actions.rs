//! Steering by the API: with the token only, and never by somebody else's page.

use serde_json::json;

use crate::client::{Site, TOKEN, with_token};
use crate::support::{Db, Launch, Service};

async fn waiting(db: &Db) -> i64 {
    let job =
        db.submit(json!({ "task": [{ "command": "SELECT 1", "not_before": "2100-01-01T00:00:00Z" }] })).await;
    db.await_true(&format!("SELECT tasks = 1 FROM yardmaster.job WHERE job_id = {job}")).await;
    job
}

#[tokio::test]
async fn the_token_steers_and_the_answer_is_the_leaders_word() {
    let db = Db::new().await;
    let (launch, _file) = with_token(Launch::on(&db));
    let service = launch.start().await;
    let site = Site::of(&service).await;
    let job = waiting(&db).await;
    let bearer = format!("Bearer {TOKEN}");
    let own = format!("http://{}", site.authority());
    let headers =
        [("authorization", bearer.as_str()), ("origin", own.as_str()), ("sec-fetch-site", "same-origin")];
    let post = |path: String| {
        let answer = site.post(&path, &headers);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    };
    let paused = post(format!("/api/v1/jobs/{job}/pause"));
    assert!(paused["outcome"].as_str().unwrap().contains("paused"), "{paused}");
    let again = site.get(&format!("/api/v1/requests/{}", paused["request_id"].as_str().unwrap())).json();
    assert_eq!(again["outcome"], paused["outcome"]);
    post(format!("/api/v1/jobs/{job}/resume"));
    assert_eq!(db.value(&format!("SELECT paused FROM yardmaster.job WHERE job_id = {job}")).await, "f");
    let task = db.tasks(job).await[0];
    post(format!("/api/v1/tasks/{task}/cancel"));
    db.await_task(task, "cancelled").await;
    // Whoever retries does not want to wait.
    post(format!("/api/v1/tasks/{task}/retry"));
    db.await_job(job, "finished").await;
    let other = waiting(&db).await;
    post(format!("/api/v1/jobs/{other}/cancel"));
    db.await_job(other, "cancelled").await;
    post(format!("/api/v1/jobs/{other}/retry"));
    db.await_job(other, "finished").await;
    post(format!("/api/v1/jobs/{job}/delete"));
    assert_eq!(site.get(&format!("/api/v1/jobs/{job}")).status, 404);
    assert_eq!(site.post("/api/v1/jobs/404/cancel", &headers).status, 404);
    assert_eq!(site.post(&format!("/api/v1/jobs/{job}/explode"), &headers).status, 404);
}

#[tokio::test]
async fn nobody_else_steers() {
    let db = Db::new().await;
    let (launch, _file) = with_token(Launch::on(&db));
    let service = launch.start().await;
    let site = Site::of(&service).await;
    let job = waiting(&db).await;
    let path = format!("/api/v1/jobs/{job}/cancel");
    let bearer = format!("Bearer {TOKEN}");
    let token = ("authorization", bearer.as_str());
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer open-sesame-0123456780")], 401),
        (vec![("authorization", TOKEN)], 401),
        (vec![token, ("origin", "http://evil.example")], 403),
        (vec![token, ("origin", "null")], 403),
        (vec![token, ("sec-fetch-site", "cross-site")], 403),
        (vec![token, ("host", "evil.example")], 421),
    ] {
        let answer = site.post(&path, &headers);
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.text);
    }
    assert_eq!(site.get(&path).status, 404, "a link steers nothing");
    assert_eq!(site.get_with("/", &[("host", "evil.example")]).status, 421);
    assert_eq!(site.get_with("/livez", &[("host", "yardmaster.internal")]).status, 200);
    assert_eq!(db.value("SELECT count(*) FROM yardmaster.request").await, "0");
}

#[tokio::test]
async fn without_a_token_file_the_page_is_read_only() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let site = Site::of(&service).await;
    let job = waiting(&db).await;
    let answer = site.post(&format!("/api/v1/jobs/{job}/cancel"), &[("authorization", "Bearer ")]);
    assert_eq!(answer.status, 403, "{}", answer.text);
    assert!(!site.get(&format!("/jobs/{job}")).text.contains("data-action"));
}

#[tokio::test]
async fn a_token_that_can_be_guessed_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "short").unwrap();
    let set = format!("http.token_file={}", file.path().display());
    let told = crate::support::yardmaster(&[
        "serve",
        "--database",
        "host=127.0.0.1 port=1",
        "--set",
        "http.listen=127.0.0.1:0",
        "--set",
        &set,
    ])
    .output()
    .unwrap();
    let text = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.code() == Some(2) && text.contains("at least 16 characters"), "{text}");
}
