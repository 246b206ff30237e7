//! The requests of a look, sorted for one turn.

use std::collections::HashMap;

use super::super::look::{self, RequestKind};
use crate::model::JobId;

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
pub(super) struct Requests {
    pub(super) ids: Vec<i64>,
    pub(super) jobs: Vec<i64>,
    pub(super) job_cancel: Vec<i64>,
    pub(super) task_cancel: Vec<i64>,
    pub(super) job_retry: Vec<i64>,
    pub(super) task_retry: Vec<i64>,
    pub(super) commands: Vec<Option<String>>,
    pub(super) job_pause: Vec<i64>,
    pub(super) job_resume: Vec<i64>,
    pub(super) job_delete: Vec<i64>,
    pub(super) job_cleanup: Vec<i64>,
    pub(super) nodes: Vec<String>,
    pub(super) drain: Vec<bool>,
    pub(super) node_ids: Vec<i64>,
}

impl Requests {
    /// Takes the requests that one turn can carry out, and leaves the rest for the next. A turn carries them out kind by
    /// kind, so a request that would overtake an earlier one of its job waits, and those behind it with it. While tasks
    /// are left to be admitted (`admitting`) requests about single tasks wait: theirs may be among them.
    pub(super) fn sort(requests: &[look::Request], admitting: bool) -> (Requests, Vec<look::Request>) {
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

    pub(super) fn retries(&self) -> bool {
        !self.job_retry.is_empty() || !self.task_retry.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TaskId;

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
