//! The turn: the leader's transaction, sent whole, COMMIT included.
//!
//! The statements of a turn do not depend on one another's answers, so they travel in one round trip. Should this
//! process stop in the middle, nothing stays open: PostgreSQL has the COMMIT already. The order inside is: fence,
//! admission, requests, settlement, promotion, roll-up, claims, windows.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::super::error::DbError;
use super::super::pipeline::Pipeline;
use super::leadership::{self, Office};
use super::look::{self, Found, Mark, RequestKind};
use super::{admit, claim, request, settle};
use crate::model::graph;
use crate::model::tracking::{self, Batch, Tracked};
use crate::model::{
    JobId, JobStatus, Lane, LaneId, LiveAttempt, Outcome, QueueKey, SessionKey, TaskId, Turn, TurnReply,
    Window,
};

const ENCODING: &str = "SELECT current_setting('server_encoding')";

macro_rules! statements {
    ($($field:ident = $sql:expr),+ $(,)?) => {
        struct Statements { $($field: Statement),+ }
        impl Statements {
            async fn prepare(client: &Client) -> Result<Statements, DbError> {
                Ok(Statements { $($field: client.prepare($sql).await.map_err(DbError::postgres(concat!("prepare ", stringify!($field))))?),+ })
            }
        }
        const OWN: &[(&str, &str)] = &[$((stringify!($field), $sql)),+];
    };
}
statements! {
    fence = leadership::FENCE,
    look = look::LOOK,
    requests = look::REQUESTS,
    requests_meanwhile = look::REQUESTS_MEANWHILE,
    edges = look::EDGES,
    jobs = admit::JOBS,
    totals = admit::TOTALS,
    totals_anew = admit::TOTALS_ANEW,
    lanes = admit::LANES,
    tasks = admit::TASKS,
    tracked = admit::TRACKED,
    batches = admit::BATCHES,
    late_edges = admit::LATE_EDGES,
    admit_rollup = admit::ROLLUP,
    new_lanes = admit::NEW_LANES,
    move_lanes = admit::MOVE_LANES,
    move_tasks = admit::MOVE,
    settle = settle::SETTLE,
    rollup = settle::ROLLUP,
    promote = settle::PROMOTE,
    next_due = settle::NEXT_DUE,
    claim = claim::CLAIM,
    begun = claim::BEGUN,
    live = claim::LIVE,
    windows = claim::WINDOWS,
    cancel_jobs = request::CANCEL_JOBS,
    cancel_tasks = request::CANCEL_TASKS,
    retry = request::RETRY,
    pause = request::PAUSE,
    resume = request::RESUME,
    delete = request::DELETE,
    cleanup = request::CLEANUP,
    expire = request::EXPIRE,
    answer = request::ANSWER,
    drain = request::NODES,
    answer_nodes = request::ANSWER_NODES,
    draining = request::DRAINING,
}

/// Every statement of the catalog with its name, for the test that prepares them all.
pub fn sql_statements() -> Vec<(&'static str, &'static str)> {
    let families = [
        OWN,
        super::leadership::STATEMENTS,
        super::publish::STATEMENTS,
        super::recover::STATEMENTS,
        request::STATEMENTS,
        super::retention::STATEMENTS,
        super::scratch::STATEMENTS,
        super::citus::STATEMENTS,
        super::schedule::STATEMENTS,
        crate::db::node::STATEMENTS,
        crate::db::scratch::STATEMENTS,
    ];
    families.into_iter().flatten().copied().collect()
}

/// What a look saw of delays and deadlines.
#[derive(Clone, Copy, Debug)]
struct Due {
    due: bool,
    next_due: Option<Duration>,
}

/// A look whose admission is not finished.
#[derive(Debug)]
struct Admission {
    found: Found,
    /// The last task admitted: its transaction and id.
    cursor: (String, i64),
    /// Nothing was known before: totals and edges are counted anew.
    full: bool,
    /// Totals are raised with the first chunk.
    counted: bool,
    /// Tasks may be left to admit.
    tasks_left: bool,
    /// Tasks whose edges close a cycle.
    poisoned: Vec<i64>,
    /// What exceeds a tracked limit.
    refused: Refused,
}

