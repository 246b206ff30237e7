//! Tracked limits: how many tasks that have not ended may target a node.

use std::collections::BTreeMap;

/// A node with a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tracked {
    /// `max_tracked_tasks`.
    pub limit: i64,
    /// Tasks that have not ended and may run there.
    pub count: i64,
}

/// The tasks of one job that came with one transaction: taken together, or refused together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The job.
    pub job: i64,
    /// The transaction.
    pub xid: String,
    /// How many of them may run on which node.
    pub demands: Vec<(String, i64)>,
}

/// A batch that does not fit, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The job.
    pub job: i64,
    /// The transaction.
    pub xid: String,
    /// For its tasks' messages.
    pub message: String,
}

/// Takes the batches in their order, each if all its nodes have room for it, and says which do not fit. What was taken
/// counts for those behind it.
pub fn refuse(mut nodes: BTreeMap<String, Tracked>, batches: Vec<Batch>) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    for Batch { job, xid, demands } in batches {
        let over = |(name, n): &&(String, i64)| {
            nodes.get(name).is_some_and(|t| t.count.saturating_add(*n) > t.limit)
        };
        if let Some((name, n)) = demands.iter().find(over) {
            let message = nodes.get(name).map_or_else(String::new, |t| message(name, t, *n));
            refusals.push(Refusal { job, xid, message });
            continue;
        }
        for (name, n) in demands {
            if let Some(tracked) = nodes.get_mut(&name) {
                tracked.count += n;
            }
        }
    }
    refusals
}

fn message(node: &str, tracked: &Tracked, n: i64) -> String {
    format!(
        "ERROR: node {node} has {} of at most {} tracked tasks: {n} more are refused, with all that came with them\n\
         HINT: Submit them again when others have ended, or raise max_tracked_tasks of [nodes.{node}] in Settings.toml.",
        tracked.count, tracked.limit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(job: i64, demands: &[(&str, i64)]) -> Batch {
        Batch {
            job,
            xid: "7".to_owned(),
            demands: demands.iter().map(|(n, k)| ((*n).to_owned(), *k)).collect(),
        }
    }

    fn refused(batches: &[Batch]) -> Vec<i64> {
        let nodes = [("n1", 10, 4), ("n2", 3, 3)];
        let nodes = nodes.map(|(name, limit, count)| (name.to_owned(), Tracked { limit, count }));
        refuse(nodes.into(), batches.to_vec()).into_iter().map(|r| r.job).collect()
    }

    #[test]
    fn a_batch_is_taken_or_refused_whole_and_what_is_taken_counts() {
        assert_eq!(refused(&[batch(1, &[("n1", 6)])]), [0; 0]);
        assert_eq!(refused(&[batch(1, &[("n1", 7)])]), [1]);
        assert_eq!(refused(&[batch(1, &[("n1", 4)]), batch(2, &[("n1", 3)]), batch(3, &[("n1", 2)])]), [2]);
        // One full node refuses all of it, and it then burdens no other.
        assert_eq!(refused(&[batch(1, &[("n1", 6), ("n2", 1)]), batch(2, &[("n1", 6)])]), [1]);
        assert_eq!(refused(&[batch(1, &[("elsewhere", 1000)])]), [0; 0]);
    }
}
