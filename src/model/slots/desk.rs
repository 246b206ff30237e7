//! The desk where slots are asked for: a [`SlotTable`], and the patience of lanes that need several nodes.
//!
//! A lane whose first ready task needs several nodes and was refused one of them longer than
//! [`SlotDesk::reserve_after`] gets a reservation. Its age is that of the refusal, so a lane that cannot start for
//! another reason (no session, nothing ready) neither grows old nor keeps nodes: whoever asks says each time which
//! lanes of several nodes wait, and all others are forgotten. When its first task has started, those that were known
//! to wait behind it are as old as it was.
//!
//! It holds no clock: `now` is the time since some fixed moment.

use std::collections::HashMap;
use std::time::Duration;

use super::{Full, Limits, SlotGrant, SlotTable};
use crate::model::{LaneId, QueueKey};

/// What is ready, as far as it is known, in a lane of several nodes that could start but for its slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crossing {
    /// The lane.
    pub lane: LaneId,
    /// Its first ready task.
    pub first: QueueKey,
    /// The last one known.
    pub last: QueueKey,
}

/// Since when the tasks of a lane have been refused, and up to which.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Duration,
    up_to: QueueKey,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct SlotDesk {
    /// The slots.
    pub table: SlotTable,
    /// How long a task waits for several nodes before they are kept for it.
    pub reserve_after: Duration,
    crossings: HashMap<LaneId, Crossing>,
    waits: HashMap<LaneId, Wait>,
}

impl SlotDesk {
    /// A desk of which nothing is in use.
    pub fn new(limits: Limits, reserve_after: Duration) -> SlotDesk {
        SlotDesk { table: SlotTable::new(limits), reserve_after, ..SlotDesk::default() }
    }

    /// Hears all lanes that wait for several nodes. Ends the reservations and the age of all others.
    pub fn hear(&mut self, crossings: &[Crossing]) {
        self.crossings = crossings.iter().map(|c| (c.lane, *c)).collect();
        let (crossings, table) = (&self.crossings, &mut self.table);
        self.waits.retain(|lane, wait| {
            let still = crossings.get(lane).is_some_and(|c| c.first <= wait.up_to);
            if !still {
                table.release_reservation(reservation(*lane));
            }
            still
        });
    }

    /// Takes slots for the first task of a lane. A refusal makes the lane wait, and a long wait reserves.
    ///
    /// # Errors
    /// As [`SlotTable::try_take`].
    pub fn take(&mut self, now: Duration, lane: LaneId, nodes: &[String]) -> Result<SlotGrant, Full> {
        let taken = self.table.try_take_reserved(reservation(lane), nodes);
        taken.inspect_err(|full| self.refused(now, lane, nodes, full))
    }

    /// Would [`SlotDesk::take`] succeed? A refusal counts as one.
    ///
    /// # Errors
    /// As [`SlotTable::try_take`].
    pub fn fits(&mut self, now: Duration, lane: LaneId, nodes: &[String]) -> Result<(), Full> {
        let fits = self.table.fits_reserved(reservation(lane), nodes);
        fits.inspect_err(|full| self.refused(now, lane, nodes, full))
    }

    fn refused(&mut self, now: Duration, lane: LaneId, nodes: &[String], full: &Full) {
        let Some(crossing) = self.crossings.get(&lane) else { return };
        match full {
            Full::Node(_) | Full::Reserved(_) => {}
            // Nodes are not what it waits for.
            Full::Global => return,
        }
        let wait = self.waits.entry(lane).or_insert(Wait { since: now, up_to: crossing.last });
        if now.saturating_sub(wait.since) >= self.reserve_after {
            self.table.reserve(reservation(lane), nodes);
        }
    }
}

/// A lane has one reservation at most.
fn reservation(lane: LaneId) -> u64 {
    u64::from(lane.0.unsigned_abs())
}