impl Admission {
    /// May it take more than one chunk?
    fn is_large(&self) -> bool {
        self.full || self.found.many_tasks
    }
}

/// The parallel arrays of [`admit::TASKS`] for batches that exceed a tracked limit.
#[derive(Debug, Default)]
struct Refused {
    jobs: Vec<i64>,
    xids: Vec<String>,
    messages: Vec<String>,
}

impl Refused {
    /// A batch is refused once, with its first reason.
    fn push(&mut self, job: i64, xid: String, message: String) {
        if !self.jobs.iter().zip(&self.xids).any(|(j, x)| *j == job && *x == xid) {
            self.jobs.push(job);
            self.xids.push(xid);
            self.messages.push(message);
        }
    }
}

/// The leader's hold on the catalog: one connection, its prepared statements, and up to where it has looked.
pub struct Catalog {
    client: Client,
    statements: Statements,
    office: Office,
    seen: Mark,
    admission: Option<Admission>,
    known_lane: i32,
    /// Is there a lane whose tasks have a choice of nodes?
    choices: bool,
    utf8: bool,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("office", &self.office)
            .field("seen", &self.seen.snapshot)
            .finish_non_exhaustive()
    }
}

impl Catalog {
    /// Prepares a connection for turns. The first look will be a full one.
    ///
    /// # Errors
    /// When a statement cannot be prepared.
    pub async fn new(client: Client, office: Office) -> Result<Catalog, DbError> {
        let statements = Statements::prepare(&client).await?;
        let encoding =
            client.query_one(ENCODING, &[]).await.map_err(DbError::postgres("ask for the encoding"))?;
        Ok(Catalog {
            client,
            statements,
            office,
            seen: Mark::nothing(),
            admission: None,
            known_lane: 0,
            choices: false,
            utf8: encoding.get::<_, String>(0) == "UTF8",
        })
    }

    /// The office these turns are taken in.
    pub fn office(&self) -> Office {
        self.office
    }

    /// Has the connection ended?
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The attempts that the catalog holds to be alive.
    ///
    /// # Errors
    /// When the statement fails.
    pub async fn live(&self) -> Result<Vec<LiveAttempt>, DbError> {
        let rows = self
            .client
            .query(&self.statements.live, &[])
            .await
            .map_err(DbError::postgres("read the live attempts"))?;
        Ok(rows.iter().map(claim::live).collect())
    }

    /// Takes a turn. Nothing of it happened if it fails with an error of the server; after a lost connection or a
    /// timeout the caller must make a new `Catalog` and read what is there.
    ///
    /// # Errors
    /// [`DbError::Deposed`] when the epoch is over; otherwise what went wrong.
    pub async fn take(&mut self, turn: &Turn) -> Result<TurnReply, DbError> {
        match &self.admission {
            None if turn.look => {
                let seen = self.look().await?;
                if !(seen.due || self.admission.is_some() || self.choices) && turn.only_looks() {
                    // Nothing is new, and nothing is due: there is nothing to write.
                    return Ok(TurnReply { next_due: seen.next_due, ..TurnReply::default() });
                }
            }
            Some(admission) if admission.is_large() => self.hear_requests().await?,
            Some(_) | None => {}
        }
        let (mut reply, postponed) = self.transact(turn).await?;
        // The transaction has committed: what it admitted is admitted.
        if let Some(admission) = &mut self.admission {
            admission.counted = true;
            let rolled_up = !admission.is_large() || !admission.tasks_left;
            admission.tasks_left = reply.more_to_admit;
            admission.found.requests = postponed;
            reply.more_to_admit |= !admission.found.requests.is_empty() || !rolled_up;
            if !reply.more_to_admit {
                self.seen = admission.found.mark.clone();
                self.admission = None;
            }
        }
        for lane in &reply.lanes {
            self.known_lane = self.known_lane.max(lane.id.0);
        }
        Ok(reply)
    }

