//! Retry: after a failed or interrupted attempt, run the task again or give it up, and when.
//!
//! The policy comes from the settings, overridden by the job's and then by the task's own (the job file's `retry`,
//! kept as JSON in the catalog). Chance is an argument, so every decision can be repeated. No input can make a
//! delay negative, or longer than [`MAX_DELAY`].

mod delay;
mod overrides;

use std::time::Duration;

pub use delay::MAX_DELAY;
pub use overrides::RetryError;

use super::Ending;

/// How many interruptions are forgiven without a delay: restarts, upgrades and a takeover or two.
pub const PROMPT_INTERRUPTIONS: u32 = 5;
/// The longest delay after an interruption; it is reached at the twelfth.
pub const MAX_INTERRUPTION_DELAY: Duration = Duration::from_secs(60);

/// When a failed task runs again, and when it is given up.
#[derive(Clone, PartialEq, Debug)]
pub struct RetryPolicy {
    /// The delay after the first failure, the second…; the last one repeats. Empty: no delay.
    pub delays: Vec<Duration>,
    /// How many failed attempts are followed by another one, 0 to 10,000. 0: the first failure is final.
    pub max_retries: u32,
    /// The share of a delay that chance may add, 0 to 1.
    pub jitter: f64,
    /// SQLSTATE classes (two characters) and codes (five) that no retry can mend.
    pub permanent_sqlstates: Vec<String>,
}

impl Default for RetryPolicy {
    /// Citus's delays and count; permanent is what needs a human: class 42 (syntax error or access rule violation)
    /// and class 0A (feature not supported).
    fn default() -> Self {
        Self {
            delays: [5, 20, 60].map(Duration::from_secs).to_vec(),
            max_retries: 32,
            jitter: 0.0,
            permanent_sqlstates: ["42", "0A"].map(String::from).to_vec(),
        }
    }
}

impl RetryPolicy {
    /// Decides what follows a failed attempt: [`Ending::Retry`] or [`Ending::Error`].
    ///
    /// `failures_before` counts earlier failed attempts (the task's `retry_count` before this one), `sqlstate` is
    /// the failure's, and `random`, from 0 to 1, says how much of the jitter applies.
    pub fn decide(&self, failures_before: u32, sqlstate: &str, random: f64) -> Ending {
        if failures_before >= self.max_retries || self.is_permanent(sqlstate) {
            Ending::Error
        } else {
            Ending::Retry(self.delay_after(failures_before, random))
        }
    }

    /// Is this a failure that no retry can mend?
    pub fn is_permanent(&self, sqlstate: &str) -> bool {
        self.permanent_sqlstates.iter().any(|permanent| match permanent.len() {
            2 => sqlstate.starts_with(permanent.as_str()),
            _ => sqlstate == permanent,
        })
    }

    fn delay_after(&self, failures_before: u32, random: f64) -> Duration {
        let position = usize::try_from(failures_before).unwrap_or(usize::MAX);
        let delay =
            self.delays.get(position).or(self.delays.last()).copied().unwrap_or_default().min(MAX_DELAY);
        // At most doubled, so nothing below can overflow.
        let extra = delay.mul_f64(share(self.jitter) * share(random));
        (delay + extra).min(MAX_DELAY)
    }
}

/// Decides what follows an interrupted attempt: [`Ending::Again`], or [`Ending::Error`] once more than
/// `max_interruptions` attempts were interrupted.
pub fn after_interruption(interruptions_before: u32, max_interruptions: u32) -> Ending {
    if interruptions_before >= max_interruptions {
        Ending::Error
    } else {
        Ending::Again(interruption_delay(interruptions_before))
    }
}

/// Returns how long an interrupted task waits before it runs again, given how often it was interrupted before.
///
/// The first [`PROMPT_INTERRUPTIONS`] cost nothing: somebody restarts or upgrades, and the work should go on. Then
/// 1 s, doubling up to [`MAX_INTERRUPTION_DELAY`]: a task that kills the service or its server at each start must
/// not keep it in a spin of crashes, and leaves time for the others in between.
pub fn interruption_delay(interruptions_before: u32) -> Duration {
    match interruptions_before.checked_sub(PROMPT_INTERRUPTIONS) {
        None => Duration::ZERO,
        Some(doublings) => {
            let seconds = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
            Duration::from_secs(seconds).min(MAX_INTERRUPTION_DELAY)
        }
    }
}

/// Forces a number into 0 to 1; what is none counts as 0.
fn share(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, 1.0) }
}
