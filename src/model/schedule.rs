//! Schedules: when a job is made again and again. Pure: the caller brings the moments.
//!
//! A *tick* is a moment at which the job is due. Ticks of a cron pattern are those of the clock on the wall of its time zone
//! (RFC 5545 has no say here; the crate croner has, as Vixie's cron: over a change to summer time a fixed time that does not
//! exist comes with the first moment after the gap, over a change back it comes once; patterns with `*` or `*/n` go by real
//! time). Ticks of an interval are counted from the schedule's beginning.

use std::str::FromStr as _;

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Ticks that one look makes good at most; the next look goes on.
const MAX_TICKS: usize = 100;
/// A tick that is later than this was missed: nobody was there to make its job.
pub const LATE: SignedDuration = SignedDuration::from_mins(1);
/// The shortest interval, and the one of the densest cron pattern.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// The longest: beyond it a slip of the pen is likely.
const MAX_INTERVAL: SignedDuration = SignedDuration::from_hours(24 * 1000);

/// What happens at a tick while the job of the tick before has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// The tick makes no job.
    Skip,
    /// The tick waits for that end.
    Queue,
    /// The tick makes its job in any case.
    Allow,
}

impl Overlap {
    /// All, with the words used in SQL and job files.
    pub const ALL: [(&'static str, Overlap); 3] =
        [("skip", Overlap::Skip), ("queue", Overlap::Queue), ("allow", Overlap::Allow)];
}

/// What happens to several ticks that are due at once: those missed while no service ran, or that waited in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    /// The latest makes a job, for all of them.
    Latest,
    /// Each makes a job.
    All,
    /// None does that is more than [`LATE`] late.
    None,
}

impl CatchUp {
    /// All, with the words used in SQL and job files.
    pub const ALL: [(&'static str, CatchUp); 3] =
        [("latest", CatchUp::Latest), ("all", CatchUp::All), ("none", CatchUp::None)];
}

/// When ticks come.
#[derive(Debug, Clone)]
enum Rhythm {
    Cron(Box<Cron>, TimeZone),
    Every(SignedDuration),
}

/// A schedule's rule.
#[derive(Debug, Clone)]
pub struct Schedule {
    rhythm: Rhythm,
    /// While the job before has not ended.
    pub overlap: Overlap,
    /// For ticks that come late.
    pub catch_up: CatchUp,
}

/// Why a rule is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSchedule {
    /// Neither or both of cron and interval.
    #[error("a schedule has either `cron` or `every`")]
    NoRhythm,
    /// The pattern cannot be read.
    #[error("the cron pattern \"{pattern}\" cannot be read: {reason}")]
    Cron {
        /// As given.
        pattern: String,
        /// In croner's words.
        reason: String,
    },
    /// The pattern names a day that never comes.
    #[error("the cron pattern \"{0}\" never comes true")]
    Never(String),
    /// No such time zone.
    #[error("the time zone \"{0}\" is unknown")]
    Zone(String),
    /// Out of range.
    #[error("`every` must be between 1 second and 1000 days")]
    Interval,
    /// A queue from which everything late is thrown away.
    #[error("overlap = \"queue\" needs catch_up = \"latest\" or \"all\": what waits in the queue is late")]
    EmptyQueue,
}

impl BadSchedule {
    /// The remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            BadSchedule::NoRhythm => "write cron = \"30 2 * * *\" or every = \"15m\"",
            BadSchedule::Cron { .. } => {
                "minute, hour, day of month, month, day of week, as in \"30 2 * * MON-FRI\"; a sixth field in front is seconds"
            }
            BadSchedule::Never(_) => "such a day does not exist",
            BadSchedule::Zone(_) => "name one of the IANA database, as in \"Europe/Berlin\" or \"UTC\"",
            BadSchedule::Interval => "write a duration such as \"30s\", \"15m\" or \"1day\"",
            BadSchedule::EmptyQueue => "leave catch_up out, or choose another overlap",
        }
    }
}

/// What to do about one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Make the job.
    Fire,
    /// The job before has not ended.
    Overlaps,
    /// It came too late, or a later one stands for it.
    Missed,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Ticks with their verdicts, in order; at most one of them fires unless overlap is allowed.
    pub ticks: Vec<(Timestamp, Verdict)>,
    /// The first tick that is not dealt with; may be past if there is more to do. None: there is no other.
    pub next: Option<Timestamp>,
}

