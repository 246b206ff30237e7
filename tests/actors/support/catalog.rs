//! The catalog in memory, and the FakeLedger that takes turns on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use actix::{Actor, Context, Handler, MessageResult, ResponseFuture};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;
use yardmaster::messages::{
    EndBackend, Flush, PrepareOutput, Publish, PublishHealth, RequestCancel, Resolve, Resolved, RunTurn,
    Suspect, TurnError, UseScratch,
};
use yardmaster::model::{
    Backend, ClaimedTask, Ending, JobId, JobStatus, Lane, LiveAttempt, Offer, Outcome, QueueKey, Settlement,
    TaskId, TaskStatus, TurnReply, Window,
};

/// What happens to the next turn instead of succeeding.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Refused,
    Doubt {
        happened: bool,
    },
    /// The next turn that claims happens, and nobody hears so.
    ClaimInDoubt,
    /// It succeeds, but claims nothing: somebody else was quicker.
    ClaimsLost,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub lane: usize,
    pub job: i64,
    pub command: String,
    pub depends_on: Vec<i64>,
    pub timeout: Option<Duration>,
    pub transactional: Option<bool>,
    pub verify: Option<String>,
    pub undo: Option<String>,
    pub status: TaskStatus,
    pub attempt: i32,
    pub retries: i32,
    pub backend: Option<Backend>,
    pub prefetched: bool,
    pub not_before: Option<Instant>,
}

#[derive(Default)]
pub struct Catalog {
    pub lanes: Vec<Lane>,
    pub tasks: BTreeMap<i64, Task>,
    pub told: BTreeSet<usize>,
    pub faults: VecDeque<Fault>,
    pub cancel_asked: BTreeSet<i64>,
    /// What was applied, in order.
    pub settled: Vec<Settlement>,
    pub ended: Vec<Backend>,
    pub resolves: Vec<(TaskId, Duration)>,
    pub suspected: Vec<String>,
    pub published: u32,
    pub max_live: usize,
    pub turns: u32,
    pub flushes: u32,
    /// How many more claims home does not confirm.
    pub unflushed: u32,
}

impl Catalog {
    pub fn live(&self) -> Vec<LiveAttempt> {
        let alive = |t: &&Task| matches!(t.status, TaskStatus::Running | TaskStatus::Cancelling);
        self.tasks
            .iter()
            .filter(|(_, t)| alive(t))
            .map(|(id, t)| LiveAttempt {
                claimed: self.claimed(*id),
                node: self.lanes[t.lane].session.node.clone(),
                nodes: self.lanes[t.lane].nodes.clone(),
                cancelling: t.status == TaskStatus::Cancelling,
            })
            .collect()
    }

    fn claimed(&self, id: i64) -> ClaimedTask {
        let task = &self.tasks[&id];
        ClaimedTask {
            job: JobId(task.job),
            task: TaskId(id),
            attempt: task.attempt,
            series: 1,
            task_key: Uuid::nil(),
            lane: self.lanes[task.lane].id,
            command: task.command.clone(),
            retry: None,
            timeout: task.timeout,
            transactional: task.transactional,
            verify: task.verify.clone(),
            undo: task.undo.clone(),
            retry_count: task.retries,
            interruptions: 0,
            owner_trouble: None,
            site: None,
            waited: None,
            scratch: false,
            output: None,
            backend: task.backend,
        }
    }

    fn is_ready(&self, id: i64) -> bool {
        let task = &self.tasks[&id];
        task.status == TaskStatus::Runnable && task.not_before.is_none()
    }

    fn ready(&self, lane: yardmaster::model::LaneId, after: Option<QueueKey>) -> Vec<QueueKey> {
        let ids =
            self.tasks.keys().filter(|id| self.is_ready(**id) && self.lanes[self.tasks[id].lane].id == lane);
        let keys = ids.map(|id| QueueKey { rank: 0, task: TaskId(*id) });
        keys.filter(|k| after.is_none_or(|after| *k > after)).collect()
    }

    fn take(&mut self, run: RunTurn) -> Result<TurnReply, TurnError> {
        if matches!(self.faults.front(), Some(Fault::ClaimInDoubt)) && run.turn.offers.is_empty() {
            return Ok(self.commit(run, true));
        }
        match self.faults.pop_front() {
            Some(Fault::Refused) => Err(TurnError::Refused("as told".into())),
            Some(fault @ (Fault::Doubt { .. } | Fault::ClaimInDoubt)) => {
                if !matches!(fault, Fault::Doubt { happened: false }) {
                    self.commit(run, true);
                }
                Err(TurnError::Doubt("as told".into()))
            }
            Some(Fault::ClaimsLost) => Ok(self.commit(run, false)),
            None => Ok(self.commit(run, true)),
        }
    }