    /// What is new, and whether its edges close a cycle.
    async fn look(&mut self) -> Result<Due, DbError> {
        let look = self
            .client
            .query_one(&self.statements.look, &[&self.seen.xmax, &self.seen.xip])
            .await
            .map_err(DbError::postgres("look for new rows"))?;
        let mut found = look::found(&look);
        let seen = Due { due: found.due, next_due: found.next_due };
        let full = self.seen == Mark::nothing();
        if found.is_empty() && !full {
            self.seen = found.mark;
            return Ok(seen);
        }
        if found.asked {
            let window: [&(dyn ToSql + Sync); 3] = [&self.seen.xmax, &self.seen.xip, &found.mark.snapshot];
            let rows = self
                .client
                .query(&self.statements.requests, &window)
                .await
                .map_err(DbError::postgres("look for requests"))?;
            found.requests = look::requests(&rows);
        }
        let mut poisoned = Vec::new();
        if !found.suspicious.is_empty() {
            let rows = self
                .client
                .query(&self.statements.edges, &[&found.suspicious, &found.mark.snapshot])
                .await
                .map_err(DbError::postgres("read the edges of a job"))?;
            let edges: Vec<(i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            poisoned = graph::cycles(&edges);
        }
        found.late_edges |= full;
        let tasks_left = found.tasks || full;
        let refused = if tasks_left && found.tracked {
            self.over_limit(&found.mark.snapshot, full).await?
        } else {
            Refused::default()
        };
        self.admission = Some(Admission {
            found,
            cursor: ("0".to_owned(), i64::MIN),
            full,
            counted: false,
            tasks_left,
            poisoned,
            refused,
        });
        Ok(seen)
    }

    /// Requests that came while a large admission goes on.
    async fn hear_requests(&mut self) -> Result<(), DbError> {
        let rows = self
            .client
            .query(&self.statements.requests_meanwhile, &[&self.seen.xmax, &self.seen.xip])
            .await
            .map_err(DbError::postgres("look for requests"))?;
        if let Some(admission) = &mut self.admission {
            admission.found.requests = look::requests(&rows);
        }
        Ok(())
    }

    /// Which of the new tasks exceed a tracked limit. Decided once a look, for all chunks of a batch.
    async fn over_limit(&self, snapshot: &String, full: bool) -> Result<Refused, DbError> {
        let rows = self
            .client
            .query(&self.statements.tracked, &[])
            .await
            .map_err(DbError::postgres("count the tracked tasks"))?;
        let nodes: BTreeMap<String, Tracked> =
            rows.iter().map(|row| (row.get(0), Tracked { limit: row.get(1), count: row.get(2) })).collect();
        let names: Vec<&String> = nodes.keys().collect();
        let rows = self
            .client
            .query(&self.statements.batches, &[&self.seen.xmax, &self.seen.xip, snapshot, &names, &full])
            .await
            .map_err(DbError::postgres("count the tracked tasks"))?;
        let mut batches: Vec<Batch> = Vec::new();
        let mut refused = Refused::default();
        for row in &rows {
            let (job, xid, demand): (i64, String, (String, i64)) =
                (row.get(0), row.get(1), (row.get(2), row.get(3)));
            match row.get::<_, Option<bool>>(4) {
                // What a predecessor began to take, or to refuse, is taken or refused whole.
                Some(false) => continue,
                Some(true) => {
                    refused.push(job, xid, admit::REFUSED_BEFORE.to_owned());
                    continue;
                }
                None => {}
            }
            match batches.iter_mut().find(|b| b.job == job && b.xid == xid) {
                Some(batch) => batch.demands.push(demand),
                None => batches.push(Batch { job, xid, demands: vec![demand] }),
            }
        }
        for over in tracking::refuse(nodes, batches) {
            refused.push(over.job, over.xid, over.message);
        }
        Ok(refused)
    }

    /// Answers also the requests that are left for the next turn.
    async fn transact(&mut self, turn: &Turn) -> Result<(TurnReply, Vec<look::Request>), DbError> {
        let s = &self.statements;
        let seen = &self.seen;
        let admission = self.admission.as_ref();
        // Edges count up to the snapshot that this turn admits.
        let snapshot = admission.map_or(&seen.snapshot, |a| &a.found.mark.snapshot);

        // ---- parameters, laid out before anything is sent
        let start = (String::new(), i64::MIN);
        let cursor = admission.map_or(&start, |a| &a.cursor);
        let mut cursor_after = None;
        let empty = Vec::new();
        let poisoned = admission.map_or(&empty, |a| &a.poisoned);
        let window: [&(dyn ToSql + Sync); 3] = [&seen.xmax, &seen.xip, snapshot];
        let nothing = Refused::default();
        let refused = admission.map_or(&nothing, |a| &a.refused);
        let chunk: [&(dyn ToSql + Sync); 10] = [
            &seen.xmax,
            &seen.xip,
            snapshot,
            &cursor.0,
            &cursor.1,
            &admit::CHUNK,
            poisoned,
            &refused.jobs,
            &refused.xids,
            &refused.messages,
        ];
        let has_tasks = admission.is_some_and(|a| a.tasks_left);
        let has_jobs = admission.is_some_and(|a| !a.counted && (a.found.jobs || a.full));
        let late = admission.filter(|a| a.found.late_edges && !a.counted);
        let late_full = late.is_some_and(|a| a.full);
        let late_params: [&(dyn ToSql + Sync); 5] = [&seen.xmax, &seen.xip, snapshot, poisoned, &late_full];
        let (requests, postponed) = admission.map_or_else(Default::default, |a| {
            Requests::sort(&a.found.requests, a.tasks_left && a.found.many_tasks)
        });
        let given = settle::Given::new(&turn.settlements, |text| self.storable(text));
        let given = given.params(snapshot);
        let mut touched: Vec<i64> =
            turn.settlements.iter().map(|x| x.job.0).chain(requests.jobs.iter().copied()).collect();
        touched.sort_unstable();
        touched.dedup();
        let offers = claim::Offers::new(&turn.offers, &turn.floors);
        let windows = WindowParams::new(turn);
        let begun = claim::begun(&turn.begun);
        let known_lane = self.known_lane;

        // A turn that only settles what the records prove and claims for home need not wait for the disk: a crash that
        // loses it also ends the claimed backends, and recovery reads the records. Everything else must be durable.
        let at_home = turn.offers.iter().all(|offer| offer.site.is_none());
        let lazy = at_home
            && admission.is_none()
            && turn.settlements.iter().all(|x| matches!(x.outcome, Outcome::Done { recorded: true, .. }));
        let begin = if lazy {
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL synchronous_commit = off"
        } else {
            "BEGIN ISOLATION LEVEL REPEATABLE READ"
        };

        let Office { epoch, token, term } = self.office;
        let mut pipe = Pipeline::new(&self.client);
        pipe.batch("begin a turn", begin);
        pipe.query("check the epoch", &s.fence, &[&epoch.0, &token, &term]);
        if has_jobs {
            pipe.query("admit jobs", &s.jobs, &window);
        }
        let (mut tasks, mut late_edges, mut admit_rollup, mut new_lanes) = (None, None, None, None);
        if has_tasks {
            match admission {
                Some(a) if !a.counted && a.full => {
                    pipe.query("count all tasks", &s.totals_anew, &[snapshot]);
                }
                Some(a) if !a.counted => {
                    pipe.query("count new tasks", &s.totals, &window);
                }
                _ => {}
            }
            pipe.query("make lanes", &s.lanes, &chunk[..6]);
            tasks = Some(pipe.query("admit tasks", &s.tasks, &chunk));
            new_lanes = Some(pipe.query("read new lanes", &s.new_lanes, &[&known_lane]));
        }
        if late.is_some() {
            late_edges = Some(pipe.query("admit late dependencies", &s.late_edges, &late_params));
        }
        if admission.is_some_and(|a| !a.counted || !a.tasks_left) {
            admit_rollup = Some(pipe.query("roll up new jobs", &s.admit_rollup, &window));
        }
        let cancel_jobs = (!requests.job_cancel.is_empty())
            .then(|| pipe.query("cancel jobs", &s.cancel_jobs, &[&requests.job_cancel]));
        let cancel_tasks = (!requests.task_cancel.is_empty())
            .then(|| pipe.query("cancel tasks", &s.cancel_tasks, &[&requests.task_cancel, snapshot]));
        let retry = requests.retries().then(|| {
            pipe.query(
                "retry",
                &s.retry,
                &[&requests.job_retry, &requests.task_retry, &requests.commands, snapshot],
            )
        });
        if !requests.job_pause.is_empty() {
            pipe.query("pause jobs", &s.pause, &[&requests.job_pause]);
        }
        let resume = (!requests.job_resume.is_empty())
            .then(|| pipe.query("resume jobs", &s.resume, &[&requests.job_resume]));
        if !requests.job_delete.is_empty() {
            pipe.query("delete jobs", &s.delete, &[&requests.job_delete]);
        }
        if !requests.job_cleanup.is_empty() {
            pipe.query("clean up jobs", &s.cleanup, &[&requests.job_cleanup]);
        }
        if turn.promote {
            pipe.query("expire jobs", &s.expire, &[]);
        }
        if !turn.begun.is_empty() {
            pipe.query("show what has begun", &s.begun, &[&begun.0, &begun.1]);
        }
        let settled =
            (!turn.settlements.is_empty()).then(|| pipe.query("settle attempts", &s.settle, &given));
        let promoted = turn.promote.then(|| pipe.query("promote delayed tasks", &s.promote, &[]));
        let rolled = (!touched.is_empty()).then(|| pipe.query("roll up jobs", &s.rollup, &[&touched]));
        if !requests.ids.is_empty() {
            pipe.query("answer requests", &s.answer, &[&requests.ids]);
        }
        if !requests.nodes.is_empty() {
            let n = (&requests.nodes, &requests.drain, &requests.node_ids);
            pipe.query("drain nodes", &s.drain, &[n.0, n.1, n.2]);
            pipe.query("answer requests about nodes", &s.answer_nodes, &[n.2]);
        }
        let draining = (!requests.nodes.is_empty() || admission.is_some_and(|a| a.full && !a.counted))
            .then(|| pipe.query("read the drained nodes", &s.draining, &[]));
        let moved = (self.choices && turn.promote).then(|| {
            pipe.query("make lanes for tasks that move", &s.move_lanes, &[]);
            let moved = pipe.query("move tasks to other nodes", &s.move_tasks, &[]);
            (moved, pipe.query("read the lanes of moved tasks", &s.new_lanes, &[&known_lane]))
        });
        let claimed = (!turn.offers.is_empty()).then(|| {
            let o = &offers;
            pipe.query(
                "claim tasks",
                &s.claim,
                &[&o.lane, &o.pid, &o.start, &o.floor_rank, &o.floor_task, &o.site, &o.prefetched],
            )
        });
        let windowed = (!turn.windows.is_empty()).then(|| {
            let w = &windows;
            pipe.query("read the queues", &s.windows, &[&w.lane, &w.rank, &w.task, &w.limit])
        });
        let due = (!lazy || turn.promote).then(|| pipe.query("look for the next due task", &s.next_due, &[]));
        pipe.batch("commit a turn", "COMMIT");
        let mut answers = pipe.run().await.map_err(|e| match e {
            DbError::Deposed(_) => DbError::Deposed(self.office.epoch.0),
            other => other,
        })?;

        // ---- the answer
        let mut lanes = answers.take(new_lanes);
        lanes.extend(answers.take(moved.map(|(_, lanes)| lanes)));
        let mut reply = TurnReply {
            claimed: offers.answers(&answers.take(claimed)),
            windows: windows.answers(turn, &answers.take(windowed)),
            lanes: lanes.iter().map(lane).collect(),
            cancelling: [cancel_jobs, cancel_tasks]
                .into_iter()
                .flat_map(|step| answers.take(step))
                .map(|row| TaskId(row.get(0)))
                .collect(),
            jobs: [admit_rollup, rolled]
                .into_iter()
                .flat_map(|step| answers.take(step))
                .filter_map(|row| job_change(&row))
                .collect(),
            next_due: answers
                .take(due)
                .first()
                .map(|row| Duration::from_millis(row.get::<_, i64>(0).max(0).unsigned_abs())),
            paused: requests.job_pause.iter().map(|job| JobId(*job)).collect(),
            draining: draining.map(|step| answers.take(Some(step)).iter().map(|row| row.get(0)).collect()),
            ..TurnReply::default()
        };
        let moved = moved.map(|(tasks, _)| tasks);
        for step in [tasks, late_edges, retry, resume, settled, promoted, moved] {
            for row in answers.take(step) {
                if let Some(lane) = row.get::<_, Option<i32>>(0) {
                    reply
                        .readied
                        .push((LaneId(lane), QueueKey { rank: row.get(1), task: TaskId(row.get(2)) }));
                } else if i64::from(row.get::<_, i32>(1)) == admit::CHUNK {
                    reply.more_to_admit = true;
                    cursor_after = Some((row.get(3), row.get(2)));
                }
            }
        }
        if let (Some(cursor), Some(a)) = (cursor_after, &mut self.admission) {
            a.cursor = cursor;
        }
        self.choices |= lanes.iter().any(|row| row.get(4));
        Ok((reply, postponed))
    }

    /// What a home that is not UTF-8 cannot store is written as escapes; nothing is lost, and no row is refused.
    fn storable(&self, text: &str) -> String {
        if self.utf8 || text.is_ascii() {
            return text.to_owned();
        }
        text.chars()
            .map(|ch| if ch.is_ascii() { ch.to_string() } else { ch.escape_unicode().to_string() })
            .collect()
    }
}

fn lane(row: &Row) -> Lane {
    Lane {
        id: LaneId(row.get(0)),
        session: SessionKey { node: row.get(1), owner: row.get(2), owner_oid: row.get(5) },
        nodes: row.get(3),
    }
}

fn job_change(row: &Row) -> Option<(JobId, JobStatus)> {
    Some((JobId(row.get(0)), row.get::<_, String>(1).parse().ok()?))
}

/// The place of a kind of request in a turn.
fn stage(kind: RequestKind) -> usize {
    match kind {
        RequestKind::JobCancel => 0,
        RequestKind::TaskCancel => 1,
        RequestKind::JobRetry | RequestKind::TaskRetry => 2,
        RequestKind::JobPause => 3,
        RequestKind::JobResume => 4,
        RequestKind::JobDelete => 5,
        RequestKind::JobCleanup => 6,
        RequestKind::NodeDrain | RequestKind::NodeResume => 7,
    }
}

/// A look's requests, sorted by kind.
#[derive(Default)]
struct Requests {
    ids: Vec<i64>,
    jobs: Vec<i64>,
    job_cancel: Vec<i64>,
    task_cancel: Vec<i64>,
    job_retry: Vec<i64>,
    task_retry: Vec<i64>,
    commands: Vec<Option<String>>,
    job_pause: Vec<i64>,
    job_resume: Vec<i64>,
    job_delete: Vec<i64>,
    job_cleanup: Vec<i64>,
    nodes: Vec<String>,
    drain: Vec<bool>,
    node_ids: Vec<i64>,
}

impl Requests {
    /// Takes the requests that one turn can carry out, and leaves the rest for the next. A turn carries them out kind by
    /// kind, so a request that would overtake an earlier one of its job waits, and those behind it with it. While tasks
    /// are left to be admitted (`admitting`) requests about single tasks wait: theirs may be among them.
    fn sort(requests: &[look::Request], admitting: bool) -> (Requests, Vec<look::Request>) {
        let mut out = Requests::default();
        let mut postponed: Vec<look::Request> = Vec::new();
        let mut reached: HashMap<JobId, usize> = HashMap::new();
        for r in requests {
            if let (RequestKind::NodeDrain | RequestKind::NodeResume, Some(node)) = (r.kind, &r.argument) {
                out.node(r.id, node, r.kind == RequestKind::NodeDrain);
                continue;
            }
            let stage = stage(r.kind);
            let behind = reached.get(&r.job).is_some_and(|reached| stage < *reached);
            if behind || admitting && r.task.is_some() {
                reached.insert(r.job, usize::MAX);
                postponed.push(r.clone());
                continue;
            }
            reached.insert(r.job, stage);
            out.ids.push(r.id);
            out.jobs.push(r.job.0);
            match (r.kind, r.task) {
                (RequestKind::JobCancel, _) => out.job_cancel.push(r.job.0),
                (RequestKind::JobRetry, _) => out.job_retry.push(r.job.0),
                (RequestKind::JobPause, _) => out.job_pause.push(r.job.0),
                (RequestKind::JobResume, _) => out.job_resume.push(r.job.0),
                (RequestKind::JobDelete, _) => out.job_delete.push(r.job.0),
                (RequestKind::JobCleanup, _) => out.job_cleanup.push(r.job.0),
                (RequestKind::TaskCancel, Some(task)) => out.task_cancel.push(task.0),
                (RequestKind::TaskRetry, Some(task)) => {
                    // The last word on a task counts.
                    if let Some(i) = out.task_retry.iter().position(|t| *t == task.0) {
                        out.commands[i] = r.argument.clone().or(out.commands[i].take());
                    } else {
                        out.task_retry.push(task.0);
                        out.commands.push(r.argument.clone());
                    }
                }
                (RequestKind::NodeDrain | RequestKind::NodeResume, _) => {}
                // A row that names no task asks for nothing; it is answered all the same.
                (RequestKind::TaskCancel | RequestKind::TaskRetry, None) => {}
            }
        }
        (out, postponed)
    }

