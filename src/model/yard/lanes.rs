//! What the Yard knows of each lane's queue: a window of its next ready tasks.
//!
//! A window is exact as far as it goes: no ready task of the lane precedes or lies between its keys. `more` says that
//! something may lie behind its end. Whatever makes tasks ready tells the first of them, and the window is cut there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::model::{Lane, LaneId, QueueKey, TaskId, Window, WindowRequest};

#[derive(Debug)]
struct Track {
    lane: Lane,
    window: VecDeque<QueueKey>,
    more: bool,
    /// The last key known to be claimed: nothing ready precedes it, unless told.
    floor: Option<QueueKey>,
}

/// All lanes, by id. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    tracks: BTreeMap<LaneId, Track>,
}

impl Lanes {
    pub(super) fn add(&mut self, lane: Lane) {
        let track = || Track { lane: lane.clone(), window: VecDeque::new(), more: true, floor: None };
        self.tracks.entry(lane.id).or_insert_with(track);
    }

    pub(super) fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.tracks.get(&id).map(|t| &t.lane)
    }

    /// Nothing is known of any queue any more.
    pub(super) fn forget(&mut self) {
        for track in self.tracks.values_mut() {
            track.window.clear();
            track.more = true;
            track.floor = None;
        }
    }

    /// Tasks became ready in the lane, the first of them at `key`.
    pub(super) fn readied(&mut self, id: LaneId, key: QueueKey) {
        let Some(track) = self.tracks.get_mut(&id) else { return };
        let keep = track.window.partition_point(|k| *k < key);
        track.window.truncate(keep);
        track.window.push_back(key);
        track.more = true;
        track.floor = track.floor.filter(|floor| *floor < key);
    }

    /// A claim took the task, which was the lane's first.
    pub(super) fn claimed(&mut self, id: LaneId, task: TaskId) {
        let Some(track) = self.tracks.get_mut(&id) else { return };
        if let Some(i) = track.window.iter().position(|k| k.task == task) {
            track.floor = track.window.get(i).copied();
            track.window.remove(i);
        }
    }

    /// A claim that read the lane from `from` on found nothing more. What is known before that stays.
    pub(super) fn exhausted(&mut self, id: LaneId, from: Option<QueueKey>) {
        let Some(track) = self.tracks.get_mut(&id) else { return };
        let keep = from.map_or(0, |from| track.window.partition_point(|k| *k < from));
        track.floor = track.window.back().copied().max(track.floor);
        track.window.truncate(keep);
        if let Some(first) = track.window.front() {
            track.floor = track.floor.filter(|floor| floor < first);
        }
        track.more = keep > 0;
    }

    /// A part of the queue was read.
    pub(super) fn window(&mut self, window: Window) {
        let Some(track) = self.tracks.get_mut(&window.lane) else { return };
        let end = track.window.back().copied();
        track.window.extend(window.keys.into_iter().filter(|k| end.is_none_or(|end| *k > end)));
        track.more = window.more;
    }

    /// Where a claim may start to read the lane.
    pub(super) fn floor(&self, id: LaneId) -> Option<QueueKey> {
        self.tracks.get(&id).and_then(|t| t.window.front().copied().or(t.floor))
    }

    pub(super) fn wants_windows(&self, size: u32) -> bool {
        self.tracks.values().any(|t| t.more && t.window.len() < size as usize)
    }

    /// Asks for what lies behind short windows. Twice the size, so that a refill serves several rounds.
    pub(super) fn window_requests(&self, size: u32) -> Vec<WindowRequest> {
        let short = self.tracks.values().filter(|t| t.more && t.window.len() < size as usize);
        short
            .map(|t| WindowRequest {
                lane: t.lane.id,
                after: t.window.back().copied().or(t.floor),
                limit: size * 2,
            })
            .collect()
    }

    /// The lane, if its queue is known to be empty.
    pub(super) fn empty_lane(&self, id: LaneId) -> Option<&Lane> {
        self.tracks.get(&id).filter(|t| t.window.is_empty()).map(|t| &t.lane)
    }

    /// Calls `each` with the lane of every known ready task in order of dispatch, until it answers false. Says whether
    /// the end was reached.
    pub(super) fn in_order<'a>(&'a self, each: &mut impl FnMut(&'a Lane) -> bool) -> bool {
        let mut heads: BinaryHeap<Reverse<(QueueKey, LaneId, usize)>> = self
            .tracks
            .values()
            .filter_map(|t| t.window.front().map(|k| Reverse((*k, t.lane.id, 0))))
            .collect();
        while let Some(Reverse((_, id, i))) = heads.pop() {
            let Some(track) = self.tracks.get(&id) else { continue };
            if !each(&track.lane) {
                return false;
            }
            if let Some(next) = track.window.get(i + 1) {
                heads.push(Reverse((*next, id, i + 1)));
            }
        }
        true
    }
}
