//! What the Yard knows of each lane's queue: a window of its next ready tasks.
//!
//! A window is exact as far as it goes: no ready task of the lane precedes its keys or lies between them. `more` says
//! that something may lie behind what is known. Whatever makes tasks ready tells the first of them: within what is
//! known, the window is cut there; behind it, nothing is learnt, since others may lie before it.
//!
//! A lane is *full* from the moment it was refused slots until a slot of one of its nodes comes back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use super::prefetch::LINE;
use crate::model::{Crossing, Lane, LaneId, QueueKey, SessionKey, TaskId, Window, WindowRequest};

#[derive(Debug)]
struct Track {
    lane: Lane,
    window: VecDeque<QueueKey>,
    more: bool,
    /// The last key known to be claimed: nothing ready precedes it, unless told.
    floor: Option<QueueKey>,
    full: bool,
    pace: Pace,
    /// Where the reading under way begins; `None` when nothing is read.
    reading: Option<Option<QueueKey>>,
}

impl Track {
    fn new(lane: Lane) -> Track {
        Track {
            lane,
            window: VecDeque::new(),
            more: true,
            floor: None,
            full: false,
            pace: Pace::default(),
            reading: None,
        }
    }

    /// How far the queue is known.
    fn known_to(&self) -> Option<QueueKey> {
        self.window.back().copied().max(self.floor)
    }

    fn is_short(&self, size: Size) -> bool {
        self.more && self.window.len() < self.wanted(size) as usize
    }

    fn wanted(&self, size: Size) -> u32 {
        size.places * self.pace.in_a_line().min(size.prefetch).max(1)
    }
}

/// How large windows should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    /// So many tasks may run at once.
    pub(super) places: u32,
    /// So many short ones are claimed for each of them.
    pub(super) prefetch: u32,
}

/// How long the last tasks of a lane ran, on average.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// At most `ENOUGH`, the weight of what went before.
    noted: u32,
    mean: Duration,
}

/// So many tasks tell the pace.
const ENOUGH: u32 = 8;

impl Pace {
    fn note(&mut self, ran: Duration) {
        let before = self.noted.min(ENOUGH - 1);
        self.noted = before + 1;
        self.mean = (self.mean * before + ran) / self.noted;
    }

