//! Looks, and the admission that follows from one: what is new, in chunks over as many turns as it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::types::ToSql;

use super::super::super::error::DbError;
use super::super::admit;
use super::super::look::{self, Found, Mark};
use super::Catalog;
use crate::model::graph;
use crate::model::tracking::{self, Batch, Tracked};

/// What a look saw of delays and deadlines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) due: bool,
    pub(super) next_due: Option<Duration>,
}

/// A look whose admission is not finished.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) found: Found,
    /// The last task admitted: its transaction and id.
    pub(super) cursor: (String, i64),
    /// Nothing was known before: totals and edges are counted anew.
    pub(super) full: bool,
    /// Totals are raised with the first chunk.
    pub(super) counted: bool,
    /// Tasks may be left to admit.
    pub(super) tasks_left: bool,
    /// Tasks whose edges close a cycle.
    pub(super) poisoned: Vec<i64>,
    /// What exceeds a tracked limit.
    pub(super) refused: Refused,
}

impl Admission {
    /// May it take more than one chunk?
    pub(super) fn is_large(&self) -> bool {
        self.full || self.found.many_tasks
    }
}

/// The parallel arrays of [`admit::TASKS`] for batches that exceed a tracked limit.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) jobs: Vec<i64>,
    pub(super) xids: Vec<String>,
    pub(super) messages: Vec<String>,
}

impl Refused {
    /// A batch is refused once, with its first reason.
    pub(super) fn push(&mut self, job: i64, xid: String, message: String) {
        if !self.jobs.iter().zip(&self.xids).any(|(j, x)| *j == job && *x == xid) {
            self.jobs.push(job);
            self.xids.push(xid);
            self.messages.push(message);
        }
    }
}

impl Catalog {
    /// What is new, and whether its edges close a cycle.
    pub(super) async fn look(&mut self) -> Result<Due, DbError> {
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
    pub(super) async fn hear_requests(&mut self) -> Result<(), DbError> {
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
    pub(super) async fn over_limit(&self, snapshot: &String, full: bool) -> Result<Refused, DbError> {
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
}
