//! The Monitor's mind: what to do next, as a function from what happened.
//!
//! ```text
//!            Input ──▶ Yard ──▶ Effects
//!
//!   a round:   AskSlots(wants) ─▶ SlotsAnswered ─▶ TakeTurn(turn) ─▶ TurnTaken(reply) ─▶ Start, Cancel, WakeAt …
//! ```
//! Rounds do not overlap: whatever happens during one (wakes, endings) is remembered and goes into the next, so a busy
//! yard batches by itself. A round is worth taking when there is something to look for, settle, promote or start.
//!
//! The Yard knows *lanes* (see [`crate::model::Lane`]) and, of each, a window of the next ready tasks. Wants are made by
//! merging the windows in order of dispatch; a lane that cannot start (no session ready, slots full) is passed over
//! and holds nobody up. A want grants a place in a lane, not a task: the claim takes the lane's first ready tasks in
//! the very transaction that may just have released them, which is what makes a chain quick.
//!
//! It holds no address, no socket and no clock. Invariants, each with a property test in `tests/model`: nothing starts
//! unless the mode is `Accepting`; each start has exactly one ending; an attempt that ended is settled exactly once
//! however often a turn fails; a mode only ever becomes stronger.

mod lanes;
mod sessions;

use std::collections::HashMap;
use std::time::Duration;

use super::retry::{RetryPolicy, after_interruption};
use super::{
    ClaimedTask, Ending, JobId, Lane, LaneId, LiveAttempt, Offer, Outcome, SessionKey, Settlement, TaskId,
    Turn, TurnReply,
};
use lanes::Lanes;
use sessions::Sessions;

/// What the yard is up to. Stronger modes win, repeats change nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// No office is held, or it is in doubt: nothing is started.
    Standby,
    /// Work is started as it comes.
    Accepting,
    /// Every job that runs here is being cancelled; then the process leaves.
    CancellingAll,
    /// Nothing new is started; running tasks have their grace.
    Draining,
    /// The grace is over: what still runs is interrupted.
    Interrupting,
    /// Everything is settled.
    Stopped,
}

/// The reloadable numbers that the Yard decides by.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// The global limit; windows are as large as this, so that a round can be filled from one lane.
    pub max_task_executors: u32,
    /// Connections that may be opening at once for one node and owner.
    pub max_pending_sessions: u32,
    /// The policy that tasks override.
    pub retry: RetryPolicy,
    /// Interruptions before a task is given up.
    pub max_interruptions: u32,
}

/// One possible start, in order of dispatch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Want {
    /// The lane to start from.
    pub lane: LaneId,
    /// The session it needs.
    pub key: SessionKey,
    /// The nodes whose slots it takes.
    pub nodes: Vec<String>,
    /// Is a session ready (or is the task to fail for want of one)? Otherwise the want only asks whether slots would
    /// be free, to know whether opening a session is worth while.
    pub ready: bool,
}

/// What stands behind an offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The index of the want.
    pub want: usize,
    /// The session's key.
    pub key: SessionKey,
    /// The server refuses this owner: there is no session, and what is claimed fails with SQLSTATE and message.
    pub refusal: Option<(String, String)>,
}

impl Seat {
    /// Is it without a session?
    pub fn sessionless(&self) -> bool {
        self.refusal.is_some()
    }
}

