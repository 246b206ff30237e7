//! Dependencies between the tasks of one job: which edges close a cycle, and in which order and layers tasks
//! come.
//!
//! Used at admission (ids from the catalog) and by job files (places in the file). Iterative: a chain of any
//! length is safe on any stack. An edge is `(task, depends_on)`; the task waits for the other.
//!
//! "Closing" is decided by one depth-first walk that starts at the smallest task and follows dependencies in
//! ascending order, so the answer depends on the set of edges only, never on the order in which rows arrive.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Finds the dependants of the edges that close a cycle, ascending, each once. Without those tasks' closing
/// edges (and so without those tasks) the rest has no cycle; empty if and only if there is none at all.
pub fn cycles(edges: &[(i64, i64)]) -> Vec<i64> {
    let dependants: BTreeSet<i64> = closing_edges(edges).into_iter().map(|(task, _)| task).collect();
    dependants.into_iter().collect()
}

/// Finds the edges that close a cycle, in the order the walk meets them, each once.
pub fn closing_edges(edges: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut closing = Vec::new();
    Graph::new(edges).walk(|_, edge| closing.push(edge));
    closing
}

/// Finds up to `limit` cycles, one for each closing edge: `[a, b, c]` says that a waits for b, b for c and c
/// for a.
pub fn cycle_paths(edges: &[(i64, i64)], limit: usize) -> Vec<Vec<i64>> {
    let mut paths: Vec<Vec<i64>> = Vec::new();
    Graph::new(edges).walk(|path, (_, depends_on)| {
        if paths.len() < limit {
            let entry = path.iter().position(|&task| task == depends_on).unwrap_or(0);
            paths.push(path[entry..].to_vec());
        }
    });
    paths
}

/// Where the tasks of a job come; tasks are numbered by their places in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Every task once, dependencies first; a file that is in such an order already keeps it.
    pub order: Vec<usize>,
    /// For each task by its place: 0 without dependencies, else one more than the highest layer among its
    /// dependencies.
    pub layer: Vec<usize>,
}

/// Lays out `count` tasks; `None` if there is a cycle. Edges that name a task outside `0..count` are left
/// out. Takes time in proportion to the edges, and to `count log count`.
pub fn layout(count: usize, edges: &[(usize, usize)]) -> Option<Layout> {
    let mut dependants = vec![Vec::new(); count];
    let mut waits_for = vec![0_usize; count];
    for &(task, depends_on) in edges.iter().filter(|(task, depends_on)| *task < count && *depends_on < count)
    {
        dependants[depends_on].push(task);
        waits_for[task] += 1;
    }
    let mut ready: BinaryHeap<_> = (0..count).filter(|&task| waits_for[task] == 0).map(Reverse).collect();
    let mut layout = Layout { order: Vec::with_capacity(count), layer: vec![0; count] };
    while let Some(Reverse(done)) = ready.pop() {
        layout.order.push(done);
        for &task in &dependants[done] {
            layout.layer[task] = layout.layer[task].max(layout.layer[done] + 1);
            waits_for[task] -= 1;
            if waits_for[task] == 0 {
                ready.push(Reverse(task));
            }
        }
    }
    (layout.order.len() == count).then_some(layout)
}

/// Sorted edges and tasks. Sorting costs `E log E`; the walk is linear.
struct Graph {
    tasks: Vec<i64>,
    /// Distinct edges by task, then by dependency.
    edges: Vec<(i64, i64)>,
    /// The edges of `tasks[n]` are `edges[first[n]..first[n + 1]]`.
    first: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Not,
    OnPath,
    Done,
}

impl Graph {
    fn new(edges: &[(i64, i64)]) -> Self {
        let mut edges = edges.to_vec();
        edges.sort_unstable();
        edges.dedup();
        let mut tasks: Vec<i64> = edges.iter().flat_map(|&(task, depends_on)| [task, depends_on]).collect();
        tasks.sort_unstable();
        tasks.dedup();
        let mut first: Vec<usize> =
            tasks.iter().map(|&task| edges.partition_point(|&(dependant, _)| dependant < task)).collect();
        first.push(edges.len());
        Graph { tasks, edges, first }
    }

