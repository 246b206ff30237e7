//! The work: jobs of tasks whose effects can be counted afterwards, submitted and steered while everything shakes.
//!
//! A task's name says what is expected of it: `k<number>` writes its number, `f<number>` writes and fails each time,
//! `x<number>` reads only, `v<number>` runs outside a transaction.

use std::fmt::Write as _;
use std::time::Duration;

use tokio_postgres::Client;

use crate::dice::Dice;
use crate::world;

/// Fails in its first attempts, by their number, and succeeds later.
const REACHED: &str = "split_part(current_setting('yardmaster.attempt_key'), '/', 3)::integer";

/// Submits jobs until there are `tasks`, and asks for cancels, retries and pauses. Answers the number of jobs.
pub async fn submit(url: String, mut dice: Dice, tasks: u64, within: Duration) -> u64 {
    let (mut number, mut jobs) = (0, 0);
    let pause = within / u32::try_from(tasks / 12 + 1).unwrap();
    while number < tasks {
        let size = (3 + dice.below(20)).min(tasks - number);
        let job = job(&mut dice, jobs, number, size);
        number += size;
        jobs += 1;
        // The key makes it safe to ask again when the answer was lost.
        let id = loop {
            if let Some(id) = ask(&url, "SELECT yardmaster.job_submit($1::text::jsonb)", &job).await {
                break id;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        if dice.percent(25) {
            steer(&url, &mut dice, id).await;
        }
        tokio::time::sleep(pause.mul_f64(dice.below(200) as f64 / 100.0)).await;
    }
    jobs
}

/// Lets every job go on that a pause holds.
pub async fn resume_all(admin: &Client) {
    admin
        .batch_execute("SELECT yardmaster.job_resume(job_id) FROM yardmaster.job WHERE paused")
        .await
        .unwrap();
}

async fn steer(url: &str, dice: &mut Dice, newest: i64) {
    let job = newest - i64::try_from(dice.below(4)).unwrap();
    let task = format!("(SELECT max(task_id) - {} FROM yardmaster.task)", dice.below(40));
    let what = match dice.below(10) {
        0..4 => format!("task_cancel({task})"),
        4..6 => format!("job_cancel({job})"),
        6 => format!("job_retry({job})"),
        7 => format!("job_pause({job})"),
        8 => format!("job_resume({job})"),
        _ => format!("task_retry({task})"),
    };
    // Asking is best effort: the job may be unknown, the server away.
    let _: Option<i64> = ask(url, &format!("SELECT yardmaster.{what} WHERE $1 <> ''"), "-").await;
}

async fn ask(url: &str, sql: &str, argument: &str) -> Option<i64> {
    let client = world::connect(url).await?;
    let asked = tokio::time::timeout(Duration::from_secs(5), client.query_one(sql, &[&argument])).await;
    match asked.ok()? {
        Ok(row) => row.get(0),
        Err(e) => {
            // What PostgreSQL refuses is a mistake of this test, save what a dying server or a vanished row causes.
            if let Some(refused) = e.as_db_error() {
                let code = refused.code().code();
                assert!(
                    ["57", "08", "53", "42704", "22", "P0002", "02"].iter().any(|c| code.starts_with(c)),
                    "{refused:?}"
                );
            }
            None
        }
    }
}

/// A job file as JSON: some tasks in a chain, some free, some failing.
fn job(dice: &mut Dice, index: u64, first: u64, size: u64) -> String {
    // Tables in the job's scratch schema, one a task: a name that is taken would be an effect that came twice.
    let scratch = index.is_multiple_of(3);
    let mut text = format!("{{\"key\": \"job {index}\", \"scratch\": {scratch}, \"task\": [");
    let chained = dice.percent(40);
    let mut names: Vec<String> = Vec::new();
    for number in first..first + size {
        let (letter, mut command) = command(dice, number);
        if scratch && letter == 'k' {
            command = format!("CREATE TABLE t{number} (); {command}");
        }
        let name = format!("{letter}{number}");
        let comma = if names.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{{\"name\": \"{name}\", \"command\": \"{command}\"");
        if letter == 'f' {
            text.push_str(", \"retry\": {\"max_retries\": 1}");
        }
        if dice.percent(30) {
            let _ = write!(text, ", \"nodes_involved\": [\"n{}\", \"n{}\"]", dice.below(4), dice.below(4));
        }
        if dice.percent(20) {
            let _ = write!(text, ", \"priority\": {}", dice.below(5));
        }
        // A failing parent dooms its dependants: most chains are to get through.
        let parents: Vec<&String> = names.iter().filter(|n| !n.starts_with('f') || number % 7 == 0).collect();
        if chained && !parents.is_empty() && dice.percent(70) {
            let last = parents[parents.len() - 1];
            let other = parents[usize::try_from(dice.below(parents.len() as u64)).unwrap()];
            let _ = match last == other {
                true => write!(text, ", \"depends_on\": [\"{last}\"]"),
                false => write!(text, ", \"depends_on\": [\"{last}\", \"{other}\"]"),
            };
        }
        text.push('}');
        names.push(name);
    }
    text.push_str("]}");
    text
}

fn command(dice: &mut Dice, number: u64) -> (char, String) {
    let write = format!("INSERT INTO public.ledger VALUES ({number})");
    let nap = dice.below(60);
    match dice.below(100) {
        0..45 => ('k', write),
        45..60 => ('k', format!("{write}; SELECT pg_sleep(0.0{nap:02})")),
        60..70 => ('k', format!("SELECT pg_sleep(0.{nap:02}); {write}")),
        70..78 => ('k', format!("{write}; SELECT 1 / ({REACHED} > {})::integer", 1 + number % 2)),
        78..81 => ('f', format!("{write}; SELECT 1 / 0")),
        81..97 => ('x', "SELECT 1".to_owned()),
        _ => ('v', "VACUUM public.scratch".to_owned()),
    }
}
