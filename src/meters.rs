//! What this process counts while it works, for `/metrics`.
//!
//! A meter belongs to the process, as the log does: whoever does the work raises it, wherever that is, and only the page
//! reads it. Nothing decides by a meter. What the catalog can be asked is not counted here.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// How an attempt ended, as a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Ended {
    /// `done`, `failed`, `interrupted` or `cancelled`.
    pub outcome: &'static str,
}

/// All meters.
#[derive(Debug)]
pub struct Meters {
    /// Seconds between the moment a task could run and its first claim.
    pub start_delay: Histogram,
    /// Seconds from claim to outcome of the attempts that ran here.
    pub duration: Family<Ended, Histogram, fn() -> Histogram>,
    /// Times that home was lost, or could not be reached at the start.
    pub outages: Counter,
}

/// From a millisecond to a quarter of an hour.
const DELAYS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0];
/// From a millisecond to a day.
const DURATIONS: [f64; 14] =
    [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0];

static METERS: LazyLock<Meters> = LazyLock::new(|| Meters {
    start_delay: Histogram::new(DELAYS),
    duration: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
    outages: Counter::default(),
});

/// The meters of this process.
pub fn meters() -> &'static Meters {
    &METERS
}

impl Meters {
    /// An attempt ended.
    pub fn attempt_ended(&self, outcome: &'static str, took: Duration) {
        self.duration.get_or_create(&Ended { outcome }).observe(took.as_secs_f64());
    }
}
