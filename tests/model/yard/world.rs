//! A world around a Yard: a catalog in memory, slots, sessions and executors, all of which answer when they are told to.
//!
//! It carries out every effect at once and checks it: what is started was claimed for a place that was granted, what is
//! settled has ended, what is claimed is the first of its lane. Questions are kept until somebody answers them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use yardmaster::model::slots::Full;
use yardmaster::model::yard::{Answer, Effect, Input, Mode, Rules, Seat, Want, Yard};
use yardmaster::model::*;

#[path = "world/calm.rs"]
mod calm;
#[path = "world/catalog.rs"]
mod catalog;

/// Where a task of the simulated catalog stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stand {
    /// Committed, not admitted.
    New,
    Blocked,
    Ready,
    /// Waits for its time.
    Delayed,
    Live {
        cancelling: bool,
    },
    /// Ended for good.
    Ended(TaskStatus),
}

#[derive(Clone, Debug)]
pub struct Task {
    pub lane: usize,
    pub rank: i32,
    pub job: i64,
    pub depends_on: Vec<i64>,
    pub stand: Stand,
    pub attempt: i32,
    pub cancel_asked: bool,
}

/// An attempt that runs, or of which the outcome waits to be settled.
#[derive(Debug)]
struct Attempt {
    number: i32,
    grant: Option<SlotGrant>,
    session: Option<SessionKey>,
    followed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Office {
    None,
    Held,
    Doubt,
}

pub struct World {
    pub yard: Yard,
    pub rules: Rules,
    pub desk: SlotDesk,
    /// The desk's clock.
    now: Duration,
    pub lanes: Vec<Lane>,
    pub tasks: BTreeMap<i64, Task>,
    pub office: Office,
    /// Lanes told in this term.
    told: BTreeSet<usize>,
    asked: Option<(Vec<Want>, usize)>,
    turn: Option<(Turn, Vec<Seat>)>,
    granted: HashMap<usize, SlotGrant>,
    places: Vec<Option<(SlotGrant, Option<SessionKey>)>>,
    pub opening: Vec<SessionKey>,
    pub backing_off: Vec<SessionKey>,
    pub idle: HashMap<SessionKey, u32>,
    attempts: BTreeMap<i64, Attempt>,
    /// What a task left to the next in line.
    freed: Option<(i64, SlotGrant, SessionKey)>,
    /// A tick was asked for.
    pub ticking: bool,
    /// Tasks to be shown as running.
    pub shown: BTreeSet<i64>,
    /// Outcomes reported to the yard in this epoch and not yet in the catalog.
    reported: HashMap<(i64, i32), Outcome>,
    started: BTreeSet<(i64, i32)>,
    pub order: Vec<i64>,
    pub stops: Vec<bool>,
    pub grace: u32,
    /// The drained nodes, to be told in the next turn that looks.
    pub draining: Option<Vec<String>>,
    /// A node where nothing is to start.
    pub closed: Option<String>,
    pub cancel_requests: Vec<JobId>,
    /// How long attempts run.
    pub pace: Duration,
    pub steps: u32,
}

fn done() -> Outcome {
    Outcome::Done { message: String::new(), recorded: true }
}

impl World {
    pub fn new(lanes: Vec<Lane>, limits: Limits, max_pending: u32) -> World {
        let rules = Rules {
            max_task_executors: limits.max_task_executors,
            max_pending_sessions: max_pending,
            retry: RetryPolicy { delays: vec![Duration::ZERO], max_retries: 2, ..RetryPolicy::default() },
            max_interruptions: 3,
            prefetch: 4,
        };
        World {
            yard: Yard::new(rules.clone()),
            rules,
            desk: SlotDesk::new(limits, Duration::from_secs(3)),
            now: Duration::ZERO,
            lanes,
            tasks: BTreeMap::new(),
            office: Office::None,
            told: BTreeSet::new(),
            asked: None,
            turn: None,
            granted: HashMap::new(),
            places: Vec::new(),
            opening: Vec::new(),
            backing_off: Vec::new(),
            idle: HashMap::new(),
            attempts: BTreeMap::new(),
            freed: None,
            ticking: false,
            shown: BTreeSet::new(),
            reported: HashMap::new(),
            started: BTreeSet::new(),
            order: Vec::new(),
            stops: Vec::new(),
            grace: 0,
            draining: None,
            closed: None,
            cancel_requests: Vec::new(),
            pace: Duration::from_millis(1),
            steps: 0,
        }
    }

