//! Taking, doubting and losing the office.
//!
//! An office is *in doubt* when a turn was lost: it may have happened, and until the catalog has been read again nothing
//! is claimed. Attempts under way go on; their endings wait. It is *lost* when another process decides: then whatever
//! ends here is dropped.

use super::{Effect, Mode, Running, Yard};
use crate::model::LiveAttempt;

/// How this process stands to the office.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Office {
    /// Another process decides, or nobody.
    None,
    /// Ours.
    Held,
    /// Ours when last heard; a `TookOffice` or `LostOffice` follows.
    InDoubt,
}

impl Yard {
    pub(super) fn take_office(&mut self, resumed: bool, live: Vec<LiveAttempt>, effects: &mut Vec<Effect>) {
        if self.mode == Mode::Stopped {
            return;
        }
        if resumed {
            // A turn under way belongs to the term that ended: it happened before `live` was read, or never will.
            self.void_round(effects);
        } else {
            self.abandon_all(effects);
        }
        self.office = Office::Held;
        if self.mode == Mode::Standby {
            self.mode = Mode::Accepting;
        }
        self.look = true;
        // What a lost turn did to the queues is unknown; they are read anew.
        self.lanes.forget();
        for attempt in live {
            self.meet(attempt, effects);
        }
        if self.mode == Mode::CancellingAll && !self.awaited.is_empty() {
            // The first request may have been lost with the connection; repeating it is harmless.
            effects.push(Effect::RequestCancel(self.awaited.clone()));
        }
    }

    /// An attempt that the catalog holds alive: one of ours, or one whose outcome is to be found out.
    fn meet(&mut self, attempt: LiveAttempt, effects: &mut Vec<Effect>) {
        let (task, number) = (attempt.claimed.task, attempt.claimed.attempt);
        let known = self.running.get(&task).is_some_and(|r| r.task.attempt == number);
        let settling = self.unsettled.iter().any(|s| s.task == task && s.attempt == number);
        if known {
            if attempt.cancelling {
                self.cancel(task, effects);
            }
        } else if !settling && self.mode < Mode::Interrupting {
            let running = Running {
                task: attempt.claimed.clone(),
                node: attempt.node.clone(),
                cancelling: attempt.cancelling,
                prefetched: false,
                begun: true,
                ticket: 0,
            };
            self.running.insert(task, running);
            effects.push(Effect::Adopt(Box::new(attempt)));
        }
    }

    pub(super) fn lose_office(&mut self, effects: &mut Vec<Effect>) {
        self.office = Office::None;
        self.abandon_all(effects);
        if self.mode == Mode::Accepting {
            self.mode = Mode::Standby;
        }
    }

    /// The epoch is over: outcomes are dropped, the new leader decides by the records.
    fn abandon_all(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.running.drain().filter(|(_, r)| r.begun).map(|(task, _)| Effect::Abandon(task)));
        self.lines.clear();
        self.begun.clear();
        self.void_round(effects);
        self.unsettled.clear();
        self.hot.clear();
    }

    /// Nobody will answer the round under way. Settling twice is settling once, so what may have been settled is simply
    /// said again; sessions for which something may have been claimed are of no more use.
    pub(super) fn void_round(&mut self, effects: &mut Vec<Effect>) {
        let Some(round) = self.round.take() else { return };
        if round.has_offers() {
            effects.push(Effect::BurnSeats);
        }
        self.begun.extend_from_slice(round.begun());
        self.unsettled.splice(0..0, round.into_settlements());
    }
}
