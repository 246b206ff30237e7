//! Rounds: wants, slots, and the turn that settles and claims.
//!
//! Slots are asked for until every lane that might start has been heard: a lane that is answered `Full` is marked, its
//! wants are replaced by those of the lanes behind it, and it is left alone until a slot of its nodes comes back. So a
//! crowd before a full node costs one question, however large it is, and holds up nobody.

use std::collections::{BTreeMap, HashMap};

use super::lanes::{Size, Walk};
use super::office::Office;
use super::{Answer, Effect, Mode, Running, Seat, Want, Yard};
use crate::model::{
    ClaimedTask, Lane, LaneId, Offer, Outcome, SessionKey, Settlement, TaskId, Turn, TurnReply,
};

/// What the round waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Asking,
    Taking,
}

/// A round under way.
#[derive(Debug, Default)]
pub(super) struct Round {
    phase: Phase,
    wants: Vec<Want>,
    /// To the first of the wants.
    answers: Vec<Answer>,
    /// Lanes that may receive a dependant from this very turn.
    hot: Vec<LaneId>,
    turn: Turn,
    /// Behind each offer.
    seats: Vec<Seat>,
}

impl Round {
    /// How many settlements it carries.
    pub(super) fn settlements(&self) -> usize {
        self.turn.settlements.len()
    }

    /// The prefetched tasks that it was to show as running.
    pub(super) fn begun(&self) -> &[(TaskId, i32)] {
        &self.turn.begun
    }

    pub(super) fn into_settlements(self) -> Vec<Settlement> {
        self.turn.settlements
    }

    pub(super) fn has_offers(&self) -> bool {
        !self.seats.is_empty()
    }

    fn answered(&self) -> impl Iterator<Item = (&Want, Answer)> {
        self.wants.iter().zip(self.answers.iter().copied())
    }
}

/// SQLSTATE invalid_authorization_specification: what PostgreSQL says when such an owner logs in.
const OWNER_BARRED: &str = "28000";

impl Yard {
    /// Begins a round if none is under way and there is something to do.
    pub(super) fn next_round(&mut self, effects: &mut Vec<Effect>) {
        if self.round.is_some()
            || self.office != Office::Held
            || self.mode == Mode::Stopped
            || self.may_wait()
        {
            return;
        }
        self.waited();
        let mut round = Round { hot: std::mem::take(&mut self.hot), ..Round::default() };
        let accepting = self.mode == Mode::Accepting;
        let mut wants = Vec::new();
        if accepting && std::mem::take(&mut self.stale) {
            self.sessions.tell_refusals();
            wants = self.wants(&mut round);
        }
        let windows_due = accepting && self.lanes.wants_windows(self.window_size());
        if wants.is_empty()
            && !self.look
            && self.unsettled.is_empty()
            && self.begun.is_empty()
            && !windows_due
        {
            return;
        }
        if wants.is_empty() {
            self.round = Some(round);
            self.take_turn(effects);
        } else {
            self.ask(round, wants, effects);
        }
    }

    fn ask(&mut self, mut round: Round, wants: Vec<Want>, effects: &mut Vec<Effect>) {
        let first = round.wants.len();
        round.wants.extend_from_slice(&wants);
        self.round = Some(round);
        let others_wait = self.lanes.somebody_waits();
        let crossings = self.lanes.crossings(|key| self.sessions.may_be_had(key));
        effects.push(Effect::AskSlots { wants, first, others_wait, crossings });
    }

    /// Possible starts beyond those of the round, in order of dispatch. At most as many with a session as may run, and
    /// of those without one as many as may be opening.
    fn wants(&self, round: &mut Round) -> Vec<Want> {
        let mut wants = Vec::new();
        let mut budget = self.sessions.budget(self.rules.max_pending_sessions);
        let mut known: HashMap<LaneId, usize> = HashMap::new();
        let mut ready = 0;
        for (want, _) in
            round.answered().filter(|(_, answer)| matches!(answer, Answer::Granted | Answer::Fits))
        {
            *known.entry(want.lane).or_default() += 1;
            ready += usize::from(want.ready);
            let _ = if want.ready { budget.take(&want.key) } else { budget.open(&want.key) };
        }
        let limit = self.rules.max_task_executors as usize;
        let want = |lane: &Lane, ready| Want {
            lane: lane.id,
            key: lane.session.clone(),
            nodes: lane.nodes.clone(),
            ready,
        };
        let heard_all = self.lanes.in_order(&mut |lane| {
            if let Some(n) = known.get_mut(&lane.id).filter(|n| **n > 0) {
                *n -= 1;
                return Walk::On;
            }
            if !self.closed.takes(lane) {
                return Walk::PassOver;
            }
            let has_session = budget.take(&lane.session);
            if !has_session && !budget.open(&lane.session) {
                return Walk::PassOver;
            }
            wants.push(want(lane, has_session));
            ready += usize::from(has_session);
            if ready < limit { Walk::On } else { Walk::Stop }
        });
        if heard_all {
            // A lane whose queue is empty may receive a dependant from this very settlement.
            let hot = std::mem::take(&mut round.hot);
            let lanes =
                hot.iter().filter_map(|id| self.lanes.empty_lane(*id)).filter(|l| self.closed.takes(l));
            wants.extend(
                lanes.filter(|lane| budget.take(&lane.session)).take(limit - ready).map(|l| want(l, true)),
            );
        }
        wants
    }