    /// Walks all tasks depth first and calls `on_closing(path, edge)` for each edge that leads back onto the
    /// path.
    fn walk(&self, mut on_closing: impl FnMut(&[i64], (i64, i64))) {
        let targets: Vec<usize> = self
            .edges
            .iter()
            .filter_map(|(_, depends_on)| self.tasks.binary_search(depends_on).ok())
            .collect();
        let mut visits = vec![Visit::Not; self.tasks.len()];
        let mut next_edge = self.first.clone();
        // `path` and `places` are one stack: ids for the caller, places for us.
        let (mut path, mut places) = (Vec::new(), Vec::new());
        for root in 0..self.tasks.len() {
            if visits[root] != Visit::Not {
                continue;
            }
            visits[root] = Visit::OnPath;
            path.push(self.tasks[root]);
            places.push(root);
            while let Some(&place) = places.last() {
                let edge = next_edge[place];
                if edge == self.first[place + 1] {
                    visits[place] = Visit::Done;
                    path.pop();
                    places.pop();
                    continue;
                }
                next_edge[place] += 1;
                let target = targets[edge];
                match visits[target] {
                    Visit::Not => {
                        visits[target] = Visit::OnPath;
                        path.push(self.tasks[target]);
                        places.push(target);
                    }
                    Visit::OnPath => on_closing(&path, self.edges[edge]),
                    Visit::Done => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_edges_have_no_cycle() {
        assert!(cycles(&[]).is_empty());
    }

    #[test]
    fn a_diamond_has_no_cycle() {
        assert!(cycles(&[(2, 1), (3, 1), (4, 2), (4, 3)]).is_empty());
    }

    #[test]
    fn a_self_dependency_is_a_cycle() {
        assert_eq!(cycles(&[(7, 7), (8, 7)]), [7]);
        assert_eq!(cycle_paths(&[(7, 7)], 9), [[7]]);
    }

    #[test]
    fn the_dependant_of_the_closing_edge_is_named_whatever_the_order_of_rows() {
        assert_eq!(cycles(&[(1, 2), (2, 3), (3, 1)]), [3]);
        assert_eq!(cycles(&[(3, 1), (2, 3), (1, 2)]), [3]);
        assert_eq!(cycle_paths(&[(3, 1), (2, 3), (1, 2)], 9), [[1, 2, 3]]);
    }

    #[test]
    fn two_cycles_name_two_dependants() {
        assert_eq!(cycles(&[(1, 2), (2, 1), (11, 10), (10, 11), (5, 1)]), [2, 11]);
    }

    #[test]
    fn the_number_of_paths_is_bounded() {
        assert_eq!(cycle_paths(&[(1, 1), (2, 2), (3, 3)], 2), [[1], [2]]);
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let chain: Vec<(i64, i64)> = (0..200_000).map(|n| (n, n + 1)).collect();
        assert!(cycles(&chain).is_empty());
        let ring: Vec<(i64, i64)> = chain.into_iter().chain([(200_000, 0)]).collect();
        assert_eq!(cycles(&ring), [200_000]);
    }

    #[test]
    fn a_file_in_order_keeps_its_order() {
        let layout = layout(4, &[(1, 0), (3, 0), (3, 2)]).expect("no cycle");
        assert_eq!(layout, Layout { order: vec![0, 1, 2, 3], layer: vec![0, 1, 0, 1] });
    }

    #[test]
    fn a_dependency_written_below_comes_first() {
        let layout = layout(3, &[(0, 2)]).expect("no cycle");
        assert_eq!(layout, Layout { order: vec![1, 2, 0], layer: vec![1, 0, 0] });
    }

    #[test]
    fn a_cycle_has_no_layout() {
        assert_eq!(layout(3, &[(0, 1), (1, 0)]), None);
    }

    fn edges() -> impl Strategy<Value = Vec<(i64, i64)>> {
        prop::collection::vec((0_i64..12, 0_i64..12), 0..40)
    }

    /// Has a cycle or not, by the other algorithm (Kahn's).
    fn is_acyclic(edges: &[(i64, i64)]) -> bool {
        let edges: Vec<(usize, usize)> = edges.iter().map(|&(a, b)| (a as usize, b as usize)).collect();
        layout(12, &edges).is_some()
    }

    proptest! {
        #[test]
        fn nothing_is_refused_exactly_when_there_is_no_cycle(edges in edges()) {
            prop_assert_eq!(cycles(&edges).is_empty(), is_acyclic(&edges));
        }

        #[test]
        fn without_the_closing_edges_there_is_no_cycle(edges in edges()) {
            let closing = closing_edges(&edges);
            let rest: Vec<_> = edges.into_iter().filter(|edge| !closing.contains(edge)).collect();
            prop_assert!(is_acyclic(&rest));
        }

        #[test]
        fn without_the_refused_tasks_there_is_no_cycle(edges in edges()) {
            let refused = cycles(&edges);
            let rest: Vec<_> = edges.into_iter().filter(|(task, _)| !refused.contains(task)).collect();
            prop_assert!(is_acyclic(&rest));
        }

        #[test]
        fn the_answer_does_not_depend_on_the_order_of_rows(mut edges in edges()) {
            let before = closing_edges(&edges);
            edges.reverse();
            prop_assert_eq!(before, closing_edges(&edges));
        }

        #[test]
        fn every_path_is_a_cycle(edges in edges()) {
            for path in cycle_paths(&edges, usize::MAX) {
                for (at, task) in path.iter().enumerate() {
                    prop_assert!(edges.contains(&(*task, path[(at + 1) % path.len()])));
                }
            }
        }

        #[test]
        fn a_layout_has_dependencies_first(edges in edges()) {
            let closing = closing_edges(&edges);
            let edges: Vec<(usize, usize)> =
                edges.iter().filter(|edge| !closing.contains(edge)).map(|&(a, b)| (a as usize, b as usize)).collect();
            let layout = layout(12, &edges).expect("no cycle is left");
            let place = |task: usize| layout.order.iter().position(|&t| t == task);
            for (task, depends_on) in edges {
                prop_assert!(place(depends_on) < place(task));
                prop_assert!(layout.layer[depends_on] < layout.layer[task]);
            }
        }
    }
}
