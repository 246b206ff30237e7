//! What a job would do before it is submitted: how many of its tasks can run at once, and in how many rounds.
//!
//! Used by `job plan`. The estimate plays the job in rounds in which every task takes equally long and every one goes
//! well; it knows dependencies, priorities and slots (global and per node), not how long a command takes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// As much of a task as the estimate needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlannedTask {
    /// The nodes whose slots it takes; empty: a global one only.
    pub nodes: Vec<String>,
    /// Higher first.
    pub priority: i32,
    /// Places of the tasks that come before.
    pub depends_on: Vec<usize>,
}

/// Slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// For all tasks together.
    pub global: usize,
    /// For each node that has no own limit.
    pub per_node: usize,
    /// Nodes with limits of their own.
    pub of_node: BTreeMap<String, usize>,
}

/// What comes out.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Estimate {
    /// Rounds of tasks that run at once.
    pub rounds: usize,
    /// The most tasks that run at once.
    pub most_at_once: usize,
    /// Tasks on the longest path: fewer rounds are impossible, whatever the limits.
    pub longest_path: usize,
    /// Places of the tasks in the order in which they start.
    #[serde(skip)]
    pub order: Vec<usize>,
}

/// Plays the tasks; they have no cycle (those of one, and those after it, never start and are not in `order`).
pub fn estimate(tasks: &[PlannedTask], slots: &Slots) -> Estimate {
    let mut dependants = vec![Vec::new(); tasks.len()];
    let mut waits_for = vec![0_usize; tasks.len()];
    for (task, planned) in tasks.iter().enumerate() {
        for &other in planned.depends_on.iter().filter(|&&other| other < tasks.len()) {
            dependants[other].push(task);
            waits_for[task] += 1;
        }
    }
    let lanes = lanes(tasks);
    // Ready tasks by lane: all of one lane fit or none does, so a crowd behind a full node is never walked through.
    let mut ready: Vec<BinaryHeap<(i32, Reverse<usize>)>> = vec![BinaryHeap::new(); lanes.names.len()];
    let push = |ready: &mut Vec<BinaryHeap<_>>, task: usize| {
        ready[lanes.of[task]].push((tasks[task].priority, Reverse(task)));
    };
    (0..tasks.len()).filter(|&task| waits_for[task] == 0).for_each(|task| push(&mut ready, task));
    let mut depth = vec![1_usize; tasks.len()];
    let mut out = Estimate::default();
    loop {
        let round = start_round(&mut ready, &lanes, slots);
        if round.is_empty() {
            return out;
        }
        out.rounds += 1;
        out.most_at_once = out.most_at_once.max(round.len());
        for &task in &round {
            out.longest_path = out.longest_path.max(depth[task]);
            for &dependant in &dependants[task] {
                depth[dependant] = depth[dependant].max(depth[task] + 1);
                waits_for[dependant] -= 1;
                if waits_for[dependant] == 0 {
                    push(&mut ready, dependant);
                }
            }
        }
        out.order.extend(round);
    }
}

struct Lanes<'t> {
    /// For each task its lane.
    of: Vec<usize>,
    /// For each lane its distinct nodes.
    names: Vec<Vec<&'t str>>,
}

fn lanes(tasks: &[PlannedTask]) -> Lanes<'_> {
    let mut known: HashMap<Vec<&str>, usize> = HashMap::new();
    let mut lanes = Lanes { of: Vec::with_capacity(tasks.len()), names: Vec::new() };
    for task in tasks {
        let mut nodes: Vec<&str> = task.nodes.iter().map(String::as_str).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let lane = *known.entry(nodes.clone()).or_insert(lanes.names.len());
        if lane == lanes.names.len() {
            lanes.names.push(nodes);
        }
        lanes.of.push(lane);
    }
    lanes
}

