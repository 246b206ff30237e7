//! The world left alone: everybody answers, and whatever can start has started, or ended.

use yardmaster::model::Lane;
use yardmaster::model::yard::{Input, Mode};

use super::{Office, World, done};

impl World {
    /// Everybody answers, sessions can be opened, and the poll wakes once: whatever can start has started afterwards.
    pub fn calm(&mut self) {
        self.settle_down();
        self.feed(Input::Woken);
        self.settle_down();
        self.check_nothing_waits_needlessly();
    }

    fn settle_down(&mut self) {
        for step in 0.. {
            self.steps += 1;
            assert!(step < 20_000, "no end of effects");
            if !(self.answer_slots() || self.answer_turn() || self.opened(0) || self.retried() || self.tick())
            {
                return;
            }
        }
    }

    fn check_nothing_waits_needlessly(&self) {
        if self.yard.mode() != Mode::Accepting || self.office != Office::Held {
            return;
        }
        let open = |lane: &Lane| !self.closed.as_ref().is_some_and(|closed| lane.nodes.contains(closed));
        for (i, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| open(lane)) {
            let waits = self.ready(lane.id, None);
            assert!(
                waits.is_empty() || self.desk.table.fits(&lane.nodes).is_err(),
                "lane {i} waits with {waits:?} although slots are free: {:?}",
                self.yard
            );
        }
        assert_eq!(self.yard.unsettled(), 0, "settlements wait");
    }

    /// So many short tasks of each lane have run that more may be prefetched.
    pub fn brisk(mut self) -> World {
        for lane in 0..self.lanes.len() {
            for _ in 0..8 {
                self.submit(lane, 0, &[]);
            }
        }
        self.run_down();
        self
    }

    /// Runs everything to its end: attempts succeed one by one.
    pub fn run_down(&mut self) {
        for round in 0.. {
            assert!(round < 2_000, "no end of attempts");
            self.calm();
            let Some(task) = self.attempts.keys().next().copied() else { return };
            self.finish(task, done());
        }
    }
}
