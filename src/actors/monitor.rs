//! The shell around [`Yard`]: message in, pure decision, message out.
//!
//! It owns what the Yard only counts: ready sessions, the seats of the round under way, the Executors' addresses. It
//! never waits for a query: turns run beside it, and Terminate is heard while one is slow.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Recipient, SpawnHandle, WrapFuture,
};

use tokio::time::Instant;

use super::executor::{Assignment, Executor, Peers};
use super::runner::{Runner, SessionSource};
use super::siding::{self, Siding};
use crate::db::{AttemptName, Completion};
use crate::messages::{
    AbandonTask, AcquireSlots, AdoptSlots, CancelTask, EndBackend, Flush, InterruptTask, PrepareOutput,
    Publish, PublishHealth, RequestCancel, Resolve, RunTurn, SetLimits, SlotAnswer, SlotPermit, SlotWant,
    Suspect, TicketMaker, TurnError, UseScratch, WakeAt,
};
use crate::meters::meters;
use crate::model::yard::{self, Answer, Effect, Input, Rules, Seat, Standing, Yard};
use crate::model::{ClaimedTask, Epoch, Full, Lane, LiveAttempt, RetryPolicy, SessionKey, TaskId, Turn};
use crate::settings::{self, Settings};

mod hearing;
mod opening;

/// Whom the Monitor talks to.
#[derive(Clone)]
pub struct Colleagues {
    /// Takes turns.
    pub turns: Recipient<RunTurn>,
    /// Resolves what is in doubt; for Executors.
    pub resolve: Recipient<Resolve>,
    /// Records the use of scratch schemas.
    pub scratch: Recipient<UseScratch>,
    /// Makes the folders of output files.
    pub output: Recipient<PrepareOutput>,
    /// Ends backends; for Executors.
    pub end: Recipient<EndBackend>,
    /// Makes claims durable; for Executors.
    pub flush: Recipient<Flush>,
    /// Asks for cancellation in the catalog.
    pub cancel: Recipient<RequestCancel>,
    /// Publishes nodes and limits.
    pub publish: Recipient<Publish>,
    /// Writes in the catalog how nodes are.
    pub health: Recipient<PublishHealth>,
    /// Probes a node that gave trouble.
    pub suspect: Recipient<Suspect>,
    /// Grants slots.
    pub slots: Recipient<AcquireSlots>,
    /// Grants slots whatever the limits say.
    pub adopt: Recipient<AdoptSlots>,
    /// Hears new limits.
    pub limits: Recipient<SetLimits>,
    /// Wakes when a delayed task is due.
    pub due: Recipient<WakeAt>,
    /// Hears that everything is settled; the argument says whether all went as asked.
    pub stopped: Rc<dyn Fn(bool)>,
    /// Hears what a reload changed.
    pub reloaded: Rc<dyn Fn(&Settings)>,
}

struct Office {
    epoch: Epoch,
    term: u64,
    token: uuid::Uuid,
    tickets: TicketMaker,
}

/// A place in the round under way: slots, and a session unless its owner is refused.
struct Place {
    permit: SlotPermit,
    session: Option<Box<dyn Runner>>,
    key: SessionKey,
}

/// The one deciding actor.
pub struct Monitor {
    yard: Yard,
    settings: Settings,
    /// The nodes that home names, with their urls.
    found: BTreeMap<String, String>,
    colleagues: Colleagues,
    sessions: Rc<dyn SessionSource>,
    siding: Siding,
    /// What the Yard wants done. A queue, because doing one thing may tell the Yard something.
    effects: VecDeque<Effect>,
    performing: bool,
    /// The permits granted for the wants of the round under way, by want.
    granted: HashMap<usize, SlotPermit>,
    /// Counts questions for slots: an answer to an earlier one than the last is stale.
    ask_number: u64,
    /// Counts turns: an answer to an earlier one than the last is stale.
    turn_number: u64,
    /// The offers of the round under way.
    places: Vec<Option<Place>>,
    /// What an Executor left to the next in line; empty but while that one is chosen.
    freed: Option<(TaskId, siding::Place)>,
    executors: HashMap<TaskId, (i32, Addr<Executor>)>,
    /// Claims and keys of running attempts, for an Executor that crashes.
    running: HashMap<TaskId, (ClaimedTask, SessionKey)>,
    /// When the attempts that were claimed here began, for the meters.
    begun: HashMap<TaskId, Instant>,
    office: Option<Office>,
    /// Keys whose opening failed, with the number of failures in a row.
    troubled: HashMap<SessionKey, u32>,
    /// What was last heard of each node, for the catalog.
    nodes: BTreeMap<String, Option<String>>,
    /// Ends the grace of a shutdown.
    grace: Option<SpawnHandle>,
}

