//! What the Yard knows of sessions: how many are ready for each key, how many are being opened, and what is wrong.

use std::collections::HashMap;

use crate::model::SessionKey;

#[derive(Debug, Default)]
struct Stand {
    idle: u32,
    opening: u32,
    /// An opening failed and its back-off is not over.
    backing_off: bool,
    /// The server refuses this owner: SQLSTATE and text for the tasks that cannot start.
    refusal: Option<(String, String)>,
    /// The round under way could tell the refusal.
    telling: bool,
}

impl Stand {
    fn is_empty(&self) -> bool {
        self.idle == 0 && self.opening == 0 && !self.backing_off && self.refusal.is_none()
    }
}

/// Sessions by key. A key of which nothing is known takes no memory.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    stands: HashMap<SessionKey, Stand>,
}

impl Sessions {
    fn stand(&mut self, key: SessionKey) -> &mut Stand {
        self.stands.entry(key).or_default()
    }

    fn with(&mut self, key: &SessionKey, change: impl FnOnce(&mut Stand)) {
        if let Some(stand) = self.stands.get_mut(key) {
            change(stand);
            if stand.is_empty() {
                self.stands.remove(key);
            }
        }
    }

    pub(super) fn ready(&mut self, key: SessionKey) {
        let stand = self.stand(key);
        stand.idle += 1;
        stand.refusal = None;
    }

    pub(super) fn opened(&mut self, key: &SessionKey) {
        self.with(key, |s| s.opening = s.opening.saturating_sub(1));
    }

    pub(super) fn refused(&mut self, key: SessionKey, sqlstate: String, message: String) {
        let stand = self.stand(key);
        stand.opening = stand.opening.saturating_sub(1);
        stand.refusal = Some((sqlstate, message));
    }

    pub(super) fn failed(&mut self, key: SessionKey) {
        let stand = self.stand(key);
        stand.opening = stand.opening.saturating_sub(1);
        stand.backing_off = true;
    }

    pub(super) fn retried(&mut self, key: &SessionKey) {
        self.with(key, |s| s.backing_off = false);
    }

    /// Whatever failed on this node may be tried again.
    pub(super) fn retried_on(&mut self, node: &str) {
        self.stands.iter_mut().filter(|(key, _)| key.node == node).for_each(|(_, s)| s.backing_off = false);
        self.stands.retain(|_, s| !s.is_empty());
    }

    pub(super) fn gone(&mut self, key: &SessionKey) {
        self.with(key, |s| s.idle = s.idle.saturating_sub(1));
    }

    pub(super) fn can_lend(&self, key: &SessionKey) -> bool {
        self.stands.get(key).is_some_and(|s| s.idle > 0 || s.refusal.is_some())
    }

    /// Is a session ready, or may one be opened?
    pub(super) fn may_be_had(&self, key: &SessionKey) -> bool {
        self.stands.get(key).is_none_or(|s| s.idle > 0 || !s.backing_off)
    }

    /// Takes a session for an offer. Of a refused key the refusal is lent instead, once: it is told to a round of tasks,
    /// and the next want tries the login again.
    pub(super) fn lend(&mut self, key: &SessionKey) -> Option<(String, String)> {
        let stand = self.stands.get_mut(key)?;
        if stand.idle > 0 {
            stand.idle -= 1;
            return None;
        }
        stand.refusal.clone()
    }

    /// A round begins: refusals known by now are told in it.
    pub(super) fn tell_refusals(&mut self) {
        self.stands.values_mut().for_each(|s| s.telling = s.refusal.is_some());
    }

    /// The round's offers are made. What was to be told is told; what was heard meanwhile is for the next.
    pub(super) fn refusals_told(&mut self) {
        for stand in self.stands.values_mut() {
            if std::mem::take(&mut stand.telling) {
                stand.refusal = None;
            }
        }
        self.stands.retain(|_, s| !s.is_empty());
    }

    /// How many of `wanted` sessions should be opened now; counts them as opening.
    pub(super) fn open(&mut self, key: &SessionKey, wanted: u32, max_pending: u32) -> u32 {
        let stand = self.stand(key.clone());
        let n = wanted.min(max_pending).saturating_sub(stand.opening);
        stand.opening += n;
        n
    }

    pub(super) fn idle_total(&self) -> usize {
        self.stands.values().map(|s| s.idle as usize).sum()
    }

    /// What wants can be made of, to be counted down.
    pub(super) fn budget(&self, max_pending: u32) -> Budget<'_> {
        Budget { sessions: self, max_pending, taken: HashMap::new(), opened: HashMap::new() }
    }
}

/// How many ready sessions, and openings, are left while wants are made.
pub(super) struct Budget<'a> {
    sessions: &'a Sessions,
    max_pending: u32,
    taken: HashMap<SessionKey, u32>,
    opened: HashMap<SessionKey, u32>,
}

impl Budget<'_> {
    /// Takes a ready session of this key if there is one. A refused key always has one: its tasks are to fail.
    pub(super) fn take(&mut self, key: &SessionKey) -> bool {
        let Some(stand) = self.sessions.stands.get(key) else { return false };
        if stand.refusal.is_some() {
            return true;
        }
        count_to(stand.idle, key, &mut self.taken)
    }

    /// Takes an opening of this key, if one more may be under way.
    pub(super) fn open(&mut self, key: &SessionKey) -> bool {
        let stand = self.sessions.stands.get(key);
        if stand.is_some_and(|s| s.backing_off) {
            return false;
        }
        count_to(self.max_pending.saturating_sub(stand.map_or(0, |s| s.opening)), key, &mut self.opened)
    }
}

fn count_to(limit: u32, key: &SessionKey, counts: &mut HashMap<SessionKey, u32>) -> bool {
    let count = match counts.get_mut(key) {
        Some(count) => count,
        None => counts.entry(key.clone()).or_default(),
    };
    *count += 1;
    *count <= limit
}
