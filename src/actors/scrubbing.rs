//! Scratch schemas: each is recorded before an attempt uses it, and dropped when its job has ended.
//!
//! What is to be dropped stands in the catalog, so that a new leader goes on where the last one stopped. Each schema is
//! dropped in batches, in a session of its owner that takes no slot, and forgotten when it is seen gone. One that
//! cannot be dropped (its node is down, somebody holds a lock, its owner cannot log in) is tried again for as long as
//! it takes, and keeps no other waiting; the view `yardmaster.scratch` says why.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_postgres::Client;
use uuid::Uuid;

use super::job_folders;
use super::resolving::{Desk, node_of};
use super::runner::{OpenFailure, SessionSource};
use crate::db::catalog::leadership::Office;
use crate::db::catalog::scratch::{self, Doomed};
use crate::db::{AttemptEnd, AttemptName, DbError, Node, Nodes, Order, scratch as schemas};
use crate::messages::UseScratch;
use crate::model::{JobId, SessionKey, TaskId};

/// How often it is looked for what is to be dropped.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often databases are searched for schemas that nobody knows.
const SEARCH_EVERY: Duration = Duration::from_secs(60);
/// Schemas dropped at once in one database: each is a session more.
const PER_DATABASE: usize = 2;
/// How long one batch may take: more than its own statement timeout.
const BATCH_LIMIT: Duration = Duration::from_secs(70);

/// Records the use of a scratch schema and names it; or says why not.
pub(super) async fn begin_use(desk: Option<Desk>, ask: UseScratch) -> Result<String, String> {
    let Some(Desk { control, office }) = desk else { return Err("no office is held".to_owned()) };
    let attempt = (ask.task.0, ask.attempt);
    let named = scratch::begin_use(&control, office, attempt, &ask.node, ask.site).await;
    named.map_err(|e| e.to_string())?.ok_or_else(|| "the attempt is over".to_owned())
}

/// Drops scratch schemas as long as the term lasts.
pub(super) struct Scrubber {
    /// The office's own connection to home.
    pub(super) home: Rc<Client>,
    /// The office.
    pub(super) office: Office,
    /// Where schemas are.
    pub(super) nodes: Rc<Nodes>,
    /// Opens the owners' sessions.
    pub(super) sessions: Rc<dyn SessionSource>,
    /// Where the folders of jobs are.
    pub(super) data_dir: PathBuf,
}

/// A node, its site, and the schemas there with their owners.
type Found = (Rc<Node>, Option<Uuid>, Vec<(String, String)>);

/// What came of a try.
enum Tried {
    Gone,
    Remains(String),
    /// Nothing can be said, or written: the office, or home, is lost.
    Unknown,
}

