//! The world's catalog: what a turn does to it, as the statements would.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use yardmaster::model::*;

use super::{Stand, World};

impl World {
    pub(super) fn claimed_task(&self, id: i64) -> ClaimedTask {
        let task = &self.tasks[&id];
        ClaimedTask {
            job: JobId(task.job),
            task: TaskId(id),
            attempt: task.attempt,
            series: 1,
            task_key: Uuid::nil(),
            lane: self.lanes[task.lane].id,
            command: String::new(),
            retry: None,
            timeout: None,
            transactional: None,
            verify: None,
            undo: None,
            retry_count: 0,
            interruptions: 0,
            owner_trouble: None,
            site: None,
            waited: None,
            scratch: false,
            output: None,
            backend: None,
        }
    }

    /// Ready tasks of a lane after a key, in order.
    pub(super) fn ready(&self, lane: LaneId, after: Option<QueueKey>) -> Vec<QueueKey> {
        let of_lane =
            self.tasks.iter().filter(|(_, t)| t.stand == Stand::Ready && self.lanes[t.lane].id == lane);
        let mut keys: Vec<QueueKey> =
            of_lane.map(|(id, t)| QueueKey { rank: t.rank, task: TaskId(*id) }).collect();
        keys.retain(|k| after.is_none_or(|after| *k > after));
        keys.sort_unstable();
        keys
    }

    pub(super) fn commit(&mut self, turn: &Turn) -> TurnReply {
        let mut reply = TurnReply::default();
        let before: BTreeSet<i64> = self.all_ready();
        if turn.look {
            reply.draining = self.draining.take();
            self.admit(&mut reply);
        }
        for settlement in &turn.settlements {
            self.settle(settlement);
        }
        if turn.promote {
            for task in self.tasks.values_mut().filter(|t| t.stand == Stand::Delayed) {
                task.stand = Stand::Ready;
            }
        }
        self.unblock();
        // Tell the first of each lane that became ready; as the catalog does, in no particular company.
        let mut first: BTreeMap<LaneId, QueueKey> = BTreeMap::new();
        for id in self.all_ready().difference(&before) {
            let task = &self.tasks[id];
            let key = QueueKey { rank: task.rank, task: TaskId(*id) };
            let entry = first.entry(self.lanes[task.lane].id).or_insert(key);
            *entry = (*entry).min(key);
        }
        reply.readied = first.into_iter().collect();
        for (task, attempt) in &turn.begun {
            let task_now = &self.tasks[&task.0];
            assert!(
                task_now.attempt == *attempt && self.started.contains(&(task.0, *attempt)),
                "shows what has not begun"
            );
            self.shown.insert(task.0);
        }
        let deepest = turn.offers.iter().map(|o| o.prefetch).max().unwrap_or(0);
        let offers = || turn.offers.iter().zip(&turn.floors).enumerate();
        for (i, (offer, floor)) in
            (0..=deepest).flat_map(|depth| offers().filter(move |(_, (o, _))| o.prefetch >= depth))
        {
            let ready = self.ready(offer.lane, None);
            let Some(key) = ready.iter().find(|k| floor.is_none_or(|floor| **k >= floor)).copied() else {
                continue;
            };
            // What this very turn made ready may be passed over: it is as if it had come after the claim.
            let hidden = ready.iter().find(|k| **k < key && before.contains(&k.task.0));
            assert_eq!(hidden, None, "the floor hides a task that comes before {key:?}");
            let task = self.tasks.get_mut(&key.task.0).expect("it is ready");
            task.stand = Stand::Live { cancelling: false };
            task.attempt += 1;
            reply.claimed.push((i, self.claimed_task(key.task.0)));
        }
        reply.claimed.sort_by_key(|(offer, _)| *offer);
        for request in &turn.windows {
            let mut keys = self.ready(request.lane, request.after);
            let more = keys.len() > request.limit as usize;
            keys.truncate(request.limit as usize);
            reply.windows.push(Window { lane: request.lane, keys, more });
        }
        reply
    }

    fn all_ready(&self) -> BTreeSet<i64> {
        self.tasks.iter().filter(|(_, t)| t.stand == Stand::Ready).map(|(id, _)| *id).collect()
    }

    /// New tasks, and requests to cancel.
    fn admit(&mut self, reply: &mut TurnReply) {
        let asked: BTreeSet<i64> = self.cancel_requests.drain(..).map(|job| job.0).collect();
        for task in self.tasks.values_mut() {
            task.cancel_asked |= asked.contains(&task.job);
            if task.stand == Stand::New {
                task.stand = Stand::Blocked;
            }
        }
        for (i, lane) in self.lanes.iter().enumerate() {
            if self.tasks.values().any(|t| t.lane == i && t.stand != Stand::New) && self.told.insert(i) {
                reply.lanes.push(lane.clone());
            }
        }
        for (id, task) in &mut self.tasks {
            if !std::mem::take(&mut task.cancel_asked) {
                continue;
            }
            match &mut task.stand {
                Stand::Live { cancelling } => {
                    *cancelling = true;
                    reply.cancelling.push(TaskId(*id));
                }
                Stand::Ended(_) => {}
                stand => *stand = Stand::Ended(TaskStatus::Cancelled),
            }
        }
        for job in asked {
            let of_job = || self.tasks.values().filter(|t| t.job == job);
            if of_job().all(|t| matches!(t.stand, Stand::Ended(_))) {
                reply.jobs.push((JobId(job), JobStatus::Cancelled));
            }
        }
    }

    fn settle(&mut self, settlement: &Settlement) {
        let (id, number) = (settlement.task.0, settlement.attempt);
        let runs = self.attempts.get(&id).is_some_and(|a| a.number == number);
        assert!(!runs, "settles an attempt that runs");
        if let Some(outcome) = self.reported.get(&(id, number)) {
            assert_eq!(*outcome, settlement.outcome, "settles another outcome than was reported");
        } else {
            assert!(!self.started.contains(&(id, number)), "settles what nobody reported");
        }
        let withdrawn = settlement.outcome == Outcome::Withdrawn;
        let task = self.tasks.get_mut(&id).expect("it was claimed");
        let Stand::Live { cancelling } = task.stand else { return };
        if task.attempt != number {
            return;
        }
        task.stand = match settlement.ending {
            Ending::Done => Stand::Ended(TaskStatus::Done),
            _ if cancelling => Stand::Ended(TaskStatus::Cancelled),
            Ending::Error => Stand::Ended(TaskStatus::Error),
            Ending::Retry(d) | Ending::Again(d) if d.is_zero() => Stand::Ready,
            Ending::Retry(_) | Ending::Again(_) => Stand::Delayed,
        };
        if withdrawn && task.stand == Stand::Ready {
            task.attempt -= 1;
        }
    }

    /// Dependants follow, transitively.
    fn unblock(&mut self) {
        loop {
            let next = self.tasks.iter().find_map(|(id, task)| {
                if task.stand != Stand::Blocked {
                    return None;
                }
                let parents = || task.depends_on.iter().map(|p| &self.tasks[p].stand);
                if parents().any(|p| matches!(p, Stand::Ended(s) if s.is_bad())) {
                    Some((*id, Stand::Ended(TaskStatus::Unscheduled)))
                } else if parents().all(|p| *p == Stand::Ended(TaskStatus::Done)) {
                    Some((*id, Stand::Ready))
                } else {
                    None
                }
            });
            let Some((id, stand)) = next else { return };
            self.tasks.get_mut(&id).expect("it is there").stand = stand;
        }
    }
}
