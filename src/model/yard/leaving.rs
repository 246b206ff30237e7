//! Cancelling attempts, and leaving: modes that only become stronger, and one Stop at the end.

use super::office::Office;
use super::{Effect, Mode, Yard};
use crate::model::{JobId, TaskId};

impl Yard {
    pub(super) fn cancel(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        let Some(running) = self.running.get_mut(&task).filter(|r| !r.cancelling) else { return };
        running.cancelling = true;
        if running.begun {
            effects.push(Effect::Cancel(task));
        } else {
            self.withdraw(task);
        }
    }

    pub(super) fn terminate(&mut self, effects: &mut Vec<Effect>) {
        match self.mode {
            Mode::Standby | Mode::Accepting | Mode::CancellingAll => {
                self.mode = Mode::Draining;
                self.give_back(|_| true);
                effects.push(Effect::StartGrace);
            }
            Mode::Draining => self.interrupt_all(effects),
            Mode::Interrupting | Mode::Stopped => {}
        }
    }

    pub(super) fn cancel_all(&mut self, effects: &mut Vec<Effect>) {
        match self.mode {
            Mode::Standby | Mode::Accepting => {
                self.mode = Mode::CancellingAll;
                let mut jobs: Vec<JobId> = self.running.values().map(|r| r.task.job).collect();
                jobs.sort_unstable();
                jobs.dedup();
                self.awaited.clone_from(&jobs);
                self.give_back(|_| true);
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

    pub(super) fn interrupt_all(&mut self, effects: &mut Vec<Effect>) {
        match self.mode {
            Mode::CancellingAll | Mode::Draining => {
                self.mode = Mode::Interrupting;
                effects.extend(self.running.keys().map(|task| Effect::Interrupt(*task)));
            }
            Mode::Standby | Mode::Accepting | Mode::Interrupting | Mode::Stopped => {}
        }
    }

    /// Says Stop, once, when nothing is left to do or nothing can be done any more.
    pub(super) fn stop_if_done(&mut self, effects: &mut Vec<Effect>) {
        match self.mode {
            Mode::CancellingAll | Mode::Draining | Mode::Interrupting => {}
            Mode::Standby | Mode::Accepting | Mode::Stopped => return,
        }
        let quiet = self.running.is_empty() && self.unsettled.is_empty() && self.round.is_none();
        let done = match self.office {
            Office::Held => quiet,
            // Home may come back within the grace; after it, the next start finds out what became of the rest.
            Office::InDoubt => quiet || self.mode == Mode::Interrupting,
            Office::None => true,
        };
        let waits =
            self.mode == Mode::CancellingAll && !self.awaited.is_empty() && self.office != Office::None;
        if done && !waits {
            self.mode = Mode::Stopped;
            effects.push(Effect::Stop { clean: self.awaited.is_empty() });
        }
    }
}
