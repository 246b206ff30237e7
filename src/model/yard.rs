//! The Monitor's mind: what to do next, as a function from what happened.
//!
//! ```text
//!            Input ──▶ Yard ──▶ Effects
//!
//!   a round:   AskSlots(wants) ─▶ SlotsAnswered ─▶ TakeTurn(turn) ─▶ TurnTaken(reply) ─▶ Start, Cancel, WakeAt …
//!                  ▲                  │
//!                  └── lanes were full┘
//! ```
//! Rounds do not overlap: whatever happens during one (wakes, endings) is remembered and goes into the next, so a busy
//! yard batches by itself. A round is worth taking when there is something to look for, settle, promote or start.
//!
//! The Yard knows *lanes* (see [`crate::model::Lane`]) and, of each, a window of the next ready tasks. Wants are made by
//! merging the windows in order of dispatch; a lane that cannot start (no session ready, slots full) is passed over
//! and holds nobody up. A want grants a place in a lane, not a task: the claim takes the lane's first ready tasks in
//! the very transaction that may just have released them, which is what makes a chain quick.
//!
//! It holds no address, no socket and no clock. Invariants, held by the simulated world of `tests/model/yard`:
//! - nothing starts unless the mode is `Accepting`, and a mode of leaving only ever becomes stronger;
//! - each start has one ending, and an attempt that ended is settled however often a turn fails, unless the office is
//!   lost: then whoever holds it next decides by the records;
//! - what can start does: no ready task with free slots and a session to be had outlasts the next wake;
//! - without new input the effects end.

mod closed;
mod lanes;
mod leaving;
mod office;
mod prefetch;
mod round;
mod sessions;
mod words;

use std::collections::HashMap;
use std::time::Duration;

use super::retry::after_interruption;
use super::{ClaimedTask, Ending, JobId, Lane, LaneId, Outcome, Settlement, TaskId};
use closed::Closed;
use lanes::Lanes;
use office::Office;
use prefetch::Lines;
use round::Round;
use sessions::Sessions;

pub use prefetch::TICK;
pub use words::{Answer, Effect, Input, Rules, Seat, Want};

/// What the yard is up to. Of those that leave, stronger ones win and repeats change nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// No office is held: nothing is started.
    Standby,
    /// Work is started as it comes, while the office is not in doubt.
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

/// An attempt that is alive here.
#[derive(Clone, PartialEq, Debug)]
struct Running {
    task: ClaimedTask,
    node: String,
    cancelling: bool,
    /// Was it claimed to stand in line first?
    prefetched: bool,
    /// Does an Executor run it? Otherwise it stands in line.
    begun: bool,
    /// Which stand in line it is, of those there ever were.
    ticket: u64,
}

/// What has been asked of an attempt that is alive here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// To run.
    Wanted,
    /// To end, because its task is cancelling.
    Cancelling,
    /// To end at once, because the service leaves.
    Interrupted,
}

/// The Monitor's mind. See the module's documentation.
#[derive(Debug)]
pub struct Yard {
    mode: Mode,
    office: Office,
    rules: Rules,
    lanes: Lanes,
    sessions: Sessions,
    closed: Closed,
    running: HashMap<TaskId, Running>,
    lines: Lines,
    /// Prefetched tasks that are to be shown as running from the next turn on.
    begun: Vec<(TaskId, i32)>,
    unsettled: Vec<Settlement>,
    /// Lanes of which an attempt just ended: a dependant may be released into them by its settlement.
    hot: Vec<LaneId>,
    look: bool,
    /// Something changed that may let a task start; wants are made only then.
    stale: bool,
    round: Option<Round>,
    /// Jobs that CancelAll waits for.
    awaited: Vec<JobId>,
}

impl Yard {
    /// A yard without an office.
    pub fn new(rules: Rules) -> Yard {
        Yard {
            mode: Mode::Standby,
            office: Office::None,
            rules,
            lanes: Lanes::default(),
            sessions: Sessions::default(),
            closed: Closed::default(),
            running: HashMap::new(),
            lines: Lines::default(),
            begun: Vec::new(),
            unsettled: Vec::new(),
            hot: Vec::new(),
            look: false,
            stale: false,
            round: None,
            awaited: Vec::new(),
        }
    }

    /// What the yard is up to.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The tasks whose attempts run here, without those that stand in line.
    pub fn running(&self) -> impl Iterator<Item = TaskId> {
        self.running.iter().filter(|(_, r)| r.begun).map(|(task, _)| *task)
    }

    /// What has been asked of this attempt; `None` when it is not, or no longer, alive here. For whoever starts an
    /// Executor later than the Yard said so: what was asked meanwhile found nobody to hear it.
    pub fn standing(&self, task: TaskId, attempt: i32) -> Option<Standing> {
        let running = self.running.get(&task).filter(|r| r.task.attempt == attempt)?;
        Some(match (self.mode, running.cancelling) {
            (Mode::Interrupting | Mode::Stopped, _) => Standing::Interrupted,
            (_, true) => Standing::Cancelling,
            (_, false) => Standing::Wanted,
        })
    }

