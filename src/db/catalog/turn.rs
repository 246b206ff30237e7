//! The turn: the leader's transaction, sent whole, COMMIT included.
//!
//! The statements of a turn do not depend on one another's answers, so they travel in one round trip. Should this
//! process stop in the middle, nothing stays open: PostgreSQL has the COMMIT already. The order inside is: fence,
//! admission, requests, settlement, promotion, roll-up, claims, windows.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::super::error::DbError;
use super::super::pipeline::Pipeline;
use super::leadership::{self, Office};
use super::look::{self, Mark};
use super::{admit, claim, request, settle};
use crate::model::{
    JobId, JobStatus, Lane, LaneId, LiveAttempt, Outcome, QueueKey, SessionKey, TaskId, Turn, TurnReply,
};

mod admission;
mod requests;
mod windows;

use admission::{Admission, Refused};
use requests::Requests;
use windows::WindowParams;

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
    windows = windows::WINDOWS,
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