/// The answer to a want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The slots are held.
    Granted,
    /// They would be free.
    Fits,
    /// They are not.
    Full,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Something may be new in the catalog.
    Woken,
    /// This process decides; what the catalog holds alive. `resumed` when the epoch is still ours.
    TookOffice {
        /// Is the epoch the one held before?
        resumed: bool,
        /// The live attempts of the catalog.
        live: Vec<LiveAttempt>,
    },
    /// Another process decides.
    LostOffice,
    /// The wants of the round were answered, in their order.
    SlotsAnswered(Vec<Answer>),
    /// The turn was taken.
    TurnTaken(Box<TurnReply>),
    /// The turn came to nothing. In doubt it may have happened, and a `TookOffice` or `LostOffice` follows.
    TurnFailed {
        /// Is it unknown whether it happened?
        in_doubt: bool,
    },
    /// An attempt ended. `chance` (0 to 1) is for the jitter of a retry.
    Finished {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: i32,
        /// How it ended.
        outcome: Outcome,
        /// Randomness for the jitter.
        chance: f64,
    },
    /// An attempt was left to whoever holds office next; the catalog holds it alive.
    Left {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: i32,
    },
    /// A session became ready: opened, or returned by an Executor.
    SessionReady(SessionKey),
    /// An opening ended well; a `SessionReady` accompanies it.
    SessionOpened(SessionKey),
    /// The server refused the login for a reason that concerns this owner alone.
    SessionRefused {
        /// Where and as whom.
        key: SessionKey,
        /// The server's SQLSTATE.
        sqlstate: String,
        /// What to write on the tasks.
        message: String,
    },
    /// No session could be opened for a reason that will pass; a `SessionsRetried` follows.
    SessionFailed(SessionKey),
    /// The back-off of a key is over.
    SessionsRetried(SessionKey),
    /// An idle session was closed.
    SessionGone(SessionKey),
    /// New rules, or limits changed.
    Reloaded(Rules),
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    CancelAll,
    /// The grace after Terminate is over.
    GraceOver,
}

/// What to do about it.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Ask for slots for these wants.
    AskSlots(Vec<Want>),
    /// Take this turn. Offer `i` has the slots of want `seats[i].want`, and its backend is to be filled in with that of
    /// a ready session of its key, unless it is `sessionless`.
    TakeTurn {
        /// The turn.
        turn: Turn,
        /// Behind each offer.
        seats: Vec<Seat>,
    },
    /// Start the claimed task with the session and slots of this offer.
    Start {
        /// The offer's index.
        offer: usize,
        /// The task.
        task: ClaimedTask,
    },
    /// Nothing was claimed for this offer: its session is ready again, its slots are free.
    ReturnSeat {
        /// The offer's index.
        offer: usize,
    },
    /// It is unknown whether something was claimed for the offers: close their sessions.
    BurnSeats,
    /// Find out what became of an attempt that nobody runs here, holding its slots meanwhile.
    Adopt(Box<LiveAttempt>),
    /// Open a session.
    OpenSession(SessionKey),
    /// Ask a running attempt to end: its task is cancelling.
    Cancel(TaskId),
    /// End a running attempt as an interruption.
    Interrupt(TaskId),
    /// Forget a running attempt: another leader decides about it.
    Abandon(TaskId),
    /// Ask for the cancellation of these jobs.
    RequestCancel(Vec<JobId>),
    /// Wake up when the next delayed task is due.
    WakeAt(Option<Duration>),
    /// Start the grace period of a shutdown.
    StartGrace,
    /// Everything is settled: give up the office and leave.
    Stop {
        /// Did every job that was to be cancelled end?
        clean: bool,
    },
}

/// An attempt that is alive here.
#[derive(Clone, PartialEq, Debug)]
struct Running {
    task: ClaimedTask,
    node: String,
    cancelling: bool,
}

/// A round under way.
#[derive(Clone, PartialEq, Debug, Default)]
struct Round {
    wants: Vec<Want>,
    turn: Turn,
    /// Behind each offer.
    seats: Vec<Seat>,
}

/// The Monitor's mind. See the module's documentation.
#[derive(Debug)]
pub struct Yard {
    mode: Mode,
    /// True between TookOffice and the next doubt or loss.
    in_office: bool,
    rules: Rules,
    lanes: Lanes,
    sessions: Sessions,
    running: HashMap<TaskId, Running>,
    unsettled: Vec<Settlement>,
    /// Lanes of which an attempt just ended: a dependant may be released into them by its settlement.
    hot: Vec<LaneId>,
    look: bool,
    /// Something changed that may let a task start; wants are made only then.
    stale: bool,
    round: Option<Round>,
    /// Jobs that CancelAll waits for.
    awaited: Vec<JobId>,
    stop_sent: bool,
}