    pub(super) fn slots_answered(&mut self, answers: Vec<Answer>, effects: &mut Vec<Effect>) {
        let fits =
            |r: &mut Round| r.phase == Phase::Asking && r.answers.len() + answers.len() == r.wants.len();
        let Some(mut round) = self.round.take_if(fits) else { return };
        let (mut passed_over, mut all_full) = (false, false);
        for (want, answer) in round.wants.iter().skip(round.answers.len()).zip(&answers) {
            match answer {
                Answer::Granted | Answer::Fits => {}
                Answer::Full => passed_over |= self.lanes.fill(want.lane),
                Answer::AllFull => all_full = true,
            }
        }
        round.answers.extend(answers);
        let again = passed_over && !all_full && self.mode == Mode::Accepting;
        let wants = if again { self.wants(&mut round) } else { Vec::new() };
        if wants.is_empty() {
            self.make_offers(&mut round, effects);
            self.round = Some(round);
            self.take_turn(effects);
        } else {
            self.ask(round, wants, effects);
        }
    }

    /// Makes offers of the places that were granted, and opens sessions where a place would be free.
    fn make_offers(&mut self, round: &mut Round, effects: &mut Vec<Effect>) {
        if self.mode != Mode::Accepting {
            return;
        }
        let mut opening: BTreeMap<&SessionKey, u32> = BTreeMap::new();
        for (i, (want, answer)) in round.wants.iter().zip(&round.answers).enumerate() {
            match (answer, want.ready) {
                (Answer::Granted, _) if self.sessions.can_lend(&want.key) => {
                    let refusal = self.sessions.lend(&want.key);
                    let prefetch = match refusal {
                        None => self.lanes.prefetch(want.lane, self.window_size()),
                        Some(_) => 0,
                    };
                    round.turn.offers.push(Offer { lane: want.lane, backend: None, site: None, prefetch });
                    round.turn.floors.push(self.lanes.floor(want.lane));
                    round.seats.push(Seat { want: i, key: want.key.clone(), refusal });
                }
                // Its session was closed meanwhile: the slots go back.
                (Answer::Granted, _) => {
                    self.lanes.freed_by(want.lane);
                    self.stale = true;
                }
                (Answer::Fits, false) => *opening.entry(&want.key).or_default() += 1,
                (Answer::Fits, true) | (Answer::Full | Answer::AllFull, _) => {}
            }
        }
        for (key, wanted) in opening {
            for _ in 0..self.sessions.open(key, wanted, self.rules.max_pending_sessions) {
                effects.push(Effect::OpenSession(key.clone()));
            }
        }
        self.sessions.refusals_told();
    }

    /// Takes along whatever is to be settled or looked for by now.
    fn take_turn(&mut self, effects: &mut Vec<Effect>) {
        let size = self.window_size();
        let Some(round) = &mut self.round else { return };
        round.phase = Phase::Taking;
        let turn = &mut round.turn;
        turn.look = std::mem::take(&mut self.look);
        turn.promote = turn.look;
        turn.settlements = std::mem::take(&mut self.unsettled);
        turn.begun = std::mem::take(&mut self.begun);
        if self.mode == Mode::Accepting {
            turn.windows = self.lanes.window_requests(size);
        }
        if turn.offers.is_empty()
            && turn.settlements.is_empty()
            && turn.begun.is_empty()
            && !turn.look
            && turn.windows.is_empty()
        {
            // Every want was refused: nothing to say to the catalog.
            self.round = None;
            return;
        }
        effects.push(Effect::TakeTurn { turn: turn.clone(), seats: round.seats.clone() });
    }

