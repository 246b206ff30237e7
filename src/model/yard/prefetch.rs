//! Prefetched tasks: claimed for a session that still runs another one.
//!
//! A turn costs the catalog much the same whether it claims one task or eight, and for short tasks that is most of what
//! they cost. So, when more short tasks of a lane wait than can start, each session is given several: they stand in
//! *line* behind the one that runs, and run one after another in that session and on its slots, never side by side.
//!
//! - How many stand in line depends on how long the lane's last tasks ran: a line is worth 50 ms at most.
//! - Nothing of a prefetched task is sent before its turn has come. Until then it is shown as runnable, and can be given
//!   back without a trace: when the task before it takes long, or leaves no session, or when the yard may not start it
//!   any more (its job is cancelled or paused, its node closed, the office in doubt, the service leaving).
//! - While lines are long, endings and free sessions wait for company, at most until the next tick: larger turns are
//!   what prefetching is for.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::office::Office;
use super::{Effect, Mode, Running, Yard};
use crate::model::{ClaimedTask, JobId, Outcome, TaskId};

/// Between two looks at the lines. It bounds what an ending can wait for company, and is less than one commit takes on
/// a common disk.
pub const TICK: Duration = Duration::from_millis(5);
/// What a line may take in all, by the pace of its lane. People do not notice it, and on a busy machine it holds several
/// tasks that commit.
pub(super) const LINE: Duration = Duration::from_millis(50);
/// A task in front of a line takes long when it outlasts so many ticks; the line is given back then.
const LONG: u32 = 10;
/// So many endings are company enough: the cost of a settlement grows beyond.
const FULL_TURN: usize = 64;

/// What stands behind a task that runs.
#[derive(Debug, Default)]
struct Line {
    /// Each with its ticket.
    behind: VecDeque<(TaskId, u64)>,
    ticks: u32,
}

/// All lines, by the task in front, and whatever else waits for the next tick.
#[derive(Debug, Default)]
pub(super) struct Lines {
    of: HashMap<TaskId, Line>,
    /// Tasks in all lines, whether or not they still are wanted.
    length: usize,
    /// The last one given out. Attempt numbers do not tell one stand in line from the next: they are given back.
    ticket: u64,
    ticking: bool,
    /// Something happened that should not wait for company.
    hurried: bool,
}

impl Lines {
    fn take(&mut self, front: TaskId) -> Line {
        let line = self.of.remove(&front).unwrap_or_default();
        self.length -= line.behind.len();
        line
    }

    fn put(&mut self, front: TaskId, behind: VecDeque<(TaskId, u64)>) {
        self.length += behind.len();
        self.of.insert(front, Line { behind, ticks: 0 });
    }

    /// The yard has something to do that should not wait.
    pub(super) fn hurry(&mut self) {
        self.hurried = true;
    }

    /// Does anybody stand behind this task?
    pub(super) fn is_followed(&self, front: TaskId) -> bool {
        self.of.contains_key(&front)
    }

    pub(super) fn clear(&mut self) {
        self.of.clear();
        self.length = 0;
    }
}

impl Yard {
    // ---------------------------------------------------------------- lines

    /// Tasks were claimed behind the one in front, which starts now. One that was interrupted before runs alone, lest it
    /// take others along.
    pub(super) fn line_up(&mut self, front: &ClaimedTask, node: &str, claimed: Vec<ClaimedTask>) {
        let mut behind = VecDeque::with_capacity(claimed.len());
        let mut alone = front.interruptions > 0;
        let mut back = Vec::new();
        for task in claimed {
            alone |= task.interruptions > 0 || task.owner_trouble.is_some();
            let id = task.task;
            self.lines.ticket += 1;
            let ticket = self.lines.ticket;
            let node = node.to_owned();
            let running = Running { task, node, cancelling: false, prefetched: true, begun: false, ticket };
            self.running.insert(id, running);
            if alone {
                back.push(id);
            } else {
                behind.push_back((id, ticket));
            }
        }
        if !behind.is_empty() {
            self.lines.put(front.task, behind);
        }
        back.into_iter().for_each(|task| self.withdraw(task));
    }

    /// The task in front is through with its session and slots, which are good for another.
    pub(super) fn place_freed(&mut self, front: TaskId, effects: &mut Vec<Effect>) {
        let mut behind = self.lines.take(front).behind;
        while let Some((id, ticket)) = behind.pop_front() {
            if !self.stands_in_line(id, ticket) {
                continue;
            }
            if !self.may_start(id) {
                self.withdraw(id);
                continue;
            }
            if let Some(running) = self.running.get_mut(&id) {
                running.begun = true;
                effects.push(Effect::StartNext { after: front, task: running.task.clone() });
            }
            // Also with nobody behind: until it is shown as running, or ends.
            self.lines.put(id, behind);
            return;
        }
        effects.push(Effect::ReturnPlace { after: front });
    }

    /// The task in front leaves no session, or takes long: its line is given back.
    pub(super) fn give_back_line(&mut self, front: TaskId) {
        for (task, ticket) in self.lines.take(front).behind {
            if self.stands_in_line(task, ticket) {
                self.withdraw(task);
            }
        }
    }

