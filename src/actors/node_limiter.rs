//! The shell around [`SlotTable`]: the one place where slots are counted.

use actix::{Actor, AsyncContext, Context, Handler, MessageResult};
use tokio::time::Instant;

use crate::messages::{
    AcquireSlots, AdoptSlots, GetSlots, SetLimits, SlotAnswer, SlotPermit, SlotWant, SlotsReturned,
};
use crate::model::{Full, Limits, SlotGrant, SlotTable};

/// Counts slots. Permits return their slots by being dropped.
#[derive(Debug)]
pub struct NodeLimiter {
    table: SlotTable,
    /// Since when work has been waiting for slots.
    waiting_since: Option<Instant>,
}

impl NodeLimiter {
    /// A limiter of which nothing is in use.
    pub fn new(limits: Limits) -> NodeLimiter {
        NodeLimiter { table: SlotTable::new(limits), waiting_since: None }
    }

    fn permit(grant: SlotGrant, ctx: &Context<Self>) -> SlotPermit {
        SlotPermit::new(grant, ctx.address().recipient().downgrade())
    }

    /// One warning when work first waits for slots, one line when it ends saying how long.
    fn note_waiting(&mut self, full: Option<&Full>, others_wait: bool) {
        match (full, self.waiting_since) {
            (None, _) if others_wait => {}
            (Some(reason), None) => {
                tracing::warn!("tasks wait for slots: {reason}");
                self.waiting_since = Some(Instant::now());
            }
            (None, Some(since)) => {
                tracing::info!("tasks no longer wait for slots; they did for {:.1?}", since.elapsed());
                self.waiting_since = None;
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn answer(&mut self, want: &SlotWant, ctx: &Context<Self>) -> SlotAnswer {
        if want.hold {
            self.table.try_take(&want.nodes).map(|grant| SlotAnswer::Granted(Self::permit(grant, ctx)))
        } else {
            self.table.fits(&want.nodes).map(|()| SlotAnswer::Fits)
        }
        .unwrap_or_else(SlotAnswer::Full)
    }
}

impl Actor for NodeLimiter {
    type Context = Context<Self>;
}

impl Handler<AcquireSlots> for NodeLimiter {
    type Result = MessageResult<AcquireSlots>;

    fn handle(&mut self, ask: AcquireSlots, ctx: &mut Self::Context) -> Self::Result {
        let answers: Vec<SlotAnswer> = ask.wants.iter().map(|want| self.answer(want, ctx)).collect();
        let full = answers.iter().find_map(|answer| match answer {
            SlotAnswer::Full(reason) => Some(reason),
            SlotAnswer::Granted(_) | SlotAnswer::Fits => None,
        });
        self.note_waiting(full, ask.others_wait);
        MessageResult(answers)
    }
}

impl Handler<AdoptSlots> for NodeLimiter {
    type Result = MessageResult<AdoptSlots>;

    fn handle(&mut self, AdoptSlots(nodes): AdoptSlots, ctx: &mut Self::Context) -> Self::Result {
        MessageResult(nodes.iter().map(|nodes| Self::permit(self.table.adopt(nodes), ctx)).collect())
    }
}

impl Handler<SlotsReturned> for NodeLimiter {
    type Result = ();

    fn handle(&mut self, SlotsReturned(grant): SlotsReturned, _: &mut Self::Context) {
        self.table.give_back(grant);
    }
}

impl Handler<SetLimits> for NodeLimiter {
    type Result = ();

    fn handle(&mut self, SetLimits(limits): SetLimits, _: &mut Self::Context) {
        self.table.set_limits(limits);
    }
}

impl Handler<GetSlots> for NodeLimiter {
    type Result = MessageResult<GetSlots>;

    fn handle(&mut self, GetSlots: GetSlots, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.table.snapshot())
    }
}