    /// How many tasks make a line; none as long as the pace is not known.
    fn in_a_line(&self) -> u32 {
        if self.noted < ENOUGH {
            return 0;
        }
        u32::try_from(LINE.as_nanos() / self.mean.as_nanos().max(1)).unwrap_or(u32::MAX)
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
        self.tracks.entry(lane.id).or_insert_with(|| Track::new(lane));
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
            track.reading = None;
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

    /// The lanes of several nodes in which something is ready, if `may_start` says so of their sessions.
    pub(super) fn crossings(&self, may_start: impl Fn(&SessionKey) -> bool) -> Vec<Crossing> {
        let several = self.tracks.values().filter(|t| t.lane.nodes.len() > 1 && may_start(&t.lane.session));
        several
            .filter_map(|t| {
                Some(Crossing { lane: t.lane.id, first: *t.window.front()?, last: *t.window.back()? })
            })
            .collect()
    }

    // ---------------------------------------------------------------- pace

    /// A task of this lane ran so long.
    pub(super) fn ran(&mut self, id: LaneId, ran: Duration) {
        if let Some(track) = self.tracks.get_mut(&id) {
            track.pace.note(ran);
        }
    }

    /// A task of this lane takes long.
    pub(super) fn is_slow(&mut self, id: LaneId) {
        if let Some(track) = self.tracks.get_mut(&id) {
            track.pace = Pace::default();
        }
    }

    /// How many tasks of the lane may be prefetched behind one: its share of what waits beyond the places there are.
    pub(super) fn prefetch(&self, id: LaneId, size: Size) -> u32 {
        let Some(track) = self.tracks.get(&id) else { return 0 };
        let known = u32::try_from(track.window.len()).unwrap_or(u32::MAX);
        let share = if track.more && known >= size.places { u32::MAX } else { known / size.places.max(1) };
        share.min(size.prefetch).min(track.pace.in_a_line()).saturating_sub(1)
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

    /// A part of the queue was read. It is of use only where it continues what is known: when the window was cut since
    /// it was asked for (a task became ready in the same turn), tasks between the cut and the part would be missing.
    pub(super) fn window(&mut self, window: Window) {
        let Some(track) = self.tracks.get_mut(&window.lane) else { return };
        if track.reading.take() == Some(track.known_to()) {
            track.window.extend(window.keys);
            track.more = window.more;
        }
    }

    /// Where a claim may start to read the lane.
    pub(super) fn floor(&self, id: LaneId) -> Option<QueueKey> {
        self.tracks.get(&id).and_then(|t| t.window.front().copied().or(t.floor))
    }

    pub(super) fn wants_windows(&self, size: Size) -> bool {
        self.tracks.values().any(|t| t.is_short(size))
    }

    /// Asks for what lies behind short windows. Twice the size, so that a refill serves several rounds.
    pub(super) fn window_requests(&mut self, size: Size) -> Vec<WindowRequest> {
        let ask = |t: &mut Track| {
            t.reading = Some(t.known_to());
            WindowRequest { lane: t.lane.id, after: t.known_to(), limit: t.wanted(size) * 2 }
        };
        self.tracks.values_mut().filter(|t| t.is_short(size)).map(ask).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(1);
    const FOUR: Size = Size { places: 4, prefetch: 8 };

    fn key(task: i64) -> QueueKey {
        QueueKey { rank: 0, task: TaskId(task) }
    }

    fn lanes(window: &[i64]) -> Lanes {
        let mut lanes = Lanes::default();
        let session = SessionKey { node: String::new(), owner: "alice".to_owned(), owner_oid: 1 };
        lanes.add(Lane { id: LANE, session, nodes: Vec::new() });
        assert_eq!(lanes.window_requests(FOUR).len(), 1);
        lanes.window(Window { lane: LANE, keys: window.iter().map(|t| key(*t)).collect(), more: true });
        lanes
    }

    fn known(lanes: &Lanes) -> Vec<i64> {
        lanes.tracks[&LANE].window.iter().map(|k| k.task.0).collect()
    }

    #[test]
    fn a_part_read_behind_a_window_that_was_cut_meanwhile_is_dropped_and_read_again() {
        let mut lanes = lanes(&[5, 6]);
        assert_eq!(lanes.window_requests(FOUR)[0].after, Some(key(6)));
        // The turn that reads behind 6 makes 3 ready; what is between is not known any more.
        lanes.readied(LANE, key(3));
        lanes.window(Window { lane: LANE, keys: vec![key(7)], more: false });
        assert_eq!(known(&lanes), [3]);
        assert!(lanes.wants_windows(FOUR), "5 and 6 are to be read again");
        assert_eq!(lanes.window_requests(FOUR)[0].after, Some(key(3)));
    }

    #[test]
    fn a_task_that_becomes_ready_behind_what_is_known_hides_none_in_between() {
        let mut lanes = lanes(&[5, 6]);
        lanes.readied(LANE, key(9));
        assert_eq!(known(&lanes), [5, 6]);
        assert_eq!(lanes.window_requests(FOUR)[0].after, Some(key(6)));
        lanes.window(Window { lane: LANE, keys: vec![key(8), key(9)], more: false });
        // Now the end is known, and what comes behind it is the next.
        lanes.readied(LANE, key(11));
        assert_eq!(known(&lanes), [5, 6, 8, 9, 11]);
    }

    #[test]
    fn a_part_read_behind_claimed_tasks_continues_the_window() {
        let mut lanes = lanes(&[5, 6]);
        lanes.window_requests(FOUR);
        lanes.claimed(LANE, TaskId(5));
        lanes.claimed(LANE, TaskId(6));
        lanes.window(Window { lane: LANE, keys: vec![key(7)], more: false });
        assert_eq!(known(&lanes), [7]);
        assert!(!lanes.wants_windows(FOUR));
    }
}