    /// Gives back every prefetched task that has not begun and of which `which` says so.
    pub(super) fn give_back(&mut self, which: impl Fn(&Running) -> bool) {
        let back = |(id, r): (&TaskId, &Running)| (!r.begun && which(r)).then_some(*id);
        let tasks: Vec<TaskId> = self.running.iter().filter_map(back).collect();
        tasks.into_iter().for_each(|task| self.withdraw(task));
    }

    /// These jobs are paused by now.
    pub(super) fn paused(&mut self, jobs: &[JobId]) {
        if !jobs.is_empty() {
            self.give_back(|r| jobs.contains(&r.task.job));
        }
    }

    /// Gives a task back that has not begun. If it is cancelling in the catalog, that makes it cancelled.
    pub(super) fn withdraw(&mut self, task: TaskId) {
        if let Some(running) = self.running.remove(&task) {
            let settlement = self.settlement(&running, Outcome::Withdrawn, None, 0.5);
            self.unsettled.push(settlement);
            self.lines.hurry();
        }
    }

    fn stands_in_line(&self, task: TaskId, ticket: u64) -> bool {
        self.running.get(&task).is_some_and(|r| r.ticket == ticket && !r.begun)
    }

    fn may_start(&self, task: TaskId) -> bool {
        let lane = self.running.get(&task).and_then(|r| self.lanes.lane(r.task.lane));
        self.mode == Mode::Accepting
            && self.office == Office::Held
            && lane.is_some_and(|lane| self.closed.takes(lane))
    }

    // ---------------------------------------------------------------- ticks

    /// A tick: whatever waited for company goes into a turn, and lines behind long tasks are given back.
    pub(super) fn tick(&mut self) {
        self.lines.ticking = false;
        self.lines.hurry();
        let mut long = Vec::new();
        for (front, line) in &mut self.lines.of {
            line.ticks += 1;
            if line.ticks >= LONG {
                long.push(*front);
            }
        }
        for front in long {
            self.give_back_line(front);
            if let Some(running) = self.running.get(&front) {
                self.lanes.is_slow(running.task.lane);
                if running.prefetched {
                    self.begun.push((front, running.task.attempt));
                }
            }
        }
    }

    /// Asks for the next tick if something waits for one.
    pub(super) fn tick_on(&mut self, effects: &mut Vec<Effect>) {
        if !self.lines.of.is_empty() && !std::mem::replace(&mut self.lines.ticking, true) {
            effects.push(Effect::TickSoon);
        }
    }

    /// Are the lines long enough to keep the sessions busy for a while?
    pub(super) fn has_backlog(&self) -> bool {
        self.lines.length * 2 >= self.rules.max_task_executors as usize && self.lines.length > 0
    }

    /// May what is to be done wait for company? Only while a tick is to come.
    pub(super) fn may_wait(&self) -> bool {
        self.lines.ticking && !self.lines.hurried && self.unsettled.len() < FULL_TURN
    }

    /// A round begins: nothing waits any more.
    pub(super) fn waited(&mut self) {
        self.lines.hurried = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::yard::Rules;
    use crate::model::{Lane, LaneId, RetryPolicy, SessionKey};

    fn claimed(task: i64) -> ClaimedTask {
        ClaimedTask {
            job: JobId(1),
            task: TaskId(task),
            attempt: 1,
            series: 0,
            task_key: uuid::Uuid::nil(),
            lane: LaneId(1),
            command: String::new(),
            retry: None,
            timeout: None,
            transactional: None,
            retry_count: 0,
            interruptions: 0,
            backend: None,
            owner_trouble: None,
            site: None,
            waited: None,
            scratch: false,
            output: None,
            verify: None,
            undo: None,
        }
    }

    /// Its attempt number is the same again, and its old place may be on another node by now.
    #[test]
    fn a_task_that_was_given_back_and_claimed_again_does_not_start_from_its_old_line() {
        let mut yard = Yard::new(Rules {
            max_task_executors: 2,
            max_pending_sessions: 2,
            retry: RetryPolicy::default(),
            max_interruptions: 3,
            prefetch: 8,
        });
        (yard.mode, yard.office) = (Mode::Accepting, Office::Held);
        let session = SessionKey { node: String::new(), owner: "alice".to_owned(), owner_oid: 10 };
        yard.lanes.add(Lane { id: LaneId(1), session, nodes: Vec::new() });

        yard.line_up(&claimed(1), "", vec![claimed(3)]);
        yard.paused(&[JobId(1)]);
        yard.line_up(&claimed(2), "", vec![claimed(3)]);

        let mut effects = Vec::new();
        yard.place_freed(TaskId(1), &mut effects);
        yard.place_freed(TaskId(2), &mut effects);
        assert_eq!(
            effects,
            [
                Effect::ReturnPlace { after: TaskId(1) },
                Effect::StartNext { after: TaskId(2), task: claimed(3) }
            ]
        );
    }
}