impl Monitor {
    /// A Monitor without an office: the Ledger's TookOffice sets it to work.
    pub fn new(settings: Settings, colleagues: Colleagues, sessions: Rc<dyn SessionSource>) -> Monitor {
        Monitor {
            yard: Yard::new(rules(&settings)),
            settings,
            found: BTreeMap::new(),
            colleagues,
            sessions,
            siding: Siding::default(),
            effects: VecDeque::new(),
            performing: false,
            granted: HashMap::new(),
            ask_number: 0,
            turn_number: 0,
            places: Vec::new(),
            freed: None,
            executors: HashMap::new(),
            running: HashMap::new(),
            begun: HashMap::new(),
            office: None,
            troubled: HashMap::new(),
            nodes: BTreeMap::new(),
            grace: None,
        }
    }

    fn feed(&mut self, input: Input, ctx: &mut Context<Self>) {
        self.effects.extend(self.yard.feed(input));
        // Fed while performing: whoever performs goes on with these.
        if !std::mem::replace(&mut self.performing, true) {
            while let Some(effect) = self.effects.pop_front() {
                self.perform(effect, ctx);
            }
            self.performing = false;
        }
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::AskSlots { wants, first, others_wait, crossings } => {
                let wants = wants
                    .into_iter()
                    .map(|w| SlotWant { lane: w.lane, nodes: w.nodes, hold: w.ready })
                    .collect();
                self.ask_slots(AcquireSlots { wants, others_wait, crossings }, first, ctx);
            }
            Effect::TakeTurn { turn, seats } => self.take_turn(turn, seats, ctx),
            Effect::Start { offer, task, followed } => self.start(offer, task, followed, ctx),
            Effect::StartNext { after, task } => self.start_next(after, task, ctx),
            Effect::ReturnPlace { after } => self.return_place(after, ctx),
            Effect::TickSoon => {
                ctx.run_later(yard::TICK, |monitor, ctx| monitor.feed(Input::Ticked, ctx));
            }
            Effect::ReturnSeat { offer } => self.return_seat(offer, ctx),
            Effect::BurnSeats => self.places.clear(),
            Effect::Adopt(live) => self.adopt(*live, ctx),
            Effect::OpenSession(key) => self.open(key, ctx),
            Effect::Cancel(task) => self.tell(task, CancelTask),
            Effect::Interrupt(task) => self.tell(task, InterruptTask),
            Effect::Abandon(task) => {
                self.tell(task, AbandonTask);
                self.forget(task);
            }
            Effect::RequestCancel(jobs) => {
                let asked = self.colleagues.cancel.send(RequestCancel(jobs)).into_actor(self);
                ctx.spawn(asked.map(|_, monitor, ctx| monitor.feed(Input::Woken, ctx)));
            }
            Effect::WakeAt(due) => self.colleagues.due.do_send(WakeAt(due)),
            Effect::StartGrace => {
                let over = ctx.run_later(self.settings.shutdown.grace, |monitor, ctx| {
                    monitor.feed(Input::GraceOver, ctx)
                });
                if let Some(earlier) = self.grace.replace(over) {
                    ctx.cancel_future(earlier);
                }
            }
            Effect::Stop { clean } => (self.colleagues.stopped)(clean),
        }
    }

    // ---------------------------------------------------------------- a round

    fn ask_slots(&mut self, ask: AcquireSlots, first: usize, ctx: &mut Context<Self>) {
        if first == 0 {
            self.granted.clear();
        }
        self.ask_number += 1;
        let number = self.ask_number;
        let answered = self.colleagues.slots.send(ask).into_actor(self);
        ctx.spawn(answered.map(move |answers, monitor, ctx| {
            // Without a NodeLimiter the app is ending.
            let Ok(answers) = answers else { return };
            if number == monitor.ask_number {
                monitor.slots_answered(answers, first, ctx);
            }
        }));
    }

    fn slots_answered(&mut self, answers: Vec<SlotAnswer>, first: usize, ctx: &mut Context<Self>) {
        let mut plain = Vec::with_capacity(answers.len());
        for (want, answer) in (first..).zip(answers) {
            plain.push(match answer {
                SlotAnswer::Granted(permit) => {
                    self.granted.insert(want, permit);
                    Answer::Granted
                }
                SlotAnswer::Fits => Answer::Fits,
                SlotAnswer::Full(Full::Global) => Answer::AllFull,
                SlotAnswer::Full(Full::Node(_) | Full::Reserved(_)) => Answer::Full,
            });
        }
        let number = self.ask_number;
        self.feed(Input::SlotsAnswered(plain), ctx);
        if number == self.ask_number {
            // The Yard asks no further in this round: what it did not use goes back.
            self.granted.clear();
        }
    }

    fn take_turn(&mut self, mut turn: Turn, seats: Vec<Seat>, ctx: &mut Context<Self>) {
        self.places.clear();
        for (offer, seat) in turn.offers.iter_mut().zip(seats) {
            let session = if seat.sessionless() { None } else { self.siding.take(&seat.key) };
            offer.backend = session.as_ref().map(|s| s.backend());
            offer.site = session.as_ref().and_then(|s| s.site()).map(|site| site.id);
            let place =
                self.granted.remove(&seat.want).map(|permit| Place { permit, session, key: seat.key });
            self.places.push(place);
        }
        self.turn_number += 1;
        let number = self.turn_number;
        let term = self.office.as_ref().map_or(0, |office| office.term);
        let taken = self.colleagues.turns.send(RunTurn { turn, term }).into_actor(self);
        ctx.spawn(taken.map(move |answer, monitor, ctx| {
            if number != monitor.turn_number {
                return;
            }
            let input = match answer {
                Ok(Ok(reply)) => Input::TurnTaken(Box::new(reply)),
                Ok(Err(error)) => {
                    tracing::debug!("{error}");
                    Input::TurnFailed { in_doubt: matches!(error, TurnError::Doubt(_) | TurnError::NoOffice) }
                }
                // Without a Ledger the app is ending.
                Err(_) => return,
            };
            monitor.feed(input, ctx);
        }));
    }

    fn start(&mut self, offer: usize, task: ClaimedTask, followed: bool, ctx: &mut Context<Self>) {
        if let Some(Place { permit, session, key }) = self.places.get_mut(offer).and_then(Option::take) {
            self.note_start(&task);
            self.execute(task, key, session, permit, followed, ctx);
        }
    }

    fn note_start(&mut self, task: &ClaimedTask) {
        if let Some(waited) = task.waited {
            meters().start_delay.observe(waited.as_secs_f64());
        }
        self.begun.insert(task.task, Instant::now());
    }

    fn start_next(&mut self, after: TaskId, task: ClaimedTask, ctx: &mut Context<Self>) {
        if let Some((_, siding::Place { key, session, permit })) = self.freed.take_if(|(t, _)| *t == after) {
            self.note_start(&task);
            // Somebody may stand behind it too; the Yard knows.
            self.execute(task, key, Some(session), permit, true, ctx);
        }
    }

    fn return_place(&mut self, after: TaskId, ctx: &mut Context<Self>) {
        if let Some((_, place)) = self.freed.take_if(|(t, _)| *t == after) {
            drop(place.permit);
            self.keep(place.key, place.session, ctx);
        }
    }

    fn return_seat(&mut self, offer: usize, ctx: &mut Context<Self>) {
        let Some(place) = self.places.get_mut(offer).and_then(Option::take) else { return };
        drop(place.permit);
        if let Some(session) = place.session {
            // The Yard counts it as ready already.
            if !self.siding.put(place.key.clone(), session, &self.settings.sessions) {
                self.feed(Input::SessionGone(place.key), ctx);
            }
        }
    }

    // ---------------------------------------------------------------- attempts

    fn execute(
        &mut self,
        task: ClaimedTask,
        key: SessionKey,
        session: Option<Box<dyn Runner>>,
        permit: SlotPermit,
        followed: bool,
        ctx: &mut Context<Self>,
    ) {
        let Some(office) = &self.office else { return };
        let completion = Completion {
            epoch: office.epoch,
            token: office.token,
            ticket: match session.as_ref().and_then(|s| s.site()) {
                Some(site) => site.keys.ticket(&AttemptName::from(&task), &key.owner),
                None => (office.tickets.0)(&task, &key.owner),
            },
        };
        let peers = Peers {
            finished: ctx.address().recipient(),
            left: ctx.address().recipient(),
            crashed: ctx.address().recipient(),
            returned: ctx.address().recipient(),
            freed: ctx.address().recipient(),
            resolve: self.colleagues.resolve.clone(),
            scratch: self.colleagues.scratch.clone(),
            output: self.colleagues.output.clone(),
            end: self.colleagues.end.clone(),
            flush: self.colleagues.flush.clone(),
        };
        let (id, attempt) = (task.task, task.attempt);
        tracing::debug!(job = task.job.0, task = id.0, attempt, "attempt started");
        self.running.insert(id, (task.clone(), key.clone()));
        let assignment = Assignment {
            task,
            key,
            session,
            completion,
            permit,
            followed,
            grace: self.settings.cancel.grace,
        };
        self.executors.insert(id, (attempt, Executor::new(assignment, peers).start()));
        // What was asked before there was an Executor to hear it is asked again.
        match self.yard.standing(id, attempt) {
            Some(Standing::Cancelling) => self.tell(id, CancelTask),
            Some(Standing::Interrupted) => self.tell(id, InterruptTask),
            Some(Standing::Wanted) | None => {}
        }
    }

    /// Somebody must find out what became of an attempt; its slots are taken meanwhile, whatever the limits say.
    fn adopt(&mut self, live: LiveAttempt, ctx: &mut Context<Self>) {
        let (owner, owner_oid) = self
            .yard
            .lane(live.claimed.lane)
            .map(|l: &Lane| (l.session.owner.clone(), l.session.owner_oid))
            .unwrap_or_default();
        let key = SessionKey { node: live.node, owner, owner_oid };
        let task = live.claimed;
        tracing::info!(
            job = task.job.0,
            task = task.task.0,
            attempt = task.attempt,
            "outcome unknown: finding out"
        );
        let asked = self.colleagues.adopt.send(AdoptSlots(vec![live.nodes])).into_actor(self);
        ctx.spawn(asked.map(move |permits, monitor, ctx| {
            let Some(permit) = permits.ok().and_then(|mut p| p.pop()) else { return };
            let wanted = monitor.yard.standing(task.task, task.attempt).is_some();
            let at_work =
                monitor.executors.get(&task.task).is_some_and(|(attempt, _)| *attempt == task.attempt);
            // The office may have been lost meanwhile, and taken again.
            if wanted && !at_work {
                monitor.execute(task, key, None, permit, false, ctx);
            }
        }));
    }

    fn tell<M>(&self, task: TaskId, message: M)
    where
        M: actix::Message<Result = ()> + Send + 'static,
        Executor: Handler<M>,
    {
        if let Some((_, executor)) = self.executors.get(&task) {
            executor.do_send(message);
        }
    }

    fn forget(&mut self, task: TaskId) {
        self.executors.remove(&task);
        self.running.remove(&task);
        self.begun.remove(&task);
    }
}

/// The Yard's share of the settings.
pub fn rules(settings: &Settings) -> Rules {
    Rules {
        max_task_executors: settings.limits.max_task_executors,
        max_pending_sessions: settings.sessions.max_pending,
        retry: RetryPolicy {
            delays: settings.retry.delays.clone(),
            max_retries: settings.retry.max_retries,
            jitter: settings.retry.jitter,
            permanent_sqlstates: settings.retry.permanent_sqlstates.clone(),
        },
        max_interruptions: settings.retry.max_interruptions,
        prefetch: if settings.sessions.reuse { settings.sessions.prefetch } else { 1 },
    }
}

/// The NodeLimiter's share of the settings.
pub fn limits(settings: &Settings) -> crate::model::Limits {
    let own = |(name, node): (&String, &settings::Node)| Some((name.clone(), node.max_task_executors?));
    crate::model::Limits {
        max_task_executors: settings.limits.max_task_executors,
        max_task_executors_per_node: settings.limits.max_task_executors_per_node,
        per_node: settings.nodes.iter().filter_map(own).collect(),
    }
}
