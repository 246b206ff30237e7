//! The shell around [`SlotDesk`]: the one place where slots are counted.

use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, MessageResult};
use tokio::time::Instant;

use crate::messages::{
    AcquireSlots, AdoptSlots, GetSlots, SetLimits, SlotAnswer, SlotPermit, SlotWant, SlotsReturned,
};
use crate::model::{Full, Limits, SlotDesk, SlotGrant};

/// Work that waits asks again at every poll of the catalog (1 s). When nobody was refused for so long, nobody waits.
const CALM_AFTER: Duration = Duration::from_secs(3);

/// More than the attempts that can be alive (1000), each of which may ask at a takeover.
const MAILBOX: usize = 4096;

/// Since when work has been waiting for slots, and until when at least.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    refused: Instant,
}

/// Counts slots. Permits return their slots by being dropped.
#[derive(Debug)]
pub struct NodeLimiter {
    desk: SlotDesk,
    /// The desk's clock.
    since: Instant,
    waiting: Option<Waiting>,
}

impl NodeLimiter {
    /// A limiter of which nothing is in use.
    pub fn new(limits: Limits, reserve_after: Duration) -> NodeLimiter {
        NodeLimiter { desk: SlotDesk::new(limits, reserve_after), since: Instant::now(), waiting: None }
    }

    fn permit(grant: SlotGrant, ctx: &Context<Self>) -> SlotPermit {
        SlotPermit::new(grant, ctx.address().recipient().downgrade())
    }

    /// One warning when work first waits for slots. A full house refuses somebody in most rounds and nobody in some, so
    /// the end of the waiting is not seen here but by [`NodeLimiter::calm`].
    fn note_refusal(&mut self, reason: Option<&Full>) {
        let now = Instant::now();
        match (&mut self.waiting, reason) {
            (Some(waiting), _) => waiting.refused = now,
            (None, Some(reason)) => {
                tracing::warn!("tasks wait for slots: {reason}");
                self.waiting = Some(Waiting { since: now, refused: now });
            }
            (None, None) => {}
        }
    }

    /// One line when the waiting is over, saying how long it took.
    fn calm(&mut self) {
        if let Some(waiting) = self.waiting.take_if(|w| w.refused.elapsed() >= CALM_AFTER) {
            tracing::info!(
                "tasks no longer wait for slots; they did for {:.1?}",
                waiting.refused - waiting.since
            );
        }
    }

    fn answer(&mut self, want: &SlotWant, ctx: &Context<Self>) -> SlotAnswer {
        let now = self.since.elapsed();
        if want.hold {
            let taken = self.desk.take(now, want.lane, &want.nodes);
            taken.map(|grant| SlotAnswer::Granted(Self::permit(grant, ctx)))
        } else {
            self.desk.fits(now, want.lane, &want.nodes).map(|()| SlotAnswer::Fits)
        }
        .unwrap_or_else(SlotAnswer::Full)
    }
}

impl Actor for NodeLimiter {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Every question keeps its place: slots adopted from a predecessor are counted before new ones are granted.
        ctx.set_mailbox_capacity(MAILBOX);
        ctx.run_interval(CALM_AFTER / 3, |limiter, _| limiter.calm());
    }
}

impl Handler<AcquireSlots> for NodeLimiter {
    type Result = MessageResult<AcquireSlots>;

    fn handle(&mut self, ask: AcquireSlots, ctx: &mut Self::Context) -> Self::Result {
        self.desk.hear(&ask.crossings);
        let answers: Vec<SlotAnswer> = ask.wants.iter().map(|want| self.answer(want, ctx)).collect();
        let full = answers.iter().find_map(|answer| match answer {
            SlotAnswer::Full(reason) => Some(reason),
            SlotAnswer::Granted(_) | SlotAnswer::Fits => None,
        });
        if full.is_some() || ask.others_wait {
            self.note_refusal(full);
        }
        MessageResult(answers)
    }
}

impl Handler<AdoptSlots> for NodeLimiter {
    type Result = MessageResult<AdoptSlots>;

    fn handle(&mut self, AdoptSlots(nodes): AdoptSlots, ctx: &mut Self::Context) -> Self::Result {
        MessageResult(nodes.iter().map(|nodes| Self::permit(self.desk.table.adopt(nodes), ctx)).collect())
    }
}

impl Handler<SlotsReturned> for NodeLimiter {
    type Result = ();

    fn handle(&mut self, SlotsReturned(grant): SlotsReturned, _: &mut Self::Context) {
        self.desk.table.give_back(grant);
    }
}

impl Handler<SetLimits> for NodeLimiter {
    type Result = ();

    fn handle(&mut self, set: SetLimits, _: &mut Self::Context) {
        self.desk.table.set_limits(set.limits);
        self.desk.reserve_after = set.reserve_after;
    }
}

impl Handler<GetSlots> for NodeLimiter {
    type Result = MessageResult<GetSlots>;

    fn handle(&mut self, GetSlots: GetSlots, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.desk.table.snapshot())
    }
}