    fn commit(&mut self, RunTurn { turn, .. }: RunTurn, claims: bool) -> TurnReply {
        self.turns += 1;
        let mut reply = TurnReply::default();
        let before: BTreeSet<i64> = self.tasks.keys().copied().filter(|id| self.is_ready(*id)).collect();
        if turn.look {
            for (i, lane) in self.lanes.iter().enumerate().filter(|(i, _)| self.told.insert(*i)) {
                let _ = i;
                reply.lanes.push(lane.clone());
            }
            self.carry_out_cancels(&mut reply);
        }
        for settlement in &turn.settlements {
            self.settle(settlement);
        }
        let now = Instant::now();
        for task in
            self.tasks.values_mut().filter(|t| turn.promote && t.not_before.is_some_and(|due| due <= now))
        {
            task.not_before = None;
        }
        self.release();
        let mut first: BTreeMap<_, QueueKey> = BTreeMap::new();
        for id in self.tasks.keys().copied().filter(|id| self.is_ready(*id) && !before.contains(id)) {
            first
                .entry(self.lanes[self.tasks[&id].lane].id)
                .or_insert(QueueKey { rank: 0, task: TaskId(id) });
        }
        reply.readied = first.into_iter().collect();
        let deepest = turn.offers.iter().map(|o| o.prefetch).max().unwrap_or(0);
        let places = (0..=deepest).flat_map(|depth| {
            turn.offers
                .iter()
                .enumerate()
                .filter(move |(_, o)| o.prefetch >= depth)
                .map(move |place| (depth, place))
        });
        for (task, attempt) in &turn.begun {
            if let Some(task) = self.tasks.get_mut(&task.0).filter(|t| t.attempt == *attempt) {
                task.prefetched = false;
            }
        }
        for (depth, (i, Offer { lane, backend, .. })) in places.filter(|_| claims) {
            let Some(key) = self.ready(*lane, None).first().copied() else { continue };
            if let Some(task) = self.tasks.get_mut(&key.task.0) {
                task.status = TaskStatus::Running;
                task.attempt += 1;
                task.backend = *backend;
                task.prefetched = depth > 0;
            }
            reply.claimed.push((i, self.claimed(key.task.0)));
        }
        reply.claimed.sort_by_key(|(offer, _)| *offer);
        for request in &turn.windows {
            let mut keys = self.ready(request.lane, request.after);
            let more = keys.len() > request.limit as usize;
            keys.truncate(request.limit as usize);
            reply.windows.push(Window { lane: request.lane, keys, more });
        }
        let dues = self.tasks.values().filter_map(|t| t.not_before);
        reply.next_due = dues.min().map(|due| due.saturating_duration_since(now));
        let shown = self.live().iter().filter(|l| !self.tasks[&l.claimed.task.0].prefetched).count();
        self.max_live = self.max_live.max(shown);
        reply
    }

    fn carry_out_cancels(&mut self, reply: &mut TurnReply) {
        for job in std::mem::take(&mut self.cancel_asked) {
            for (id, task) in self.tasks.iter_mut().filter(|(_, t)| t.job == job) {
                match task.status {
                    TaskStatus::Blocked | TaskStatus::Runnable => task.status = TaskStatus::Cancelled,
                    TaskStatus::Running => {
                        task.status = TaskStatus::Cancelling;
                        reply.cancelling.push(TaskId(*id));
                    }
                    _ => {}
                }
            }
        }
        // Told again at each look; the Monitor takes what it waits for.
        let jobs: BTreeSet<i64> = self.tasks.values().map(|t| t.job).collect();
        let over = |job: &i64| self.tasks.values().filter(|t| t.job == *job).all(|t| t.status.is_terminal());
        reply.jobs.extend(jobs.iter().filter(|j| over(j)).map(|j| (JobId(*j), JobStatus::Cancelled)));
    }

