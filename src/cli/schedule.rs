//! `yardmaster schedule …`: see when jobs will be made, and steer that.

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::output::{cell, maybe, number};
use super::{CliError, Context, Exit, text};
use crate::db::inspect::schedules::{self, Change, Schedule};

const GROUP_EXAMPLES: &str = "\
Examples:
  yardmaster schedule list
  yardmaster schedule preview nightly --count 10
  yardmaster schedule pause nightly";
const LIST_EXAMPLES: &str = "\
Examples:
  yardmaster schedule list
  yardmaster schedule list -o json | jq -r '.[] | select(.error).name'";
const PREVIEW_EXAMPLES: &str = "\
Over changes of the clock, too: an hour that is left out, or comes twice, has each tick once.

Examples:
  yardmaster schedule preview nightly
  yardmaster schedule preview 7 --count 20";
const PAUSE_EXAMPLES: &str = "\
Its jobs that were made already go on.

Examples:
  yardmaster schedule pause nightly";
const RESUME_EXAMPLES: &str = "\
Ticks during the pause are not made up for.

Examples:
  yardmaster schedule resume nightly";
const DELETE_EXAMPLES: &str = "\
Its jobs stay.

Examples:
  yardmaster schedule delete nightly";

/// The verbs of schedules.
#[derive(Debug, Subcommand)]
#[command(after_help = GROUP_EXAMPLES)]
pub enum ScheduleVerb {
    /// List schedules with their next tick and what came of the last.
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// Show the next ticks of a schedule.
    #[command(after_help = PREVIEW_EXAMPLES)]
    Preview(PreviewArgs),
    /// Make no more jobs until it is resumed.
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(ScheduleArgs),
    /// Go on with the next tick.
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(ScheduleArgs),
    /// Remove a schedule.
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(ScheduleArgs),
}

/// Arguments of verbs that take a schedule and nothing else.
#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// The schedule's name or id.
    #[arg(value_name = "SCHEDULE")]
    schedule: String,
}

/// Arguments of `schedule preview`.
#[derive(Debug, Args)]
pub struct PreviewArgs {
    /// The schedule's name or id.
    #[arg(value_name = "SCHEDULE")]
    schedule: String,
    /// How many ticks.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

pub(super) async fn schedule(context: &Context, verb: ScheduleVerb) -> Result<Exit, CliError> {
    match verb {
        ScheduleVerb::List => list(context).await,
        ScheduleVerb::Preview(args) => preview(context, &args).await,
        ScheduleVerb::Pause(args) => change(context, Change::Pause, "paused", &args.schedule).await,
        ScheduleVerb::Resume(args) => change(context, Change::Resume, "resumed", &args.schedule).await,
        ScheduleVerb::Delete(args) => change(context, Change::Delete, "deleted", &args.schedule).await,
    }
}

async fn list(context: &Context) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let schedules = schedules::list(&connection.client).await?;
    if context.output.is_json() {
        context.output.json(&schedules)?;
        return Ok(Exit::Well);
    }
    let rows = schedules.iter().map(|schedule| {
        vec![
            number(schedule.schedule_id.to_string()),
            cell(&schedule.name),
            cell(&schedule.owner),
            cell(rhythm(schedule)),
            cell(match schedule.next_tick {
                _ if schedule.paused => "paused".to_owned(),
                Some(tick) => text::moment(tick),
                None => "-".to_owned(),
            }),
            maybe(schedule.last_outcome.as_deref()),
            maybe(schedule.last_job_id.as_deref()),
            maybe(schedule.error.as_deref()),
        ]
    });
    let header = ["id", "schedule", "owner", "ticks", "next", "last", "job", "error"];
    context.output.write(&format!("{}\n", context.output.table(&header, rows)))?;
    Ok(Exit::Well)
}

/// The rule in a few words.
fn rhythm(schedule: &Schedule) -> String {
    match (&schedule.cron, schedule.every_seconds) {
        (Some(cron), _) => format!("{cron} {}", schedule.time_zone),
        (None, Some(seconds)) => {
            let every = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            format!("every {}", humantime::format_duration(every))
        }
        (None, None) => "-".to_owned(),
    }
}

async fn preview(context: &Context, args: &PreviewArgs) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let schedule = schedules::one(&connection.client, &args.schedule).await?;
    let ticks = schedule
        .preview(Timestamp::now(), usize::from(args.count))
        .map_err(|e| CliError::Usage(format!("schedule \"{}\": {e}", schedule.name)))?;
    if context.output.is_json() {
        context.output.json(&ticks)?;
        return Ok(Exit::Well);
    }
    if schedule.paused {
        context.output.warn("the schedule is paused: none of these makes a job until it is resumed");
    }
    let zone = TimeZone::get(&schedule.time_zone).unwrap_or(TimeZone::UTC);
    for tick in ticks {
        let local = tick.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string();
        context.output.line(&local)?;
    }
    Ok(Exit::Well)
}

async fn change(context: &Context, what: Change, done: &str, word: &str) -> Result<Exit, CliError> {
    let connection = context.connect().await?;
    let schedule = schedules::one(&connection.client, word).await?;
    schedules::change(&connection.client, what, schedule.schedule_id).await?;
    if context.output.is_json() {
        context.output.json(&json!({ "schedule_id": schedule.schedule_id.to_string(), "change": done }))?;
    } else {
        context.output.line(&format!(
            "schedule {} {} {done}",
            schedule.schedule_id,
            text::inert(&schedule.name)
        ))?;
    }
    Ok(Exit::Well)
}