impl Scrubber {
    /// Never ends: the term's own connections tell when it is over.
    pub(super) async fn scrub(self) -> Infallible {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut under_way: BTreeMap<i64, Option<Uuid>> = BTreeMap::new();
        let mut drops = FuturesUnordered::new();
        let mut searches = FuturesUnordered::new();
        let mut searched: Option<Instant> = None;
        let mut removals = FuturesUnordered::new();
        loop {
            tokio::select! {
                _ = look.tick() => {
                    if searches.is_empty() && searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
                        searched = Some(Instant::now());
                        searches.push(self.search());
                    }
                    if removals.is_empty() {
                        removals.push(self.remove_folders());
                    }
                    for doomed in self.due(&under_way).await {
                        if under_way.values().filter(|site| **site == doomed.site).count() < PER_DATABASE {
                            under_way.insert(doomed.id, doomed.site);
                            drops.push(self.try_one(doomed));
                        }
                    }
                }
                Some(id) = drops.next() => {
                    under_way.remove(&id);
                }
                Some(()) = searches.next() => {}
                Some(()) = removals.next() => {}
            }
        }
    }

    async fn due(&self, under_way: &BTreeMap<i64, Option<Uuid>>) -> Vec<Doomed> {
        let ids: Vec<i64> = under_way.keys().copied().collect();
        scratch::due(&self.home, self.office, &ids).await.unwrap_or_else(|e| {
            tracing::debug!("{e}");
            Vec::new()
        })
    }

    /// Removes the folders of output files whose time is over. What an attempt still writes there it loses with its job.
    async fn remove_folders(&self) {
        let removing = async {
            let jobs = job_folders::all(&self.data_dir).await.map_err(|e| e.to_string())?;
            if jobs.is_empty() {
                return Ok(());
            }
            let home = scratch::home(&self.home).await.map_err(|e| e.to_string())?;
            if !job_folders::are_of(&self.data_dir, home).await.map_err(|e| e.to_string())? {
                return Ok(());
            }
            for job in scratch::folders_to_remove(&self.home, &jobs).await.map_err(|e| e.to_string())? {
                job_folders::remove(&self.data_dir, job).await.map_err(|e| e.to_string())?;
                tracing::debug!(job, "folder of output files removed");
            }
            Ok::<(), String>(())
        };
        if let Err(e) = removing.await {
            tracing::debug!("folders of output files: {e}");
        }
    }

    /// Tries to drop a schema and writes down what came of it.
    async fn try_one(&self, doomed: Doomed) -> i64 {
        let reason = match self.drop_schema(&doomed).await {
            Tried::Gone => None,
            Tried::Remains(reason) => Some(reason),
            Tried::Unknown => return doomed.id,
        };
        match &reason {
            None => tracing::debug!(job = doomed.job, schema = doomed.schema, "scratch schema dropped"),
            Some(reason) if Some(reason) != doomed.reason.as_ref() => tracing::warn!(
                job = doomed.job,
                node = doomed.node,
                schema = doomed.schema,
                "a scratch schema remains for now: {reason}"
            ),
            Some(_) => {}
        }
        if let Err(e) = scratch::tried(&self.home, self.office, doomed.id, reason.as_deref()).await {
            tracing::debug!("{e}");
        }
        doomed.id
    }

    async fn drop_schema(&self, doomed: &Doomed) -> Tried {
        let remains = |e: DbError| match e {
            DbError::Deposed(_) => Tried::Unknown,
            e => Tried::Remains(e.to_string()),
        };
        let Some(batch) = schemas::batch(&doomed.schema) else {
            return Tried::Remains(format!("\"{}\" is not the name of a scratch schema", doomed.schema));
        };
        let node = match node_of(&self.nodes, &self.home, &doomed.node, doomed.site).await {
            Ok(node) => node,
            Err(e) => return remains(e),
        };
        loop {
            match schemas::exists(&node, &doomed.schema).await {
                Ok(false) => return Tried::Gone,
                Ok(true) => {}
                Err(e) => return remains(e),
            }
            if let Err(reason) = self.batches(&node, doomed, &batch).await {
                return Tried::Remains(reason);
            }
        }
    }

    /// Runs batches in one session until the schema is gone.
    async fn batches(&self, node: &Node, doomed: &Doomed, batch: &str) -> Result<(), String> {
        let key = SessionKey {
            node: node.name().to_owned(),
            owner: doomed.owner.clone(),
            owner_oid: doomed.owner_oid,
        };
        let mut session = self.sessions.open(key).await.map_err(|e| match e {
            OpenFailure::Refused { message, .. } | OpenFailure::Later { message, .. } => message,
        })?;
        let name = AttemptName {
            job: JobId(doomed.job),
            task: TaskId(0),
            attempt: 0,
            task_key: Uuid::nil(),
            series: 0,
        };
        let result = loop {
            let end = timeout(BATCH_LIMIT, session.run_plain(Order { name, command: batch })).await;
            match end {
                Ok(AttemptEnd::Succeeded { .. }) => {}
                Ok(AttemptEnd::Failed { message, .. }) => break Err(last_words(&message)),
                Ok(AttemptEnd::NotSent { message } | AttemptEnd::Doubt { message, .. }) => {
                    break Err(message);
                }
                Ok(AttemptEnd::Committed { .. }) => break Ok(()),
                Err(_) => break Err(format!("no answer within {BATCH_LIMIT:?}")),
            }
            match schemas::exists(node, &doomed.schema).await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(e) => break Err(e.to_string()),
            }
        };
        session.close().await;
        result
    }

    /// Looks in all databases for schemas of ours of which the catalog knows nothing.
    async fn search(&self) {
        let Ok(prefix) = scratch::prefix(&self.home).await else { return };
        let home = Rc::new(Node::home(Rc::clone(&self.home)));
        let mut seen = BTreeSet::new();
        let searches: Vec<_> =
            self.nodes.all().into_iter().chain([home]).map(|node| self.search_one(node, &prefix)).collect();
        for (node, site, found) in futures::future::join_all(searches).await.into_iter().flatten() {
            if found.is_empty() || !seen.insert(site) {
                continue;
            }
            match scratch::adopt(&self.home, self.office, node.name(), site, &found).await {
                Ok(0) => {}
                Ok(n) => tracing::warn!(
                    node = node.name(),
                    "{n} scratch schemas of which nothing is known are dropped"
                ),
                Err(e) => tracing::debug!("{e}"),
            }
        }
    }

    /// `None` if it cannot be asked.
    async fn search_one(&self, node: Rc<Node>, prefix: &str) -> Option<Found> {
        let site = node.site().await.ok()?.map(|site| site.id);
        let found = schemas::found(&node, prefix).await.ok()?;
        Some((node, site, found))
    }
}

/// Of a transcript, the error.
fn last_words(message: &str) -> String {
    let error = message.rfind("ERROR: ").map_or(message, |at| &message[at..]);
    error.chars().take(1000).collect()
}
