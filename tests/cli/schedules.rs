//! Schedules on the command line.

use crate::yard::{Told, Yard};

async fn a_yard_with_a_schedule() -> Yard {
    let yard = Yard::bare().await;
    Told::of(yard.command_as("postgres", &["migrate"]).output().unwrap()).exits(0);
    yard.sql(
        r#"SET ROLE alice;
           SELECT yardmaster.schedule_submit('{"schedule": {"name": "nightly", "cron": "30 2 * * *", "time_zone": "Europe/Berlin"},
                                               "task": [{"name": "a", "command": "SELECT 1"}]}');
           RESET ROLE"#,
    )
    .await;
    yard
}

#[tokio::test]
async fn schedules_are_listed_paused_resumed_and_deleted() {
    let yard = a_yard_with_a_schedule().await;
    let told = yard.run(&["schedule", "list"]).exits(0);
    assert!(told.out.contains("nightly") && told.out.contains("30 2 * * * Europe/Berlin"), "{told:?}");
    let told = yard.run(&["schedule", "pause", "nightly"]).exits(0);
    assert_eq!(told.out, "schedule 1 nightly paused\n");
    assert_eq!(yard.run(&["schedule", "list", "-o", "json"]).exits(0).json()[0]["paused"], true);
    assert!(yard.run(&["schedule", "preview", "nightly"]).exits(0).err.contains("is paused"));
    yard.run(&["schedule", "resume", "1"]).exits(0);
    assert_eq!(yard.run(&["schedule", "list", "-o", "json"]).exits(0).json()[0]["paused"], false);
    yard.run(&["schedule", "delete", "nightly"]).exits(0);
    assert_eq!(yard.run(&["schedule", "list", "-o", "json"]).exits(0).json(), serde_json::json!([]));
    let told = yard.run(&["schedule", "pause", "nightly"]);
    assert_ne!(told.exit, 0);
    assert!(told.err.contains("schedule \"nightly\" does not exist"), "{told:?}");
}

#[tokio::test]
async fn a_preview_shows_the_next_ticks_in_their_zone() {
    let yard = a_yard_with_a_schedule().await;
    let told = yard.run(&["schedule", "preview", "nightly", "--count", "400"]).exits(0);
    assert_eq!(told.out.lines().count(), 400);
    // Once a day over a year and more, with both changes of the clock in it: in summer and in winter at half past two.
    let at =
        |offset: &str| told.out.lines().filter(|line| line.ends_with(&format!(" 02:30:00 {offset}"))).count();
    assert!(at("+01:00") > 100 && at("+02:00") > 100, "{told:?}");
    assert!(at("+01:00") + at("+02:00") >= 398, "{told:?}");
    let ticks = yard.run(&["schedule", "preview", "1", "-o", "json"]).exits(0).json();
    assert_eq!(ticks.as_array().unwrap().len(), 5);
}