    fn settle(&mut self, settlement: &Settlement) {
        let Some(task) = self.tasks.get_mut(&settlement.task.0) else { return };
        let cancelling = task.status == TaskStatus::Cancelling;
        if task.attempt != settlement.attempt || !(cancelling || task.status == TaskStatus::Running) {
            return;
        }
        task.backend = None;
        task.prefetched = false;
        task.attempt -= i32::from(settlement.outcome == Outcome::Withdrawn && !cancelling);
        task.retries += i32::from(matches!(settlement.outcome, Outcome::Failed { .. }));
        task.status = match settlement.ending {
            Ending::Done => TaskStatus::Done,
            _ if cancelling => TaskStatus::Cancelled,
            Ending::Error => TaskStatus::Error,
            Ending::Retry(delay) | Ending::Again(delay) => {
                task.not_before = (!delay.is_zero()).then(|| Instant::now() + delay);
                TaskStatus::Runnable
            }
        };
        self.settled.push(settlement.clone());
    }

    fn release(&mut self) {
        let statuses: BTreeMap<i64, TaskStatus> = self.tasks.iter().map(|(id, t)| (*id, t.status)).collect();
        for task in self.tasks.values_mut().filter(|t| t.status == TaskStatus::Blocked) {
            if task.depends_on.iter().all(|p| statuses[p] == TaskStatus::Done) {
                task.status = TaskStatus::Runnable;
            }
        }
    }
}

/// Takes turns on the catalog in memory.
pub struct FakeLedger {
    pub catalog: Arc<Mutex<Catalog>>,
    /// The answer to each Resolve, once there is one.
    pub verdict: watch::Receiver<Option<Resolved>>,
}

impl FakeLedger {
    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().expect("no test panics while it holds the catalog")
    }
}

impl Actor for FakeLedger {
    type Context = Context<Self>;
}

impl Handler<RunTurn> for FakeLedger {
    type Result = Result<TurnReply, TurnError>;

    fn handle(&mut self, run: RunTurn, _: &mut Self::Context) -> Self::Result {
        self.catalog().take(run)
    }
}

impl Handler<Resolve> for FakeLedger {
    type Result = ResponseFuture<Resolved>;

    fn handle(&mut self, resolve: Resolve, _: &mut Self::Context) -> Self::Result {
        self.catalog().resolves.push((resolve.task.task, resolve.patience));
        let mut verdict = self.verdict.clone();
        Box::pin(async move {
            verdict.wait_for(Option::is_some).await.ok().and_then(|v| *v).unwrap_or(Resolved::Unknown)
        })
    }
}

impl Handler<UseScratch> for FakeLedger {
    type Result = Result<String, String>;

    fn handle(&mut self, ask: UseScratch, _: &mut Self::Context) -> Self::Result {
        Ok(format!("scratch_of_{}", ask.task))
    }
}

impl Handler<PrepareOutput> for FakeLedger {
    type Result = Result<(std::path::PathBuf, u64), String>;

    fn handle(&mut self, PrepareOutput(job): PrepareOutput, _: &mut Self::Context) -> Self::Result {
        Ok((format!("folder_of_{job}").into(), 1 << 20))
    }
}

impl Handler<Flush> for FakeLedger {
    type Result = bool;

    fn handle(&mut self, Flush: Flush, _: &mut Self::Context) -> Self::Result {
        let mut catalog = self.catalog.lock().unwrap();
        catalog.flushes += 1;
        let refused = catalog.unflushed > 0;
        catalog.unflushed = catalog.unflushed.saturating_sub(1);
        !refused
    }
}

impl Handler<EndBackend> for FakeLedger {
    type Result = ();

    fn handle(&mut self, EndBackend { backend, .. }: EndBackend, _: &mut Self::Context) {
        self.catalog().ended.push(backend);
    }
}

impl Handler<RequestCancel> for FakeLedger {
    type Result = MessageResult<RequestCancel>;

    fn handle(&mut self, RequestCancel(jobs): RequestCancel, _: &mut Self::Context) -> Self::Result {
        self.catalog().cancel_asked.extend(jobs.iter().map(|job| job.0));
        MessageResult(true)
    }
}

impl Handler<Publish> for FakeLedger {
    type Result = ();

    fn handle(&mut self, _: Publish, _: &mut Self::Context) {
        self.catalog().published += 1;
    }
}

impl Handler<PublishHealth> for FakeLedger {
    type Result = ();

    fn handle(&mut self, _: PublishHealth, _: &mut Self::Context) {}
}

impl Handler<Suspect> for FakeLedger {
    type Result = ();

    fn handle(&mut self, Suspect(node): Suspect, _: &mut Self::Context) {
        self.catalog().suspected.push(node);
    }
}
