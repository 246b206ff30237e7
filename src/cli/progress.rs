//! Live progress of jobs on standard error: a bar and the running tasks on a terminal, plain lines elsewhere.
//!
//! It draws what [`JobProgress`] looks say and asks nothing itself. However many tasks there are, the number of
//! lines is bounded: failures are shown longest.

use std::io::Write;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::output::Output;
use super::text;
use crate::db::inspect::progress::{JobProgress, TaskGlance};
use crate::model::TaskStatus;

/// Running tasks below the bar.
const RUNNING_LINES: usize = 8;
/// Plain lines about tasks that ended well.
const MAX_GOOD_LINES: usize = 200;
/// Lines about failures.
const MAX_BAD_LINES: usize = 100;
/// Once the lines are used up, a summing-up so often.
const SUM_UP_EVERY: Duration = Duration::from_secs(5);

/// How progress is shown.
pub struct Screen {
    mode: Mode,
    from_start: bool,
    good_lines: usize,
    bad_lines: usize,
    summed_up: Option<Instant>,
}

enum Mode {
    Silent,
    Lines,
    Live { all: MultiProgress, bar: ProgressBar, running: Vec<ProgressBar> },
}

impl Screen {
    /// Shows nothing: for waits whose output goes to a program.
    pub fn silent() -> Self {
        Self::new(Mode::Silent, false)
    }

    /// A bar on a terminal; nothing elsewhere. For `wait`: what ended before is no news.
    pub fn on_terminal(output: &Output) -> Self {
        Self::new(if output.live { live(output) } else { Mode::Silent }, false)
    }

    /// A bar on a terminal; plain lines elsewhere. For `run` and `submit --wait`: everything is news.
    pub fn everywhere(output: &Output) -> Self {
        Self::new(if output.live { live(output) } else { Mode::Lines }, true)
    }

    fn new(mode: Mode, from_start: bool) -> Self {
        Self { mode, from_start, good_lines: 0, bad_lines: 0, summed_up: None }
    }

    /// Is there nothing to draw, so that looking at states is enough?
    pub fn is_silent(&self) -> bool {
        matches!(self.mode, Mode::Silent)
    }

    /// Does what ended before the first look count as news?
    pub fn from_start(&self) -> bool {
        self.from_start
    }

    /// Draws one look at all the jobs.
    pub fn show(&mut self, looks: &[JobProgress]) {
        if self.is_silent() {
            return;
        }
        let lines = self.lines(looks);
        match &mut self.mode {
            Mode::Silent => {}
            Mode::Lines => {
                let mut err = std::io::stderr().lock();
                for line in lines {
                    // There is nowhere left to report that standard error is closed.
                    let _ = writeln!(err, "{line}");
                }
            }
            Mode::Live { all, bar, running } => {
                for line in lines {
                    // A terminal that is gone has nobody to tell.
                    let _ = all.println(line);
                }
                let total = Total::of(looks);
                bar.set_length(u64::try_from(total.tasks).unwrap_or(0));
                bar.set_position(u64::try_from(total.ended()).unwrap_or(0));
                bar.set_message(total.line());
                draw_running(all, running, &running_lines(looks));
            }
        }
    }

    /// The lines that a look is worth, within what is left of the bounds. A bar tells by itself what went well.
    fn lines(&mut self, looks: &[JobProgress]) -> Vec<String> {
        let is_live = matches!(self.mode, Mode::Live { .. });
        let mut lines = Vec::new();
        for (now, glance) in
            looks.iter().flat_map(|look| look.news.iter().map(|glance| (look.job.now, glance)))
        {
            let (used, limit) = match glance.status == TaskStatus::Done {
                true if is_live => continue,
                true => (&mut self.good_lines, MAX_GOOD_LINES),
                false => (&mut self.bad_lines, MAX_BAD_LINES),
            };
            if *used < limit {
                *used += 1;
                lines.push(news_line(now, glance));
            } else if !is_live && self.summed_up.is_none() {
                self.summed_up = Some(Instant::now());
                lines.push("… there is more than is worth a line each; sums follow".to_owned());
            }
        }
        if self.summed_up.is_some_and(|at| at.elapsed() >= SUM_UP_EVERY)
            && let Some(look) = looks.first()
        {
            self.summed_up = Some(Instant::now());
            lines.push(format!("{} {}", text::clock(look.job.now), Total::of(looks).line()));
        }
        lines
    }