    /// A committed task that nobody has looked at.
    pub fn submit(&mut self, lane: usize, priority: i32, depends_on: &[i64]) -> i64 {
        let id = self.tasks.keys().next_back().map_or(1, |last| last + 1);
        let depends_on = depends_on.to_vec();
        let task = Task {
            lane,
            rank: -priority,
            job: id % 5,
            depends_on,
            stand: Stand::New,
            attempt: 0,
            cancel_asked: false,
        };
        self.tasks.insert(id, task);
        id
    }

    pub fn stand(&self, id: i64) -> &Stand {
        &self.tasks[&id].stand
    }

    pub fn running(&self) -> Vec<i64> {
        self.attempts.keys().copied().collect()
    }

    // ---------------------------------------------------------------- the yard

    pub fn feed(&mut self, input: Input) {
        let before = self.yard.mode();
        let effects = self.yard.feed(input);
        let after = self.yard.mode();
        assert!(before <= Mode::Accepting || after >= before, "mode fell from {before:?} to {after:?}");
        assert!(effects.len() <= 10_000, "effects without end");
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::AskSlots { wants, first, crossings, .. } => {
                self.desk.hear(&crossings);
                assert!(!wants.is_empty(), "asks for nothing");
                if first == 0 {
                    self.return_granted();
                }
                self.asked = Some((wants, first));
            }
            Effect::TakeTurn { turn, seats } => self.prepare(turn, seats),
            Effect::Start { offer, task, followed } => {
                let (grant, session) = self.places[offer].take().expect("a start has a place");
                self.start(&task, grant, session.expect("a start has a session"), followed);
            }
            Effect::StartNext { after, task } => {
                let (before, grant, session) = self.freed.take().expect("the next has a place");
                assert_eq!(before, after.0, "the place of the one before");
                self.start(&task, grant, session, true);
            }
            Effect::ReturnPlace { after } => {
                let (before, grant, session) = self.freed.take().expect("a place is returned once");
                assert_eq!(before, after.0);
                self.return_place(grant, session);
            }
            Effect::TickSoon => assert!(!std::mem::replace(&mut self.ticking, true), "one tick at a time"),
            Effect::ReturnSeat { offer } => {
                let (grant, session) = self.places[offer].take().expect("a seat is returned once");
                self.desk.table.give_back(grant);
                if let Some(key) = session {
                    *self.idle.entry(key).or_default() += 1;
                }
            }
            Effect::BurnSeats => self.burn(),
            Effect::Adopt(live) => {
                let grant = self.desk.table.adopt(&live.nodes);
                let number = live.claimed.attempt;
                let attempt = Attempt { number, grant: Some(grant), session: None, followed: false };
                let earlier = self.attempts.insert(live.claimed.task.0, attempt);
                assert!(earlier.is_none(), "adopted what runs here");
            }
            Effect::OpenSession(key) => self.opening.push(key),
            Effect::Cancel(task) => {
                assert!(self.attempts.contains_key(&task.0), "cancels what does not run here")
            }
            Effect::Interrupt(task) => {
                assert!(self.attempts.contains_key(&task.0), "interrupts what does not run here")
            }
            Effect::Abandon(task) => self.end_attempt(task.0),
            Effect::RequestCancel(jobs) => self.cancel_requests.extend(jobs),
            Effect::WakeAt(_) => {}
            Effect::StartGrace => self.grace += 1,
            Effect::Stop { clean } => {
                if self.office == Office::Held {
                    assert_eq!(self.yard.unsettled(), 0, "stopped before everything was settled");
                    assert!(self.attempts.is_empty(), "stopped although attempts run");
                }
                self.stops.push(clean);
            }
        }
    }