/// Takes what fits into the slots, in order of dispatch: priority, then place.
fn start_round(
    ready: &mut [BinaryHeap<(i32, Reverse<usize>)>],
    lanes: &Lanes<'_>,
    slots: &Slots,
) -> Vec<usize> {
    let mut used: HashMap<&str, usize> = HashMap::new();
    let mut heads: BinaryHeap<((i32, Reverse<usize>), usize)> =
        ready.iter().enumerate().filter_map(|(lane, heap)| Some((*heap.peek()?, lane))).collect();
    let mut round = Vec::new();
    while round.len() < slots.global
        && let Some(((_, Reverse(task)), lane)) = heads.pop()
    {
        let limit = |node: &str| slots.of_node.get(node).copied().unwrap_or(slots.per_node);
        let nodes = &lanes.names[lane];
        if nodes.iter().any(|node| used.get(node).copied().unwrap_or(0) >= limit(node)) {
            continue;
        }
        nodes.iter().for_each(|node| *used.entry(node).or_insert(0) += 1);
        round.push(task);
        ready[lane].pop();
        heads.extend(ready[lane].peek().map(|next| (*next, lane)));
    }
    round
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(nodes: &[&str], depends_on: &[usize]) -> PlannedTask {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        PlannedTask { nodes, depends_on: depends_on.to_vec(), priority: 0 }
    }

    fn slots(global: usize, per_node: usize) -> Slots {
        Slots { global, per_node, of_node: BTreeMap::from([("wide".to_owned(), 3)]) }
    }

    #[test]
    fn a_diamond_takes_three_rounds_and_two_slots() {
        let tasks = [task(&[], &[]), task(&[], &[0]), task(&[], &[0]), task(&[], &[1, 2])];
        let wide = estimate(&tasks, &slots(4, 1));
        assert_eq!((wide.rounds, wide.most_at_once, wide.longest_path), (3, 2, 3));
        assert_eq!(wide.order, [0, 1, 2, 3]);
        assert_eq!(estimate(&tasks, &slots(1, 1)).rounds, 4);
    }

    #[test]
    fn a_full_node_holds_up_its_own_tasks_only() {
        let tasks = [task(&["a"], &[]), task(&["a"], &[]), task(&["a", "b"], &[]), task(&["b"], &[])];
        let plan = estimate(&tasks, &slots(4, 1));
        assert_eq!((plan.rounds, plan.order), (3, vec![0, 3, 1, 2]));
        let wide = vec![task(&["wide"], &[]); 6];
        assert_eq!(estimate(&wide, &slots(10, 1)).rounds, 2);
    }

    #[test]
    fn priority_comes_first_and_a_cycle_never_starts() {
        let mut tasks = vec![task(&[], &[]), task(&[], &[]), task(&[], &[3]), task(&[], &[2])];
        tasks[1].priority = 5;
        assert_eq!(estimate(&tasks, &slots(1, 1)).order, [1, 0]);
    }

    #[test]
    fn a_large_job_takes_little_time() {
        let tasks: Vec<_> = (0..100_000).map(|n| task(&[if n % 2 == 0 { "a" } else { "b" }], &[])).collect();
        assert_eq!(estimate(&tasks, &slots(4, 1)).rounds, 50_000);
    }

    proptest! {
        #[test]
        fn every_task_starts_after_what_it_depends_on_and_limits_hold(
            edges in prop::collection::vec((0_usize..20, 0_usize..20), 0..40),
            nodes in prop::collection::vec(prop::sample::select(vec!["", "a", "b"]), 20),
            global in 1_usize..5,
        ) {
            let mut tasks: Vec<_> =
                nodes.iter().map(|node| task(if node.is_empty() { &[] } else { std::slice::from_ref(node) }, &[])).collect();
            for (a, b) in edges {
                if a != b {
                    tasks[a.max(b)].depends_on.push(a.min(b));
                }
            }
            let plan = estimate(&tasks, &slots(global, 1));
            prop_assert_eq!(plan.order.len(), 20);
            prop_assert!(plan.most_at_once <= global);
            prop_assert!(plan.rounds >= plan.longest_path && plan.rounds * global >= 20);
            let place = |task: usize| plan.order.iter().position(|&t| t == task);
            for (at, task) in tasks.iter().enumerate() {
                for &other in &task.depends_on {
                    prop_assert!(place(other) < place(at));
                }
            }
        }
    }
}