impl Yard {
    /// A yard without an office.
    pub fn new(rules: Rules) -> Yard {
        Yard {
            mode: Mode::Standby,
            in_office: false,
            rules,
            lanes: Lanes::default(),
            sessions: Sessions::default(),
            running: HashMap::new(),
            unsettled: Vec::new(),
            hot: Vec::new(),
            look: false,
            stale: false,
            round: None,
            awaited: Vec::new(),
            stop_sent: false,
        }
    }

    /// What the yard is up to.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The tasks whose attempts are alive here.
    pub fn running(&self) -> impl Iterator<Item = TaskId> {
        self.running.keys().copied()
    }

    /// How many settlements wait for the next turn or are in it.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len() + self.round.as_ref().map_or(0, |r| r.turn.settlements.len())
    }

    /// How many sessions wait for work.
    pub fn idle_sessions(&self) -> usize {
        self.sessions.idle_total()
    }

    /// The lane of this id, if it is known.
    pub fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.lane(id)
    }

    /// Takes in what happened and says what to do.
    pub fn feed(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.stale |= !matches!(input, Input::SlotsAnswered(_) | Input::TurnTaken(_));
        match input {
            Input::Woken => self.look = true,
            Input::TookOffice { resumed, live } => self.take_office(resumed, live, &mut effects),
            Input::LostOffice => self.lose_office(&mut effects),
            Input::SlotsAnswered(answers) => self.slots_answered(&answers, &mut effects),
            Input::TurnTaken(reply) => self.turn_taken(*reply, &mut effects),
            Input::TurnFailed { in_doubt } => self.turn_failed(in_doubt, &mut effects),
            Input::Finished { task, attempt, outcome, chance } => {
                self.finished(task, attempt, outcome, chance)
            }
            Input::Left { task, attempt } => {
                if self.running.get(&task).is_some_and(|r| r.task.attempt == attempt) {
                    self.running.remove(&task);
                }
            }
            Input::SessionReady(key) => self.sessions.ready(key),
            Input::SessionOpened(key) => self.sessions.opened(&key),
            Input::SessionRefused { key, sqlstate, message } => self.sessions.refused(key, sqlstate, message),
            Input::SessionFailed(key) => self.sessions.failed(key),
            Input::SessionsRetried(key) => self.sessions.retried(&key),
            Input::SessionGone(key) => self.sessions.gone(&key),
            Input::Reloaded(rules) => self.rules = rules,
            Input::Terminate => self.terminate(&mut effects),
            Input::CancelAll => self.cancel_all(&mut effects),
            Input::GraceOver => self.interrupt_all(&mut effects),
        }
        self.next_round(&mut effects);
        self.stop_if_done(&mut effects);
        effects
    }

    // ---------------------------------------------------------------- office

    fn take_office(&mut self, resumed: bool, live: Vec<LiveAttempt>, effects: &mut Vec<Effect>) {
        if !resumed {
            self.abandon_all(effects);
        }
        self.in_office = true;
        if self.mode == Mode::Standby {
            self.mode = Mode::Accepting;
        }
        self.look = true;
        // What a lost turn did to the queues is unknown; they are read anew.
        self.lanes.forget();
        for attempt in live {
            let (task, number) = (attempt.claimed.task, attempt.claimed.attempt);
            let known = self.running.get(&task).is_some_and(|r| r.task.attempt == number);
            let settling = self.unsettled.iter().any(|s| s.task == task && s.attempt == number);
            if known {
                if attempt.cancelling {
                    self.cancel(task, effects);
                }
            } else if !settling {
                let running = Running {
                    task: attempt.claimed.clone(),
                    node: attempt.node.clone(),
                    cancelling: attempt.cancelling,
                };
                self.running.insert(task, running);
                effects.push(Effect::Adopt(Box::new(attempt)));
            }
        }
    }

    fn lose_office(&mut self, effects: &mut Vec<Effect>) {
        self.in_office = false;
        self.abandon_all(effects);
        if self.mode <= Mode::CancellingAll {
            self.mode = Mode::Standby;
        }
    }

    /// The epoch is over: outcomes are dropped, the new leader decides by the records.
    fn abandon_all(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.running.drain().map(|(task, _)| Effect::Abandon(task)));
        self.unsettled.clear();
        self.hot.clear();
        self.awaited.clear();
        if self.round.take().is_some_and(|round| !round.turn.offers.is_empty()) {
            effects.push(Effect::BurnSeats);
        }
    }

    // ---------------------------------------------------------------- rounds

    /// Begins a round if none is under way and there is something to do.
    fn next_round(&mut self, effects: &mut Vec<Effect>) {
        if self.round.is_some() || !self.in_office || self.mode == Mode::Stopped {
            return;
        }
        let hot = std::mem::take(&mut self.hot);
        let startable = self.mode == Mode::Accepting && std::mem::take(&mut self.stale);
        let wants = if startable { self.wants(&hot) } else { Vec::new() };
        let turn = Turn {
            look: std::mem::take(&mut self.look),
            promote: false,
            settlements: std::mem::take(&mut self.unsettled),
            ..Turn::default()
        };
        let windows_due =
            self.mode == Mode::Accepting && self.lanes.wants_windows(self.rules.max_task_executors);
        if wants.is_empty() && !turn.look && turn.settlements.is_empty() && !windows_due {
            return;
        }
        self.round = Some(Round { wants: wants.clone(), turn, seats: Vec::new() });
        if wants.is_empty() {
            self.take_turn(effects);
        } else {
            effects.push(Effect::AskSlots(wants));
        }
    }

    /// Possible starts in order of dispatch, at most as many as may run.
    fn wants(&self, hot: &[LaneId]) -> Vec<Want> {
        let mut wants = Vec::new();
        let mut idle = self.sessions.budget();
        let limit = self.rules.max_task_executors as usize;
        let mut add = |lane: &Lane| {
            let ready = idle.take(&lane.session);
            if ready || self.sessions.may_open(&lane.session) {
                wants.push(Want {
                    lane: lane.id,
                    key: lane.session.clone(),
                    nodes: lane.nodes.clone(),
                    ready,
                });
            }
            wants.len() < limit
        };
        let more = self.lanes.in_order(&mut add);
        if more {
            // A lane whose queue is empty may receive a dependant from this very settlement.
            for lane in hot.iter().filter_map(|id| self.lanes.empty_lane(*id)) {
                if !add(lane) {
                    break;
                }
            }
        }
        wants
    }

    fn slots_answered(&mut self, answers: &[Answer], effects: &mut Vec<Effect>) {
        let Some(mut round) = self.round.take() else { return };
        let mut opening: HashMap<&SessionKey, u32> = HashMap::new();
        for (i, (want, answer)) in round.wants.iter().zip(answers).enumerate() {
            match (answer, want.ready) {
                (Answer::Granted, _) if self.sessions.can_lend(&want.key) => {
                    round.turn.offers.push(Offer { lane: want.lane, backend: None });
                    round.turn.floors.push(self.lanes.floor(want.lane));
                    let refusal = self.sessions.lend(&want.key);
                    round.seats.push(Seat { want: i, key: want.key.clone(), refusal });
                }
                (Answer::Fits, false) => *opening.entry(&want.key).or_default() += 1,
                // Granted, but its session was closed meanwhile: the slots go back.
                (Answer::Granted, _) | (Answer::Fits, true) | (Answer::Full, _) => {}
            }
        }
        for (key, wanted) in opening {
            for _ in 0..self.sessions.open(key, wanted, self.rules.max_pending_sessions) {
                effects.push(Effect::OpenSession(key.clone()));
            }
        }
        self.sessions.refusals_told();
        self.round = Some(round);
        self.take_turn(effects);
    }

    fn take_turn(&mut self, effects: &mut Vec<Effect>) {
        let Some(round) = &mut self.round else { return };
        round.turn.promote = round.turn.look;
        if self.mode == Mode::Accepting {
            round.turn.windows = self.lanes.window_requests(self.rules.max_task_executors);
        }
        let turn = &round.turn;
        if turn.offers.is_empty() && turn.settlements.is_empty() && !turn.look && turn.windows.is_empty() {
            // Every want was refused: nothing to say to the catalog.
            self.round = None;
            return;
        }
        effects.push(Effect::TakeTurn { turn: round.turn.clone(), seats: round.seats.clone() });
    }

    fn turn_taken(&mut self, reply: TurnReply, effects: &mut Vec<Effect>) {
        let Some(round) = self.round.take() else { return };
        for lane in reply.lanes {
            self.lanes.add(lane);
        }
        for (lane, key) in reply.readied {
            self.lanes.readied(lane, key);
            self.stale = true;
        }
        self.stale |= !reply.windows.is_empty();
        let mut unclaimed: Vec<bool> = vec![true; round.seats.len()];
        for (offer, task) in reply.claimed {
            unclaimed[offer] = false;
            self.lanes.claimed(task.lane, task.task);
            self.start(offer, task, &round.seats[offer], effects);
        }
        for (offer, seat) in round.seats.iter().enumerate().filter(|(offer, _)| unclaimed[*offer]) {
            self.lanes.exhausted(round.turn.offers[offer].lane, round.turn.floors[offer]);
            self.return_seat(offer, seat, effects);
        }
        for window in reply.windows {
            self.lanes.window(window);
        }
        for task in reply.cancelling {
            self.cancel(task, effects);
        }
        self.awaited.retain(|job| !reply.jobs.iter().any(|(j, status)| j == job && status.is_terminal()));
        if round.turn.promote || reply.next_due.is_some() {
            effects.push(Effect::WakeAt(reply.next_due));
        }
        self.look |= reply.more_to_admit;
    }

    fn turn_failed(&mut self, in_doubt: bool, effects: &mut Vec<Effect>) {
        let Some(round) = self.round.take() else { return };
        // Settling twice is settling once, so what may have been settled is simply said again.
        self.unsettled.splice(0..0, round.turn.settlements);
        self.look = true;
        if in_doubt {
            self.in_office = false;
            if !round.turn.offers.is_empty() {
                effects.push(Effect::BurnSeats);
            }
        } else {
            for (offer, seat) in round.seats.iter().enumerate() {
                self.return_seat(offer, seat, effects);
            }
        }
    }

    /// A claim was made. Usually an Executor starts; when the server refuses the owner the attempt fails with its words
    /// before it began; when the yard is closing it is interrupted before it began (no byte was sent, so nothing needs
    /// to be revoked).
    fn start(&mut self, offer: usize, task: ClaimedTask, seat: &Seat, effects: &mut Vec<Effect>) {
        let running = Running { task: task.clone(), node: seat.key.node.clone(), cancelling: false };
        let outcome = match &seat.refusal {
            Some((sqlstate, message)) => {
                Outcome::Failed { sqlstate: sqlstate.clone(), message: message.clone(), revoked: false }
            }
            None if self.mode == Mode::Accepting => {
                self.running.insert(task.task, running);
                effects.push(Effect::Start { offer, task });
                return;
            }
            None => Outcome::Interrupted { revoked: false, message: "the service was leaving".to_owned() },
        };
        let settlement = self.settlement(&running, outcome, 0.5);
        self.unsettled.push(settlement);
        self.return_seat(offer, seat, effects);
    }

    fn return_seat(&mut self, offer: usize, seat: &Seat, effects: &mut Vec<Effect>) {
        if !seat.sessionless() {
            self.sessions.ready(seat.key.clone());
        }
        effects.push(Effect::ReturnSeat { offer });
    }

    // ---------------------------------------------------------------- endings

    fn finished(&mut self, task: TaskId, attempt: i32, outcome: Outcome, chance: f64) {
        // Late news of an abandoned attempt changes nothing.
        if self.running.get(&task).is_none_or(|r| r.task.attempt != attempt) {
            return;
        }
        let Some(running) = self.running.remove(&task) else { return };
        self.hot.push(running.task.lane);
        let settlement = self.settlement(&running, outcome, chance);
        self.unsettled.push(settlement);
    }

    fn settlement(&self, running: &Running, outcome: Outcome, chance: f64) -> Settlement {
        let task = &running.task;
        let ending = match &outcome {
            Outcome::Done { .. } => Ending::Done,
            Outcome::Failed { sqlstate, .. } => {
                // A policy that does not parse (written past the checks) must not keep the task from ending.
                let own = task.retry.as_ref().and_then(|json| self.rules.retry.overridden_by(json).ok());
                let failures = u32::try_from(task.retry_count).unwrap_or(0);
                own.as_ref().unwrap_or(&self.rules.retry).decide(failures, sqlstate, chance)
            }
            Outcome::Interrupted { .. } => after_interruption(
                u32::try_from(task.interruptions).unwrap_or(0),
                self.rules.max_interruptions,
            ),
        };
        Settlement {
            job: task.job,
            task: task.task,
            attempt: task.attempt,
            node: running.node.clone(),
            pid: task.backend.map(|b| b.pid),
            outcome,
            ending,
        }
    }

    // ---------------------------------------------------------------- cancelling and leaving

    fn cancel(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        if let Some(running) = self.running.get_mut(&task).filter(|r| !r.cancelling) {
            running.cancelling = true;
            effects.push(Effect::Cancel(task));
        }
    }

    fn terminate(&mut self, effects: &mut Vec<Effect>) {
        match self.mode {
            Mode::Standby | Mode::Accepting | Mode::CancellingAll => {
                self.mode = Mode::Draining;
                effects.push(Effect::StartGrace);
            }
            Mode::Draining => self.interrupt_all(effects),
            Mode::Interrupting | Mode::Stopped => {}
        }
    }

    fn cancel_all(&mut self, effects: &mut Vec<Effect>) {
        match self.mode {
            Mode::Standby | Mode::Accepting => {
                self.mode = Mode::CancellingAll;
                let mut jobs: Vec<JobId> = self.running.values().map(|r| r.task.job).collect();
                jobs.sort_unstable();
                jobs.dedup();
                self.awaited.clone_from(&jobs);
                effects.push(Effect::StartGrace);
                if !jobs.is_empty() {
                    effects.push(Effect::RequestCancel(jobs));
                }
            }
            // A second one acts as SIGTERM twice.
            Mode::CancellingAll | Mode::Draining => self.interrupt_all(effects),
            Mode::Interrupting | Mode::Stopped => {}
        }
    }

    fn interrupt_all(&mut self, effects: &mut Vec<Effect>) {
        match self.mode {
            Mode::CancellingAll | Mode::Draining => {
                self.mode = Mode::Interrupting;
                effects.extend(self.running.keys().map(|task| Effect::Interrupt(*task)));
            }
            Mode::Standby | Mode::Accepting | Mode::Interrupting | Mode::Stopped => {}
        }
    }

    fn stop_if_done(&mut self, effects: &mut Vec<Effect>) {
        let leaving = match self.mode {
            Mode::CancellingAll | Mode::Draining | Mode::Interrupting => true,
            Mode::Standby | Mode::Accepting | Mode::Stopped => false,
        };
        // Without an office nothing can be settled, and a successor will recover what is left.
        let settled =
            self.running.is_empty() && self.unsettled.is_empty() && self.round.is_none() || !self.in_office;
        let waits = self.mode == Mode::CancellingAll && !self.awaited.is_empty() && self.in_office;
        if leaving && settled && !waits && !self.stop_sent {
            let clean = self.awaited.is_empty();
            self.mode = Mode::Stopped;
            self.stop_sent = true;
            effects.push(Effect::Stop { clean });
        }
    }
}
