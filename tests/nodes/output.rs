//! Output files: a task's `COPY … TO STDOUT` in the folder of its job.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::node::{ALIVE, NodeDb};
use crate::support::{Db, Launch, Service, until};

fn copy(output: &str, command: &str) -> Value {
    json!({ "name": output, "command": command, "output": output, "node": "n1", "retry": { "max_retries": 0 } })
}

fn folder(service: &Service, job: i64) -> PathBuf {
    service.data_dir().join(format!("jobs/{job}"))
}

/// All that is in a folder, by name.
fn files(folder: &Path) -> Vec<String> {
    let Ok(found) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = found.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Far more than the buffers between socket and disk hold.
const MANY: &str =
    "COPY (SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g) TO STDOUT (FORMAT csv)";

#[tokio::test]
async fn what_is_copied_is_in_the_file_until_clean_up() {
    let db = Db::new().await;
    let n1 = NodeDb::new(0).await;
    let mut service = Launch::on(&db).settings(&n1.settings("n1")).start().await;
    let job = db
        .submit(json!({ "task": [copy("many.csv", MANY), copy("empty.csv", "COPY ledger TO STDOUT")] }))
        .await;
    db.await_job(job, "finished").await;
    let there = folder(&service, job);
    assert_eq!(files(&there), ["empty.csv", "many.csv"]);
    let text = std::fs::read_to_string(there.join("many.csv")).unwrap();
    let expected: String = (1..=20_000).map(|g| format!("{g},{}\n", "x".repeat(1000))).collect();
    assert!(text == expected, "{} bytes instead of {}", text.len(), expected.len());
    let said = db.task(db.tasks(job).await[0]).await;
    assert_eq!(said.text(), format!("COPY 20000\noutput: many.csv, {} bytes", expected.len()));
    assert!(service.memory(true) < 200 << 20, "it is not held in memory");
    // Without a policy it stays as long as the job, over a restart too.
    service.kill9();
    service.restart().await;
    db.alice(&format!("SELECT yardmaster.job_cleanup({job})")).await;
    until("the folder is gone", async || !there.exists()).await;
    let short = json!({ "cleanup": "on_end", "task": [copy("a.csv", MANY)] });
    let job = db.submit(short).await;
    db.await_job(job, "finished").await;
    until("its folder is gone", async || !folder(&service, job).exists()).await;
}

/// What fails, is too large or is cancelled leaves no file, nor a part of one.
#[tokio::test]
async fn an_attempt_that_fails_leaves_no_file() {
    let db = Db::new().await;
    let n1 = NodeDb::new(0).await;
    let service = Launch::on(&db).settings(&n1.settings("n1")).set("tasks.max_output_mib", "5").start().await;
    let fails = "COPY (SELECT 1/(g - 5000), repeat('x', 1000) FROM generate_series(1, 20000) g) TO STDOUT";
    let slow = "COPY (SELECT pg_sleep(60)) TO STDOUT";
    let tasks = [
        copy("large.csv", MANY),
        copy("fails.csv", fails),
        copy("slow.csv", slow),
        copy("no.csv", "SELECT 1"),
    ];
    let job = db.submit(json!({ "task": tasks })).await;
    let ids = db.tasks(job).await;
    let large = db.await_task(ids[0], "error").await;
    assert_eq!(large.sqlstate.as_deref(), Some("54000"), "{}", large.text());
    assert_eq!(
        large.text(),
        "ERROR: the output is larger than 5242880 bytes\nHINT: Raise tasks.max_output_mib in Settings.toml, or copy it in several tasks."
    );
    assert_eq!(db.await_task(ids[1], "error").await.sqlstate.as_deref(), Some("22012"));
    let no = db.await_task(ids[3], "error").await;
    assert!(no.text().contains("its command is no COPY … TO STDOUT"), "{}", no.text());
    until("the last one runs", async || n1.value(ALIVE).await == "1").await;
    assert_eq!(files(&folder(&service, job)), [".slow.csv.1.part"]);
    db.cancel(job).await;
    db.await_job(job, "cancelled").await;
    assert!(files(&folder(&service, job)).is_empty());
}

/// Names that lead out of the folder are refused where they are submitted, and one name is one task's.
#[tokio::test]
async fn names_that_are_none_are_refused() {
    let db = Db::new().await;
    let job = db.new_job().await;
    let insert = "INSERT INTO yardmaster.task (job_id, command, output) VALUES ($1, 'COPY t TO STDOUT', $2)";
    for name in
        ["../a.csv", "/etc/passwd", "a/b", "..", ".", ".hidden", "-rf", "", "a\nb", "a b", &"x".repeat(101)]
    {
        let e = db.alice.execute(insert, &[&job, &name]).await.unwrap_err();
        assert_eq!(e.code().unwrap().code(), "23514", "{name:?}: {e:?}");
    }
    db.alice.execute(insert, &[&job, &"a.csv"]).await.unwrap();
    let twice = db.alice.execute(insert, &[&job, &"a.csv"]).await.unwrap_err();
    assert_eq!(twice.code().unwrap().code(), "23505");
}

/// Whatever dies, a task that is done has its whole file.
#[tokio::test]
async fn kills_of_the_service_leave_whole_files() {
    let db = Db::new().await;
    let n1 = NodeDb::new(0).await;
    let mut service = Launch::on(&db).settings(&n1.settings("n1")).start().await;
    let command = "COPY (SELECT g, CASE WHEN g % 100 = 0 THEN pg_sleep(0.01) END FROM generate_series(1, 3000) g) TO STDOUT (FORMAT csv)";
    let tasks: Vec<Value> = (0..6).map(|k| copy(&format!("{k}.csv"), command)).collect();
    let job = db.submit(json!({ "task": tasks })).await;
    for _ in 0..2 {
        until("some are being written", async || {
            n1.value(ALIVE).await != "0" || db.job(job).await == "finished"
        })
        .await;
        service.kill9();
        service.restart().await;
    }
    db.await_job(job, "finished").await;
    for k in 0..6 {
        let text = std::fs::read_to_string(folder(&service, job).join(format!("{k}.csv"))).unwrap();
        assert_eq!(text.lines().count(), 3000);
    }
}
