//! Slots: asked for, held as permits, returned by ownership.

use std::time::Duration;

use actix::{Message, WeakRecipient};

use crate::model::slots::{Full, SlotSnapshot};
use crate::model::{Crossing, LaneId, Limits, SlotGrant};

/// One possible start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotWant {
    /// The lane that starts.
    pub lane: LaneId,
    /// The nodes whose slots it takes.
    pub nodes: Vec<String>,
    /// True: take the slots. False: only tell whether they would be free.
    pub hold: bool,
}

/// The answer to one want.
#[derive(Debug)]
pub enum SlotAnswer {
    /// The slots are held.
    Granted(SlotPermit),
    /// They would be free.
    Fits,
    /// They are not, for this reason.
    Full(Full),
}

/// Decide about wants in their order, each all or nothing. A want that is refused takes nothing from those behind it.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Vec<SlotAnswer>")]
pub struct AcquireSlots {
    /// In order of dispatch.
    pub wants: Vec<SlotWant>,
    /// Others wait for slots that are known to be taken, and are not asked for.
    pub others_wait: bool,
    /// All lanes of several nodes that wait, asked for or not.
    pub crossings: Vec<Crossing>,
}

/// Take slots whatever the limits say, for attempts of a predecessor that may still run.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Vec<SlotPermit>")]
pub struct AdoptSlots(pub Vec<Vec<String>>);

/// A permit was dropped.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct SlotsReturned(pub SlotGrant);

/// New limits: raising acts at once, lowering lets running tasks end.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct SetLimits {
    /// The limits.
    pub limits: Limits,
    /// How long a task waits for several nodes before they are kept for it.
    pub reserve_after: Duration,
}

/// What is in use, under which limits.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "SlotSnapshot")]
pub struct GetSlots;

/// The right to one running task. Its slots return when it is dropped, wherever that happens.
///
/// It belongs to the lending of a session: whoever runs an attempt keeps it until the session is ready again or its
/// backend is known gone. Only the NodeLimiter makes one.
#[derive(Debug)]
pub struct SlotPermit {
    grant: Option<SlotGrant>,
    home: WeakRecipient<SlotsReturned>,
}

impl SlotPermit {
    pub(crate) fn new(grant: SlotGrant, home: WeakRecipient<SlotsReturned>) -> SlotPermit {
        SlotPermit { grant: Some(grant), home }
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        // May run while unwinding, or after the NodeLimiter is gone: send if there is somebody, never insist.
        if let (Some(grant), Some(home)) = (self.grant.take(), self.home.upgrade()) {
            home.do_send(SlotsReturned(grant));
        }
    }
}