    pub(super) fn turn_taken(&mut self, reply: TurnReply, effects: &mut Vec<Effect>) {
        let Some(round) = self.round.take_if(|r| r.phase == Phase::Taking) else { return };
        for lane in reply.lanes {
            self.lanes.add(lane);
        }
        for (lane, key) in &reply.readied {
            self.lanes.readied(*lane, *key);
            self.stale = true;
            self.lines.hurry();
        }
        self.stale |= !reply.windows.is_empty();
        if let Some(draining) = reply.draining {
            self.stale |= self.closed.drained(draining);
        }
        let mut claimed: Vec<Vec<ClaimedTask>> = Vec::new();
        claimed.resize_with(round.seats.len(), Vec::new);
        for (offer, task) in reply.claimed {
            self.lanes.claimed(task.lane, task.task);
            claimed[offer].push(task);
        }
        for (offer, tasks) in claimed.into_iter().enumerate() {
            let (made, seat) = (round.turn.offers[offer], &round.seats[offer]);
            if tasks.len() <= made.prefetch as usize {
                self.lanes.exhausted(made.lane, round.turn.floors[offer]);
            }
            let mut tasks = tasks.into_iter();
            match tasks.next() {
                Some(first) => self.start(offer, first, tasks.collect(), seat, effects),
                None => self.return_seat(offer, made.lane, seat, effects),
            }
        }
        self.paused(&reply.paused);
        for window in reply.windows {
            let request = round.turn.windows.iter().find(|r| r.lane == window.lane);
            // What became ready before the part that was read cut the window there: it is no longer its continuation.
            let cut = |r: &(LaneId, _)| {
                r.0 == window.lane && request.is_some_and(|q| q.after.is_some_and(|end| r.1 <= end))
            };
            if !reply.readied.iter().any(cut) {
                self.lanes.window(window);
            }
        }
        for task in reply.cancelling {
            self.cancel(task, effects);
        }
        self.awaited.retain(|job| !reply.jobs.iter().any(|(j, status)| j == job && status.is_terminal()));
        if round.turn.promote || reply.next_due.is_some() {
            effects.push(Effect::WakeAt(reply.next_due));
        }
        if reply.more_to_admit {
            self.look = true;
            self.lines.hurry();
        }
    }

    pub(super) fn turn_failed(&mut self, in_doubt: bool, effects: &mut Vec<Effect>) {
        if in_doubt {
            if self.office == Office::Held {
                self.office = Office::InDoubt;
            }
            self.look = true;
            self.void_round(effects);
            return;
        }
        let Some(round) = self.round.take_if(|r| r.phase == Phase::Taking) else { return };
        self.look = true;
        for (offer, seat) in round.seats.iter().enumerate() {
            self.return_seat(offer, round.turn.offers[offer].lane, seat, effects);
        }
        self.lines.hurry();
        self.begun.extend_from_slice(round.begun());
        self.unsettled.splice(0..0, round.into_settlements());
    }

    fn window_size(&self) -> Size {
        Size { places: self.rules.max_task_executors, prefetch: self.rules.prefetch.max(1) }
    }

    /// A claim was made. Usually an Executor starts; when the server refuses the owner the attempt fails with its words
    /// before it began; when the yard is closing it is interrupted before it began (no byte was sent, so nothing needs
    /// to be revoked). What was prefetched behind it stands in line, or is given back.
    fn start(
        &mut self,
        offer: usize,
        task: ClaimedTask,
        behind: Vec<ClaimedTask>,
        seat: &Seat,
        effects: &mut Vec<Effect>,
    ) {
        let lane = task.lane;
        let node = seat.key.node.as_str();
        let running = Running {
            task: task.clone(),
            node: node.to_owned(),
            cancelling: false,
            prefetched: false,
            begun: true,
            ticket: 0,
        };
        let barred = task.owner_trouble.clone().map(|message| (OWNER_BARRED.to_owned(), message));
        let outcome = match seat.refusal.clone().or(barred) {
            Some((sqlstate, message)) => Outcome::Failed { sqlstate, message, revoked: false },
            None if self.mode == Mode::Accepting => {
                self.running.insert(task.task, running);
                self.line_up(&task, node, behind);
                let followed = self.lines.is_followed(task.task);
                effects.push(Effect::Start { offer, task, followed });
                return;
            }
            None => Outcome::Interrupted { revoked: false, message: "the service was leaving".to_owned() },
        };
        let settlement = self.settlement(&running, outcome, None, 0.5);
        self.unsettled.push(settlement);
        for task in behind {
            let running = Running { task, prefetched: true, ..running.clone() };
            let settlement = self.settlement(&running, Outcome::Withdrawn, None, 0.5);
            self.unsettled.push(settlement);
        }
        self.lines.hurry();
        self.return_seat(offer, lane, seat, effects);
    }

    /// The place was not used: its slots are free and its session waits again, which may let others start.
    fn return_seat(&mut self, offer: usize, lane: LaneId, seat: &Seat, effects: &mut Vec<Effect>) {
        if !seat.sessionless() {
            self.sessions.ready(seat.key.clone());
        }
        self.lanes.freed_by(lane);
        self.stale = true;
        effects.push(Effect::ReturnSeat { offer });
    }
}
