//! Reading by the API.

use serde_json::{Value, json};

use crate::client::Site;
use crate::support::{Db, Launch, Service};

fn ids(answer: &Value, list: &str, id: &str) -> Vec<String> {
    answer[list].as_array().unwrap().iter().map(|row| row[id].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn jobs_are_listed_filtered_searched_and_paged() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let site = Site::of(&service).await;
    let mut jobs = Vec::new();
    for (description, command) in
        [("Alpha", "SELECT 1"), ("beta", "SELECT nowhere"), ("100% <b>", "SELECT 1")]
    {
        let job = db.submit(json!({ "description": description, "task": [{ "command": command }] })).await;
        db.await_job(job, if command == "SELECT 1" { "finished" } else { "failed" }).await;
        jobs.push(job.to_string());
    }
    let list = |query: &str| {
        let answer = site.get(&format!("/api/v1/jobs{query}"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    jobs.reverse();
    assert_eq!(ids(&list(""), "jobs", "job_id"), jobs);
    assert_eq!(ids(&list("?state=failed"), "jobs", "job_id"), jobs[1..2]);
    assert_eq!(ids(&list("?search=ALPHA"), "jobs", "job_id"), jobs[2..]);
    assert_eq!(ids(&list("?search=%25+%3Cb"), "jobs", "job_id"), jobs[..1]);
    assert_eq!(ids(&list("?search=_"), "jobs", "job_id"), Vec::<String>::new());
    let first = list("?limit=2");
    assert_eq!(ids(&first, "jobs", "job_id"), jobs[..2]);
    let second = list(&format!("?limit=2&after={}", first["next"].as_str().unwrap()));
    assert_eq!((ids(&second, "jobs", "job_id"), second["next"].clone()), (jobs[2..].to_vec(), Value::Null));
}

#[tokio::test]
async fn a_job_its_tasks_its_graph_and_a_task_are_told_exactly() {
    let db = Db::new().await;
    // Above 2^53, where JavaScript would round.
    db.sql("SELECT setval('yardmaster.job_spec_job_id_seq', 9007199254740993), setval('yardmaster.task_spec_task_id_seq', 9007199254740993)").await;
    let service =
        Launch::on(&db).set("retry.delays", "10ms").set("retry.permanent_sqlstates", "").start().await;
    let site = Site::of(&service).await;
    let job = db
        .submit(json!({ "description": "two", "task": [
            { "name": "good", "command": "SELECT 1" },
            { "name": "wrong", "command": "SELECT 1/0", "depends_on": ["good"], "retry": { "max_retries": 1, "delays": ["10ms"] } },
        ]}))
        .await;
    db.await_job(job, "failed").await;
    let tasks = db.tasks(job).await;
    let told = site.get(&format!("/api/v1/jobs/{job}")).json();
    assert_eq!(told["job_id"], json!(job.to_string()));
    assert!(job > 9_007_199_254_740_993);
    assert_eq!(
        (&told["tasks"], &told["tasks_done"], &told["tasks_failed"]),
        (&json!(2), &json!(1), &json!(1))
    );
    let listed = site.get(&format!("/api/v1/jobs/{job}/tasks?status=error")).json();
    assert_eq!(ids(&listed, "tasks", "task_id"), [tasks[1].to_string()]);
    let graph = site.get(&format!("/api/v1/jobs/{job}/graph")).json();
    assert_eq!(
        graph["edges"],
        json!([{ "task_id": tasks[1].to_string(), "depends_on": tasks[0].to_string() }])
    );
    assert_eq!(graph["complete"], true);
    let bars = site.get(&format!("/api/v1/jobs/{job}/attempts")).json();
    assert_eq!(bars["attempts"].as_array().unwrap().len(), 3);
    let task = site.get(&format!("/api/v1/tasks/{}", tasks[1])).json();
    assert_eq!(task["sqlstate"], "22012");
    assert!(task["why"].as_str().unwrap().contains("division by zero"), "{task}");
    assert_eq!(task["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(task["attempts"][1]["message"], "ERROR: division by zero");
}

#[tokio::test]
async fn what_is_wrong_with_a_question_is_told() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let site = Site::of(&service).await;
    for (path, status, says) in [
        ("/api/v1/jobs?state=done", 400, "known are"),
        ("/api/v1/jobs?stat=failed", 400, "unknown field"),
        ("/api/v1/jobs?limit=1000", 400, "1 to 200"),
        ("/api/v1/jobs/x", 400, "not a number"),
        ("/api/v1/jobs/404", 404, "job 404 does not exist"),
        ("/api/v1/jobs/404/tasks", 404, "job 404 does not exist"),
        ("/api/v1/tasks/404", 404, "task 404 does not exist"),
        ("/api/v1/nothing", 404, "nothing at GET"),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert!(
            answer.json()["error"]["message"].as_str().unwrap().contains(says),
            "{path}: {}",
            answer.text
        );
    }
    let page = site.get("/jobs/404");
    assert!(page.status == 404 && page.text.contains("job 404 does not exist"), "{}", page.text);
    assert_eq!(site.get("/api/openapi.json").json()["openapi"], "3.1.0");
}

/// The ground under the inertness of text: no page may run or load what is not ours.
#[tokio::test]
async fn text_from_sql_is_escaped_and_the_policy_forbids_the_rest() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let site = Site::of(&service).await;
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let command = "DO $$ BEGIN RAISE '%', '<script>alert(2)</script>'; END $$ -- <script>";
    let job = db
        .submit(json!({ "description": evil, "job_type": evil, "task": [
            { "name": evil, "command": command, "retry": { "max_retries": 0 } }] }))
        .await;
    db.await_job(job, "failed").await;
    let task = db.tasks(job).await[0];
    for path in [
        "/".to_owned(),
        format!("/jobs/{job}"),
        format!("/tasks/{task}"),
        "/?search=<script>".to_owned(),
        "/<script>".to_owned(),
    ] {
        let answer = site.get(&path.replace('<', "%3C").replace('>', "%3E"));
        let scripts = answer.text.matches("<script").count();
        assert_eq!(
            scripts,
            answer.text.matches("<script src=\"/assets/page.js\"").count(),
            "{path}: {}",
            answer.text
        );
        assert!(!answer.text.contains("<img"), "{path}");
    }
    let mut policy = ureq::get(format!("{}/", site.root)).call().unwrap();
    let policy = policy.headers_mut().remove("content-security-policy").unwrap();
    let policy = policy.to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

/// A job too large to be drawn task by task is drawn by layers, and says so.
#[tokio::test]
async fn a_large_job_is_drawn_by_layers() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let site = Site::of(&service).await;
    let mut tasks =
        vec![json!({ "name": "first", "command": "SELECT 1", "not_before": "2100-01-01T00:00:00Z" })];
    tasks.extend((0..310).map(|_| json!({ "command": "SELECT 1", "depends_on": ["first"] })));
    let job = db.submit(json!({ "task": tasks })).await;
    db.await_true(&format!("SELECT tasks = 311 FROM yardmaster.job WHERE job_id = {job}")).await;
    let page = site.get(&format!("/jobs/{job}")).text;
    assert!(page.contains("311 tasks, more than 300"), "{page}");
    assert!(page.contains("310 blocked") && page.contains("Later tasks"), "{page}");
}