impl Schedule {
    /// Reads a rule.
    ///
    /// # Errors
    /// See [`BadSchedule`].
    pub fn new(
        cron: Option<&str>,
        every: Option<SignedDuration>,
        zone: &str,
        overlap: Overlap,
        catch_up: CatchUp,
    ) -> Result<Schedule, BadSchedule> {
        let time_zone = TimeZone::get(zone).map_err(|_| BadSchedule::Zone(zone.to_owned()))?;
        let rhythm = match (cron, every) {
            (Some(pattern), None) => Rhythm::Cron(Box::new(read_cron(pattern)?), time_zone),
            (None, Some(every)) if (MIN_INTERVAL..=MAX_INTERVAL).contains(&every) => Rhythm::Every(every),
            (None, Some(_)) => return Err(BadSchedule::Interval),
            (None, None) | (Some(_), Some(_)) => return Err(BadSchedule::NoRhythm),
        };
        if overlap == Overlap::Queue && catch_up == CatchUp::None {
            return Err(BadSchedule::EmptyQueue);
        }
        Ok(Schedule { rhythm, overlap, catch_up })
    }

    /// The first tick after a moment; `origin` is the schedule's beginning. None if there is no other before the year 5000.
    pub fn next_after(&self, moment: Timestamp, origin: Timestamp) -> Option<Timestamp> {
        match &self.rhythm {
            Rhythm::Cron(cron, zone) => {
                let next = cron.find_next_occurrence(&moment.to_zoned(zone.clone()), false).ok()?.timestamp();
                (next > moment).then_some(next)
            }
            Rhythm::Every(every) => {
                let passed = moment.duration_since(origin).as_millis();
                let steps = passed.div_euclid(every.as_millis()) + 1;
                let offset = i64::try_from(steps * every.as_millis()).ok()?;
                origin.checked_add(SignedDuration::from_millis(offset)).ok()
            }
        }
    }

    /// The next `count` ticks after a moment.
    pub fn preview(&self, moment: Timestamp, origin: Timestamp, count: usize) -> Vec<Timestamp> {
        let next = |tick: &Timestamp| self.next_after(*tick, origin);
        std::iter::successors(self.next_after(moment, origin), next).take(count).collect()
    }

    /// Decides about the ticks from `next` to `now`; `busy` says that the job of the newest tick has not ended.
    pub fn plan(&self, next: Timestamp, now: Timestamp, origin: Timestamp, busy: bool) -> Plan {
        let mut due = Vec::new();
        let mut tick = Some(next);
        while let Some(moment) = tick.filter(|moment| *moment <= now) {
            if due.len() == MAX_TICKS {
                break;
            }
            due.push(moment);
            tick = self.next_after(moment, origin);
        }
        let all_seen = tick.is_none_or(|tick| tick > now);
        let mut plan = Plan { ticks: Vec::with_capacity(due.len()), next: tick };
        let mut busy = busy;
        for (i, &moment) in due.iter().enumerate() {
            let is_latest = all_seen && i + 1 == due.len();
            let counts = match self.catch_up {
                CatchUp::Latest => is_latest,
                CatchUp::All => true,
                CatchUp::None => now.duration_since(moment) <= LATE,
            };
            let verdict = match self.overlap {
                _ if !counts => Verdict::Missed,
                Overlap::Allow => Verdict::Fire,
                Overlap::Skip | Overlap::Queue if !busy => Verdict::Fire,
                Overlap::Skip => Verdict::Overlaps,
                Overlap::Queue => {
                    plan.next = Some(moment);
                    break;
                }
            };
            busy |= verdict == Verdict::Fire;
            plan.ticks.push((moment, verdict));
        }
        plan
    }
}

fn read_cron(pattern: &str) -> Result<Cron, BadSchedule> {
    let bad = |reason: String| BadSchedule::Cron { pattern: pattern.to_owned(), reason };
    let cron = Cron::from_str(pattern).map_err(|e| bad(e.to_string().trim_end_matches('.').to_owned()))?;
    let from = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
    cron.find_next_occurrence(&from, true).map_err(|_| BadSchedule::Never(pattern.to_owned()))?;
    Ok(cron)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