    fn start(&mut self, task: &ClaimedTask, grant: SlotGrant, session: SessionKey, followed: bool) {
        assert_eq!(self.yard.mode(), Mode::Accepting, "started while leaving");
        // A withdrawn attempt gives its number back.
        assert!(self.started.insert((task.task.0, task.attempt)), "started twice");
        let at = &self.tasks[&task.task.0];
        assert_eq!(at.stand, Stand::Live { cancelling: false }, "starts what was not claimed, or is to end");
        assert_eq!(at.attempt, task.attempt);
        self.order.push(task.task.0);
        let attempt = Attempt { number: task.attempt, grant: Some(grant), session: Some(session), followed };
        assert!(self.attempts.insert(task.task.0, attempt).is_none(), "two attempts alive");
    }

    fn return_place(&mut self, grant: SlotGrant, session: SessionKey) {
        self.desk.table.give_back(grant);
        *self.idle.entry(session.clone()).or_default() += 1;
        self.feed(Input::SessionReady(session));
    }

    pub fn tick(&mut self) -> bool {
        let ticks = std::mem::take(&mut self.ticking);
        if ticks {
            self.feed(Input::Ticked);
        }
        ticks
    }

    fn prepare(&mut self, turn: Turn, seats: Vec<Seat>) {
        assert!(self.turn.is_none(), "turns do not overlap");
        assert!(turn.offers.len() == seats.len() && turn.floors.len() == seats.len());
        self.places.clear();
        for (offer, seat) in turn.offers.iter().zip(&seats) {
            let grant = self.granted.remove(&seat.want).expect("an offer has slots");
            let lane = self.lanes.iter().find(|l| l.id == offer.lane).expect("an offer names a lane");
            assert!(grant.nodes().eq(lane.nodes.iter().map(String::as_str)), "slots of the lane's nodes");
            let session = (!seat.sessionless()).then(|| seat.key.clone());
            if let Some(key) = &session {
                let idle = self.idle.get_mut(key).filter(|n| **n > 0).expect("an offer has a session");
                *idle -= 1;
            }
            self.places.push(Some((grant, session)));
        }
        self.turn = Some((turn, seats));
    }

    fn burn(&mut self) {
        for (grant, _) in std::mem::take(&mut self.places).into_iter().flatten() {
            self.desk.table.give_back(grant);
        }
    }

    fn return_granted(&mut self) {
        for (_, grant) in self.granted.drain() {
            self.desk.table.give_back(grant);
        }
    }

    /// The attempt's slots come back, and its session is closed.
    fn end_attempt(&mut self, task: i64) {
        let attempt = self.attempts.remove(&task).expect("it ran here");
        self.desk.table.give_back(attempt.grant.expect("it held slots"));
    }

    // ---------------------------------------------------------------- answers

    pub fn answer_slots(&mut self) -> bool {
        let Some((wants, first)) = self.asked.take() else { return false };
        self.now += Duration::from_secs(1);
        let mut answers = Vec::new();
        for (i, want) in (first..).zip(&wants) {
            let taken = if want.ready {
                self.desk.take(self.now, want.lane, &want.nodes).map(Some)
            } else {
                self.desk.fits(self.now, want.lane, &want.nodes).map(|()| None)
            };
            answers.push(match taken {
                Ok(Some(grant)) => {
                    self.granted.insert(i, grant);
                    Answer::Granted
                }
                Ok(None) => Answer::Fits,
                Err(Full::Global) => Answer::AllFull,
                Err(Full::Node(_) | Full::Reserved(_)) => Answer::Full,
            });
        }
        self.feed(Input::SlotsAnswered(answers));
        if self.asked.is_none() {
            self.return_granted();
        }
        true
    }

    /// The turn happens and is answered.
    pub fn answer_turn(&mut self) -> bool {
        let Some((turn, _)) = self.turn.take() else { return false };
        let reply = self.commit(&turn);
        self.feed(Input::TurnTaken(Box::new(reply)));
        true
    }

    /// The turn is refused as a whole.
    pub fn refuse_turn(&mut self) -> bool {
        let had = self.turn.take().is_some();
        if had {
            self.feed(Input::TurnFailed { in_doubt: false });
        }
        had
    }

    /// The connection is lost during the turn, before or after it happened; the yard may hear so, or hear only of the
    /// next term.
    pub fn lose_connection(&mut self, happened: bool, heard: bool) {
        if self.office != Office::Held {
            return;
        }
        self.office = Office::Doubt;
        if let Some((turn, _)) = self.turn.take() {
            if happened {
                self.commit(&turn);
            }
            if heard {
                self.feed(Input::TurnFailed { in_doubt: true });
            }
        }
    }