    /// How many settlements wait for the next turn or are in it.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len() + self.round.as_ref().map_or(0, Round::settlements)
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
        self.notice(&input);
        match input {
            Input::Woken => self.look = true,
            Input::TookOffice { resumed, live } => self.take_office(resumed, live, &mut effects),
            Input::LostOffice => self.lose_office(&mut effects),
            Input::SlotsAnswered(answers) => self.slots_answered(answers, &mut effects),
            Input::TurnTaken(reply) => self.turn_taken(*reply, &mut effects),
            Input::TurnFailed { in_doubt } => self.turn_failed(in_doubt, &mut effects),
            Input::Finished { task, attempt, outcome, ran, chance } => {
                self.finished(task, attempt, outcome, ran, chance)
            }
            Input::Left { task, attempt } => drop(self.ended(task, attempt)),
            Input::PlaceFreed(task) => self.place_freed(task, &mut effects),
            Input::PlaceLost(task) => self.give_back_line(task),
            Input::Ticked => self.tick(),
            Input::SessionReady(key) => self.sessions.ready(key),
            Input::SessionOpened(key) => self.sessions.opened(&key),
            Input::SessionRefused { key, sqlstate, message } => self.sessions.refused(key, sqlstate, message),
            Input::SessionFailed(key) => self.sessions.failed(key),
            Input::SessionsRetried(key) => self.sessions.retried(&key),
            Input::SessionGone(key) => self.sessions.gone(&key),
            Input::NodeHeard { node, well } => {
                if well {
                    self.sessions.retried_on(&node);
                }
                self.closed.heard(node, well);
            }
            Input::Reloaded(rules) => self.rules = rules,
            Input::Terminate => self.terminate(&mut effects),
            Input::CancelAll => self.cancel_all(&mut effects),
            Input::GraceOver => self.interrupt_all(&mut effects),
        }
        self.next_round(&mut effects);
        self.tick_on(&mut effects);
        self.stop_if_done(&mut effects);
        effects
    }

    /// May this let a task start that could not before? Should it wait for company?
    fn notice(&mut self, input: &Input) {
        let waits = match input {
            Input::Finished { outcome: Outcome::Done { .. }, .. }
            | Input::SessionReady(_)
            | Input::PlaceFreed(_) => self.has_backlog(),
            Input::SlotsAnswered(_) | Input::TurnTaken(_) => true,
            _ => false,
        };
        if !waits {
            self.lines.hurry();
        }
        match input {
            // The rounds see to it themselves.
            Input::SlotsAnswered(_) | Input::TurnTaken(_) => {}
            Input::PlaceFreed(_) | Input::PlaceLost(_) | Input::Ticked => {}
            // Of slots these say nothing.
            Input::SessionReady(_)
            | Input::SessionOpened(_)
            | Input::SessionRefused { .. }
            | Input::SessionFailed(_)
            | Input::SessionsRetried(_)
            | Input::SessionGone(_)
            | Input::NodeHeard { .. } => self.stale = true,
            // The nodes whose slots came back are known.
            Input::Finished { task, .. } | Input::Left { task, .. } => {
                self.stale = true;
                match self.running.get(task).map(|r| r.task.lane) {
                    Some(lane) => self.lanes.freed_by(lane),
                    None => self.lanes.all_may_fit(),
                }
            }
            // Also slots of which nobody here heard: the poll's wake is what makes that good.
            Input::Woken
            | Input::TookOffice { .. }
            | Input::LostOffice
            | Input::TurnFailed { .. }
            | Input::Reloaded(_)
            | Input::Terminate
            | Input::CancelAll
            | Input::GraceOver => {
                self.stale = true;
                self.lanes.all_may_fit();
            }
        }
    }

    // ---------------------------------------------------------------- endings

    /// Takes the attempt off the running ones. Late news of an abandoned attempt changes nothing.
    fn ended(&mut self, task: TaskId, attempt: i32) -> Option<Running> {
        self.running.get(&task).filter(|r| r.task.attempt == attempt && r.begun)?;
        // Usually its place was freed before, and the line has moved on.
        self.give_back_line(task);
        self.running.remove(&task)
    }

    fn finished(&mut self, task: TaskId, attempt: i32, outcome: Outcome, ran: Option<Duration>, chance: f64) {
        let Some(running) = self.ended(task, attempt) else { return };
        self.hot.push(running.task.lane);
        if let Some(ran) = ran {
            self.lanes.ran(running.task.lane, ran);
        }
        let settlement = self.settlement(&running, outcome, ran, chance);
        self.unsettled.push(settlement);
    }

    /// What follows from an attempt's outcome. `ran`: how long it ran, if that is known.
    fn settlement(
        &self,
        running: &Running,
        outcome: Outcome,
        ran: Option<Duration>,
        chance: f64,
    ) -> Settlement {
        let task = &running.task;
        let ending = match &outcome {
            Outcome::Done { .. } => Ending::Done,
            Outcome::Failed { sqlstate, .. } => {
                // A policy that does not parse (written past the checks) must not keep the task from ending.
                let own = task.retry.as_ref().and_then(|json| self.rules.retry.overridden_by(json).ok());
                let failures = u32::try_from(task.retry_count).unwrap_or(0);
                own.as_ref().unwrap_or(&self.rules.retry).decide(failures, sqlstate, chance)
            }
            Outcome::Withdrawn => Ending::Again(Duration::ZERO),
            Outcome::Interrupted { .. } => after_interruption(
                u32::try_from(task.interruptions).unwrap_or(0),
                self.rules.max_interruptions,
            ),
        };
        Settlement {
            ran: ran.filter(|_| running.prefetched),
            job: task.job,
            task: task.task,
            attempt: task.attempt,
            node: running.node.clone(),
            pid: task.backend.map(|b| b.pid),
            outcome,
            ending,
        }
    }
}
