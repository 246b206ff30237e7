//! Lists, details, logs and the status screen.

use crate::yard::{Told, Yard};

/// A job of three tasks: the first done, the second failed, the third unscheduled-to-be.
async fn a_yard_with_a_failure() -> Yard {
    let yard = Yard::new().await;
    yard.sql(
        "INSERT INTO yardmaster.job_spec (owner, description) VALUES ('alice', E'nightly \\x1b[31m');
         INSERT INTO yardmaster.task_spec (job_id, name, owner, command)
         VALUES (1, 'fill', 'alice', 'INSERT …'), (1, 'check', 'alice', E'SELECT 1/0 -- \\x1b'), (1, 'swap', 'alice', 'SELECT 1');
         INSERT INTO yardmaster.task_depend (job_id, task_id, depends_on) VALUES (1, 3, 1), (1, 3, 2)",
    )
    .await;
    yard.admit().await;
    for (task, is_done) in [(1, true), (2, false)] {
        yard.claim(task).await;
        yard.settle(task, is_done).await;
    }
    yard
}

#[tokio::test]
async fn lists_show_what_there_is_and_fit_80_and_200_columns() {
    let yard = a_yard_with_a_failure().await;
    for width in ["80", "200"] {
        for arguments in [["job", "list"], ["job", "show"], ["task", "list"]] {
            let mut arguments = arguments.to_vec();
            if arguments[1] == "show" {
                arguments.push("1");
            }
            let told = Told::of(yard.command(&arguments).env("COLUMNS", width).output().unwrap()).exits(0);
            let widest = told.out.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width.parse().unwrap(), "{widest}: {}", told.out);
        }
    }
    let told = yard.run(&["job", "list"]).exits(0);
    assert!(told.out.contains("failing") && told.out.contains("nightly \\u{1b}[31m"), "{told:?}");
    let told = yard.run(&["task", "list", "--status", "error"]).exits(0);
    assert!(told.out.contains("check") && told.out.contains("ERROR: division by zero"), "{told:?}");
    assert!(!told.out.contains("fill"), "{told:?}");
}

#[tokio::test]
async fn lists_page() {
    let yard = a_yard_with_a_failure().await;
    let told = yard.run(&["task", "list", "--job", "1", "--limit", "2"]).exits(0);
    assert!(told.out.ends_with("… more: --after 2\n"), "{told:?}");
    let told = yard.run(&["task", "list", "--job", "1", "--limit", "2", "--after", "2"]).exits(0);
    assert!(told.out.contains("swap") && !told.out.contains("more"), "{told:?}");
    let told = yard.run(&["task", "list", "--limit", "1"]).exits(0);
    assert!(told.out.contains("swap") && told.out.ends_with("… more: --after 3\n"), "{told:?}");
}

#[tokio::test]
async fn a_task_is_shown_with_dependencies_attempts_and_message() {
    let yard = a_yard_with_a_failure().await;
    let told = yard.run(&["task", "show", "2"]).exits(0);
    for words in [
        "task 2 check of job 1: error",
        "22012",
        "NOTICE: \\u{1b}[31mred\n",
        "SELECT 1/0 -- \\u{1b}",
        "dependants    3",
    ] {
        assert!(told.out.contains(words), "{words} is not in {}", told.out);
    }
    let told = yard.run(&["task", "show", "3"]).exits(0);
    assert!(told.out.contains("task 1 fill (done)") && told.out.contains("task 2 check (error)"), "{told:?}");
    let told = yard.run(&["job", "logs", "1"]).exits(0);
    let (first, second) =
        (told.out.find("── task 1 fill").unwrap(), told.out.find("── task 2 check").unwrap());
    assert!(first < second && told.out.contains("INSERT 0 3\n"), "{told:?}");
}

#[tokio::test]
async fn json_is_complete_and_exact_for_ids_above_two_to_the_53() {
    let yard = Yard::new().await;
    let id = "9007199254740993";
    yard.sql(&format!(
        "ALTER SEQUENCE yardmaster.job_spec_job_id_seq RESTART {id};
         ALTER SEQUENCE yardmaster.task_spec_task_id_seq RESTART {id};
         INSERT INTO yardmaster.job_spec (owner) VALUES ('alice');
         INSERT INTO yardmaster.task_spec (job_id, owner, command, not_before) VALUES ({id}, 'alice', 'SELECT 1', 'infinity')"
    ))
    .await;
    yard.admit().await;
    yard.claim(id.parse().unwrap()).await;
    assert_eq!(yard.run(&["job", "list", "-o", "json"]).exits(0).json()[0]["job_id"], id);
    assert_eq!(yard.run(&["-o", "json", "job", "show", id]).exits(0).json()["state"], "running");
    assert_eq!(yard.run(&["task", "list", "-o", "json"]).exits(0).json()[0]["task_id"], id);
    let detail = yard.run(&["task", "show", id, "-o", "json"]).exits(0).json();
    assert_eq!(detail["attempts"][0]["task_id"], id);
    let status = yard.run(&["status", "-o", "json"]).exits(0).json();
    assert_eq!(status["running"][0]["task_id"], id);
    assert_eq!(status["jobs"]["running"], 1);
    assert_eq!(status["leader"]["alive"], true);
    assert_eq!(yard.run(&["job", "logs", id, "-o", "json"]).exits(0).json()[0]["attempt"], 1);
}

#[tokio::test]
async fn status_is_one_screen_about_everything() {
    let yard = a_yard_with_a_failure().await;
    yard.sql("INSERT INTO yardmaster.job_spec (owner) VALUES ('alice'); INSERT INTO yardmaster.task_spec (job_id, name, owner, command, node) VALUES (2, 'far', 'alice', 'SELECT 1', 'east'), (2, 'next', 'alice', 'SELECT 1', NULL)").await;
    yard.admit().await;
    yard.claim(4).await;
    let told = yard.run(&["status"]).exits(0);
    for words in [
        "vm-1 leads since",
        "1 running, 1 failing",
        "1 blocked, 1 runnable, 1 running, 1 done, 1 error",
        "far",
        "east",
        "task 5 of job 2",
    ] {
        assert!(told.out.contains(words), "{words} is not in {}", told.out);
    }
}

#[tokio::test]
async fn another_roles_job_looks_like_an_unknown_id() {
    let yard = Yard::new().await;
    yard.sql("INSERT INTO yardmaster.job_spec (owner) VALUES ('postgres')").await;
    for arguments in [
        ["job", "show", "1"],
        ["job", "logs", "1"],
        ["job", "wait", "1"],
        ["job", "cancel", "1"],
        ["task", "show", "1"],
    ] {
        let told = yard.run(&arguments).exits(2);
        assert!(told.err.contains(" 1 does not exist"), "{told:?}");
    }
}

#[tokio::test]
async fn a_reader_that_leaves_early_is_no_error() {
    let yard = Yard::new().await;
    let mut child = yard.command(&["job", "list"]).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