    /// Office is taken or resumed. Turns of the term before were drowned.
    pub fn take_office(&mut self) {
        let resumed = self.office == Office::Doubt;
        if self.office == Office::Held {
            return;
        }
        self.turn = None;
        self.told.clear();
        self.office = Office::Held;
        let live = self.tasks.iter().filter_map(|(id, task)| match task.stand {
            Stand::Live { cancelling } => Some(LiveAttempt {
                claimed: self.claimed_task(*id),
                node: self.lanes[task.lane].session.node.clone(),
                nodes: self.lanes[task.lane].nodes.clone(),
                cancelling,
            }),
            _ => None,
        });
        let live = live.collect();
        self.feed(Input::TookOffice { resumed, live });
    }

    pub fn lose_office(&mut self) {
        self.turn = None;
        self.reported.clear();
        self.office = Office::None;
        self.feed(Input::LostOffice);
    }

    pub fn finish(&mut self, task: i64, outcome: Outcome) {
        let Some(attempt) = self.attempts.get_mut(&task) else { return };
        let (number, session, followed) = (attempt.number, attempt.session.take(), attempt.followed);
        self.reported.insert((task, number), outcome.clone());
        let ran = session.is_some().then_some(self.pace);
        // Only a session that did its work is lent again.
        match (session, &outcome) {
            (Some(key), Outcome::Done { .. }) if followed => {
                let attempt = self.attempts.remove(&task).expect("it ran here");
                self.freed = Some((task, attempt.grant.expect("it held slots"), key));
                self.feed(Input::PlaceFreed(TaskId(task)));
                assert!(self.freed.is_none(), "somebody takes the place, or it is returned");
            }
            (Some(key), Outcome::Done { .. }) => {
                let attempt = self.attempts.remove(&task).expect("it ran here");
                self.return_place(attempt.grant.expect("it held slots"), key);
            }
            (Some(_), _) if followed => {
                self.end_attempt(task);
                self.feed(Input::PlaceLost(TaskId(task)));
            }
            _ => self.end_attempt(task),
        }
        self.feed(Input::Finished { task: TaskId(task), attempt: number, outcome, ran, chance: 0.0 });
    }

    pub fn leave(&mut self, task: i64) {
        if let Some(number) = self.attempts.get(&task).map(|a| a.number) {
            self.end_attempt(task);
            self.feed(Input::Left { task: TaskId(task), attempt: number });
        }
    }

    pub fn opened(&mut self, which: usize) -> bool {
        if self.opening.is_empty() {
            return false;
        }
        let key = self.opening.remove(which % self.opening.len());
        self.feed(Input::SessionOpened(key.clone()));
        *self.idle.entry(key.clone()).or_default() += 1;
        self.feed(Input::SessionReady(key));
        true
    }

    pub fn open_failed(&mut self, which: usize, refused: bool) {
        if self.opening.is_empty() {
            return;
        }
        let key = self.opening.remove(which % self.opening.len());
        if refused {
            self.feed(Input::SessionRefused { key, sqlstate: "28000".into(), message: "no".into() });
        } else {
            self.backing_off.push(key.clone());
            self.feed(Input::SessionFailed(key));
        }
    }

    pub fn retried(&mut self) -> bool {
        let Some(key) = self.backing_off.pop() else { return false };
        self.feed(Input::SessionsRetried(key));
        true
    }

    pub fn close_idle(&mut self, which: usize) {
        let mut keys: Vec<SessionKey> =
            self.idle.iter().filter(|(_, n)| **n > 0).map(|(k, _)| k.clone()).collect();
        keys.sort();
        if !keys.is_empty() {
            let key = keys.swap_remove(which % keys.len());
            *self.idle.get_mut(&key).expect("it is there") -= 1;
            self.feed(Input::SessionGone(key));
        }
    }

    pub fn reload(&mut self, limits: Limits) {
        self.rules.max_task_executors = limits.max_task_executors;
        self.desk.table.set_limits(limits);
        self.feed(Input::Reloaded(self.rules.clone()));
    }
}
