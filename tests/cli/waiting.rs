//! Waiting: goals, misses, limits, Ctrl-C.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::yard::{Told, Yard};

async fn a_job_of_two(yard: &Yard) {
    yard.sql(
        "INSERT INTO yardmaster.job_spec (owner) VALUES ('alice');
         INSERT INTO yardmaster.task_spec (job_id, name, owner, command)
         VALUES (1, 'one', 'alice', 'SELECT 1'), (1, 'two', 'alice', 'SELECT 2')",
    )
    .await;
    yard.admit().await;
}

/// Waits until a command has a connection of its own, so that what follows happens while it waits.
async fn until_connected(yard: &Yard) {
    yard.until(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%yardmaster.job j%'
            AND pid <> pg_backend_pid()",
    )
    .await;
}

#[tokio::test]
async fn a_wait_ends_when_the_job_does_and_tells_the_first_error() {
    let yard = Yard::new().await;
    a_job_of_two(&yard).await;
    let child = yard.command(&["job", "wait", "1"]).spawn().unwrap();
    until_connected(&yard).await;
    for (task, is_done) in [(1, true), (2, false)] {
        yard.claim(task).await;
        yard.settle(task, is_done).await;
    }
    let told = Told::of(child.wait_with_output().unwrap()).exits(1);
    assert!(told.out.starts_with("job 1 failed: 1 of 2 tasks done, 1 failed in "), "{told:?}");
    assert_eq!(told.err, "error: task 2 two of job 1 failed (22012): ERROR: division by zero\n");
}

#[tokio::test]
async fn a_finished_job_exits_0_and_another_goal_is_missed_with_both_named() {
    let yard = Yard::new().await;
    a_job_of_two(&yard).await;
    for task in [1, 2] {
        yard.claim(task).await;
        yard.settle(task, true).await;
    }
    yard.run(&["job", "wait", "1"]).exits(0);
    yard.run(&["job", "wait", "1", "--for", "finished"]).exits(0);
    let told = yard.run(&["job", "wait", "1", "--for", "cancelled"]).exits(1);
    assert_eq!(told.err, "error: job 1 is finished and will not become cancelled\n");
    yard.run(&["task", "wait", "1"]).exits(0);
    let told = yard.run(&["task", "wait", "1", "--for", "running"]).exits(1);
    assert_eq!(told.err, "error: task 1 is done and will not become running\n");
    yard.run(&["job", "wait", "99"]).exits(2);
    yard.run(&["task", "wait", "99"]).exits(2);
}

#[tokio::test]
async fn a_limit_exits_4_and_ctrl_c_exits_130_and_the_job_goes_on() {
    let yard = Yard::new().await;
    a_job_of_two(&yard).await;
    let told = yard.run(&["task", "wait", "1", "--timeout", "150ms"]).exits(4);
    assert!(told.err.contains("task 1 is still runnable after 150ms"), "{told:?}");
    let child = yard.command(&["job", "wait", "1"]).spawn().unwrap();
    until_connected(&yard).await;
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    Told::of(child.wait_with_output().unwrap()).exits(130);
    assert_eq!(yard.run(&["job", "show", "1", "-o", "json"]).json()["state"], "scheduled");
    let requests = yard.client.query_one("SELECT count(*) FROM yardmaster.request", &[]).await.unwrap();
    assert_eq!(requests.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn submit_and_wait_prints_a_line_for_each_ending() {
    let yard = Yard::new().await;
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    std::fs::write(
        file.path(),
        r#"{"task": [{"name": "one", "command": "SELECT 1"}, {"name": "two", "command": "SELECT 2"}]}"#,
    )
    .unwrap();
    let child = yard.command(&["job", "submit", file.path().to_str().unwrap(), "--wait"]).spawn().unwrap();
    until_connected(&yard).await;
    yard.admit().await;
    for (task, is_done) in [(1, true), (2, false)] {
        yard.claim(task).await;
        yard.settle(task, is_done).await;
    }
    let told = Told::of(child.wait_with_output().unwrap()).exits(1);
    for words in [" task 1 one done in ", " task 2 two failed after ", ": ERROR: division by zero\n"] {
        assert!(told.err.contains(words), "{words} is not in {}", told.err);
    }
    let (bad, good) = (told.out.find("2  two   error").unwrap(), told.out.find("1  one   done").unwrap());
    assert!(bad < good, "failures come first: {}", told.out);
}

#[tokio::test]
async fn the_closing_table_of_a_large_job_is_bounded() {
    let yard = Yard::new().await;
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let task = |i: u32| serde_json::json!({ "name": format!("t{i}"), "command": "SELECT 1" });
    let tasks: Vec<_> = (1..=3000).map(task).collect();
    std::fs::write(file.path(), serde_json::json!({ "task": tasks }).to_string()).unwrap();
    let child = yard.command(&["job", "submit", file.path().to_str().unwrap(), "--wait"]).spawn().unwrap();
    until_connected(&yard).await;
    yard.admit().await;
    yard.sql("UPDATE yardmaster.task_state SET status = 'done', ready = false, attempt = 1, finished_at = clock_timestamp() WHERE task_id < 3000").await;
    yard.claim(3000).await;
    yard.settle(3000, false).await;
    let told = Told::of(child.wait_with_output().unwrap()).exits(1);
    assert!(told.out.contains("\n… and 2,960 more\n"), "{}", told.out);
    assert!(told.out.lines().nth(2).unwrap().contains("3000"), "the failure comes first: {}", told.out);
    assert!(told.err.lines().count() < 400, "{}", told.err.lines().count());
}

#[tokio::test]
async fn a_lost_server_ends_a_wait_with_3() {
    let yard = Yard::new().await;
    a_job_of_two(&yard).await;
    let child = yard.command(&["job", "wait", "1"]).spawn().unwrap();
    until_connected(&yard).await;
    yard.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'alice' AND datname = current_database()").await;
    let told = Told::of(child.wait_with_output().unwrap()).exits(3);
    assert!(told.err.contains("lost the connection to PostgreSQL"), "{told:?}");
}