    /// Removes the bar, so that the cursor is where results go.
    pub fn finish(&mut self) {
        if let Mode::Live { all, bar, running } = &mut self.mode {
            running.drain(..).for_each(|line| line.finish_and_clear());
            bar.finish_and_clear();
            let _ = all.clear();
        }
    }
}

/// An interrupted wait leaves no half-drawn bar behind.
impl Drop for Screen {
    fn drop(&mut self) {
        self.finish();
    }
}

fn live(output: &Output) -> Mode {
    let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
    let template = if output.colour_err { "{bar:28.cyan/dim} {wide_msg}" } else { "{bar:28} {wide_msg}" };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = all.add(ProgressBar::new(0).with_style(style.progress_chars("━╸─")));
    Mode::Live { all, bar, running: Vec::new() }
}

fn draw_running(all: &MultiProgress, bars: &mut Vec<ProgressBar>, lines: &[String]) {
    while bars.len() > lines.len() {
        if let Some(bar) = bars.pop() {
            bar.finish_and_clear();
            all.remove(&bar);
        }
    }
    while bars.len() < lines.len() {
        let style =
            ProgressStyle::with_template("  {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        bars.push(all.add(ProgressBar::new_spinner().with_style(style)));
    }
    bars.iter().zip(lines).for_each(|(bar, line)| bar.set_message(line.clone()));
}

fn running_lines(looks: &[JobProgress]) -> Vec<String> {
    let running: Vec<(Timestamp, &TaskGlance)> =
        looks.iter().flat_map(|look| look.running.iter().map(|glance| (look.job.now, glance))).collect();
    let mut lines: Vec<String> = running
        .iter()
        .take(RUNNING_LINES)
        .map(|(now, glance)| {
            let mut line = text::task_title(glance.task, glance.name.as_deref());
            if let Some(node) = &glance.node {
                line.push_str(&format!(" on {}", text::inert(node)));
            }
            if let Some(start) = glance.started_at {
                line.push_str(&format!("  {}", text::between(start, *now)));
            }
            if glance.attempt > 1 {
                line.push_str(&format!("  attempt {}", glance.attempt));
            }
            if glance.status == TaskStatus::Cancelling {
                line.push_str("  cancelling");
            }
            line
        })
        .collect();
    if running.len() > RUNNING_LINES {
        lines.push(format!("… and {} more", running.len() - RUNNING_LINES));
    }
    lines
}

/// What a plain line says about a task that ended, or failed and will be tried again.
fn news_line(now: Timestamp, glance: &TaskGlance) -> String {
    let at = text::clock(glance.finished_at.unwrap_or(now));
    let title = text::task_title(glance.task, glance.name.as_deref());
    let took = match (glance.started_at, glance.finished_at) {
        (Some(start), Some(end)) => format!(" {}", text::between(start, end)),
        _ => String::new(),
    };
    let said = match glance.message.as_deref().map(text::headline) {
        Some(line) if !line.is_empty() => format!(": {line}"),
        _ => String::new(),
    };
    match glance.status {
        TaskStatus::Done if took.is_empty() => format!("{at} {title} done"),
        TaskStatus::Done => format!("{at} {title} done in{took}"),
        TaskStatus::Error if took.is_empty() => format!("{at} {title} failed{said}"),
        TaskStatus::Error => format!("{at} {title} failed after{took}{said}"),
        TaskStatus::Runnable => {
            format!("{at} {title} failed at attempt {}, will be tried again{said}", glance.attempt)
        }
        TaskStatus::Unscheduled | TaskStatus::Cancelled => format!("{at} {title} {}{said}", glance.status),
        TaskStatus::Blocked | TaskStatus::Running | TaskStatus::Cancelling => {
            format!("{at} {title} {}", glance.status)
        }
    }
}

/// The counters of all the jobs together.
struct Total {
    tasks: i64,
    done: i64,
    bad: i64,
    running: usize,
    elapsed: SignedDuration,
}

impl Total {
    fn of(looks: &[JobProgress]) -> Self {
        let jobs = || looks.iter().map(|look| &look.job);
        let elapsed = jobs()
            .map(|job| {
                job.finished_at.unwrap_or(job.now).duration_since(job.started_at.unwrap_or(job.submitted_at))
            })
            .max();
        Self {
            tasks: jobs().map(|job| job.tasks).sum(),
            done: jobs().map(|job| job.tasks_done).sum(),
            bad: jobs().map(|job| job.tasks_failed).sum(),
            running: looks.iter().map(|look| look.running.len()).sum(),
            elapsed: elapsed.unwrap_or_default(),
        }
    }

    fn ended(&self) -> i64 {
        self.done + self.bad
    }

    /// The rest at the speed so far; none before anything ended.
    fn eta(&self) -> Option<SignedDuration> {
        let ended = self.ended();
        let left = self.tasks - ended;
        if ended <= 0 || left <= 0 {
            return None;
        }
        SignedDuration::try_from_secs_f64(self.elapsed.as_secs_f64() * left as f64 / ended as f64).ok()
    }

    fn line(&self) -> String {
        let mut line = format!("{}/{} done", text::count(self.done), text::count(self.tasks));
        if self.bad > 0 {
            line.push_str(&format!(", {} not done", text::count(self.bad)));
        }
        if self.running > 0 {
            line.push_str(&format!(", {} running", self.running));
        }
        line.push_str(&format!("  {}", text::duration(self.elapsed)));
        if let Some(eta) = self.eta() {
            line.push_str(&format!(", about {} left", text::duration(eta)));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::inspect::jobs::Job;
    use crate::model::{JobId, JobStatus, TaskId};

    fn glance(status: TaskStatus, message: Option<&str>) -> TaskGlance {
        let start: Timestamp = "2026-11-30T12:03:04Z".parse().unwrap();
        TaskGlance {
            task: TaskId(3),
            name: Some("fill\u{1b}[2J".to_owned()),
            status,
            attempt: 2,
            node: None,
            started_at: Some(start),
            finished_at: status.is_terminal().then(|| start + SignedDuration::from_millis(1200)),
            message: message.map(str::to_owned),
        }
    }

    #[test]
    fn a_plain_line_says_what_ended_how_and_how_long_it_took() {
        let now = "2026-11-30T12:03:09Z".parse().unwrap();
        let done = news_line(now, &glance(TaskStatus::Done, None));
        assert!(done.ends_with(" task 3 fill\\u{1b}[2J done in 1.2s"), "{done}");
        let failed = news_line(
            now,
            &glance(TaskStatus::Error, Some("NOTICE: x\nERROR: division by zero\nCONTEXT: y")),
        );
        assert!(failed.ends_with("failed after 1.2s: ERROR: division by zero"), "{failed}");
        let again = news_line(now, &glance(TaskStatus::Runnable, Some("ERROR: deadlock detected")));
        assert!(
            again.ends_with("failed at attempt 2, will be tried again: ERROR: deadlock detected"),
            "{again}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn twenty_thousand_tasks_make_a_bounded_number_of_lines_and_failures_are_among_them() {
        let now: Timestamp = "2026-11-30T12:03:09Z".parse().unwrap();
        let job = Job {
            job_id: JobId(1),
            state: JobStatus::Running,
            paused: false,
            job_type: None,
            description: None,
            owner: "alice".to_owned(),
            submitted_by: "alice".to_owned(),
            priority: 0,
            key: None,
            tasks: 20_000,
            tasks_done: 19_000,
            tasks_failed: 1_000,
            submitted_at: now,
            started_at: Some(now),
            finished_at: None,
            now,
        };
        let mut news = vec![glance(TaskStatus::Done, None); 19_000];
        news.extend(vec![glance(TaskStatus::Error, Some("ERROR: x")); 1_000]);
        let look = JobProgress { job, running: Vec::new(), news };
        let mut screen = Screen::new(Mode::Lines, true);
        let lines = screen.lines(std::slice::from_ref(&look));
        assert_eq!(lines.len(), MAX_GOOD_LINES + MAX_BAD_LINES + 1);
        assert_eq!(lines.iter().filter(|line| line.ends_with("ERROR: x")).count(), MAX_BAD_LINES);
        tokio::time::advance(SUM_UP_EVERY).await;
        let lines = screen.lines(&[look]);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("19,000/20,000 done, 1,000 not done  0.0s"), "{lines:?}");
    }

    #[test]
    fn the_rest_is_estimated_from_the_speed_so_far() {
        let mut total =
            Total { tasks: 100, done: 24, bad: 1, running: 4, elapsed: SignedDuration::from_secs(50) };
        assert_eq!(total.eta(), Some(SignedDuration::from_secs(150)));
        assert_eq!(total.line(), "24/100 done, 1 not done, 4 running  50s, about 2m 30s left");
        total.done = 99;
        assert_eq!(total.eta(), None);
        total = Total { tasks: 0, done: 0, bad: 0, running: 0, elapsed: SignedDuration::ZERO };
        assert_eq!(total.line(), "0/0 done  0.0s");
    }
}