    /// The last word on a node counts; all are answered by what came of it.
    fn node(&mut self, id: i64, node: &str, drain: bool) {
        for (earlier, drained) in self.nodes.iter().zip(&mut self.drain) {
            if earlier == node {
                *drained = drain;
            }
        }
        self.nodes.push(node.to_owned());
        self.drain.push(drain);
        self.node_ids.push(id);
    }

    fn retries(&self) -> bool {
        !self.job_retry.is_empty() || !self.task_retry.is_empty()
    }
}

/// The parallel arrays of [`claim::WINDOWS`].
struct WindowParams {
    lane: Vec<i32>,
    rank: Vec<i32>,
    task: Vec<i64>,
    limit: Vec<i64>,
}

impl WindowParams {
    fn new(turn: &Turn) -> WindowParams {
        let mut p = WindowParams { lane: vec![], rank: vec![], task: vec![], limit: vec![] };
        for w in &turn.windows {
            let after = w.after.unwrap_or(claim::START);
            p.lane.push(w.lane.0);
            p.rank.push(after.rank);
            p.task.push(after.task.0);
            p.limit.push(i64::from(w.limit));
        }
        p
    }

    fn answers(&self, turn: &Turn, rows: &[Row]) -> Vec<Window> {
        let mut answers: Vec<Window> =
            turn.windows.iter().map(|w| Window { lane: w.lane, keys: Vec::new(), more: false }).collect();
        for row in rows {
            let lane = LaneId(row.get(0));
            if let Some(i) = turn.windows.iter().position(|w| w.lane == lane) {
                if answers[i].keys.len() < turn.windows[i].limit as usize {
                    answers[i].keys.push(QueueKey { rank: row.get(1), task: TaskId(row.get(2)) });
                } else {
                    answers[i].more = true;
                }
            }
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: i64, kind: RequestKind, job: i64, task: Option<i64>) -> look::Request {
        look::Request { id, kind, job: JobId(job), task: task.map(TaskId), argument: None }
    }

    #[test]
    fn a_request_never_overtakes_an_earlier_one_of_its_job() {
        use RequestKind::{JobCancel, JobPause, JobResume, JobRetry};
        let asked = [
            request(1, JobRetry, 7, None),
            request(2, JobCancel, 7, None),
            request(3, JobResume, 7, None),
            request(4, JobCancel, 8, None),
            request(5, JobPause, 8, None),
            request(6, JobResume, 8, None),
        ];
        let (now, later) = Requests::sort(&asked, false);
        assert_eq!(now.ids, [1, 4, 5, 6]);
        let (now, later) = Requests::sort(&later, false);
        assert_eq!((now.ids, later.len()), (vec![2, 3], 0));
    }

    #[test]
    fn requests_about_tasks_wait_until_all_tasks_are_admitted() {
        let asked = [
            request(1, RequestKind::TaskCancel, 7, Some(70)),
            request(2, RequestKind::JobCancel, 7, None),
            request(3, RequestKind::JobCancel, 8, None),
        ];
        let (now, later) = Requests::sort(&asked, true);
        assert_eq!((now.ids, later.len()), (vec![3], 2));
    }
}
