//! What the Yard knows of each lane's queue: a window of its next ready tasks.
//!
//! A window is exact as far as it goes: no ready task of the lane precedes its keys or lies between them. `more` says
//! that something may lie behind what is known. Whatever makes tasks ready tells the first of them: within what is
//! known, the window is cut there; behind it, nothing is learnt, since others may lie before it.
//!
//! A lane is *full* from the moment it was refused slots until a slot of one of its nodes comes back.

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
    full: bool,
}

impl Track {
    /// How far the queue is known.
    fn known_to(&self) -> Option<QueueKey> {
        self.window.back().copied().max(self.floor)
    }

    fn is_short(&self, size: u32) -> bool {
        self.more && self.window.len() < size as usize
    }
}

/// What a walk in order of dispatch does next.
pub(super) enum Walk {
    /// Goes on.
    On,
    /// Goes on without this lane.
    PassOver,
    /// Ends.
    Stop,
}

/// All lanes, by id. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    tracks: BTreeMap<LaneId, Track>,
}

impl Lanes {
    pub(super) fn add(&mut self, lane: Lane) {
        let track =
            || Track { lane: lane.clone(), window: VecDeque::new(), more: true, floor: None, full: false };
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

    // ---------------------------------------------------------------- slots

    /// The lane was refused slots. Says whether that is news.
    pub(super) fn fill(&mut self, id: LaneId) -> bool {
        self.tracks.get_mut(&id).is_some_and(|t| !std::mem::replace(&mut t.full, true))
    }

    /// The slots of one task of this lane came back: lanes that share a node with it may fit again.
    pub(super) fn freed_by(&mut self, id: LaneId) {
        let Some(nodes) = self.tracks.get(&id).map(|t| t.lane.nodes.clone()) else {
            return self.all_may_fit();
        };
        for track in self.tracks.values_mut().filter(|t| t.full) {
            track.full = !track.lane.nodes.iter().any(|node| nodes.contains(node));
        }
    }

    /// It is not known whose slots came back.
    pub(super) fn all_may_fit(&mut self) {
        self.tracks.values_mut().for_each(|t| t.full = false);
    }

    /// Do tasks wait in full lanes?
    pub(super) fn somebody_waits(&self) -> bool {
        self.tracks.values().any(|t| t.full && !t.window.is_empty())
    }

    // ---------------------------------------------------------------- windows

    /// Tasks became ready in the lane, the first of them at `key`.
    pub(super) fn readied(&mut self, id: LaneId, key: QueueKey) {
        let Some(track) = self.tracks.get_mut(&id) else { return };
        if track.more && track.known_to().is_none_or(|end| end < key) {
            return;
        }
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
        self.tracks.values().any(|t| t.is_short(size))
    }

    /// Asks for what lies behind short windows. Twice the size, so that a refill serves several rounds.
    pub(super) fn window_requests(&self, size: u32) -> Vec<WindowRequest> {
        let ask = |t: &Track| WindowRequest { lane: t.lane.id, after: t.known_to(), limit: size * 2 };
        self.tracks.values().filter(|t| t.is_short(size)).map(ask).collect()
    }

    /// The lane, if nothing is known to be ready in it.
    pub(super) fn empty_lane(&self, id: LaneId) -> Option<&Lane> {
        self.tracks.get(&id).filter(|t| t.window.is_empty() && !t.full).map(|t| &t.lane)
    }

    /// Calls `each` with the lane of every known ready task in order of dispatch, but for full lanes. Says whether the
    /// end was reached.
    pub(super) fn in_order<'a>(&'a self, each: &mut impl FnMut(&'a Lane) -> Walk) -> bool {
        let open = self.tracks.values().filter(|t| !t.full);
        let mut heads: BinaryHeap<Reverse<(QueueKey, LaneId, usize)>> =
            open.filter_map(|t| t.window.front().map(|k| Reverse((*k, t.lane.id, 0)))).collect();
        while let Some(Reverse((_, id, i))) = heads.pop() {
            let Some(track) = self.tracks.get(&id) else { continue };
            match each(&track.lane) {
                Walk::On => heads.extend(track.window.get(i + 1).map(|next| Reverse((*next, id, i + 1)))),
                Walk::PassOver => {}
                Walk::Stop => return false,
            }
        }
        true
    }
}
