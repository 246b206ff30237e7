//! A job's graph arranged for drawing: tasks in layers, and in an order within each layer that crosses few lines.
//!
//! Used by `job plan --svg` and by the page. Layers are those of [`graph::layout`] (longest path). The order within a
//! layer is found by sweeps, down and up in turn: each task moves to the mean place of its neighbours in the layers
//! already swept (its barycentre). Of all sweeps the one with the fewest crossings is kept.
//!
//! The answer depends on the numbers and edges given, not on the order of the edges. Nothing recurses. A sweep costs
//! `O(V + E)` and the sorting of the layers.

use std::collections::BTreeMap;

use super::graph;

/// Sweeps, half of them down. More do not help noticeably.
const SWEEPS: usize = 8;
/// Beyond so many edges a drawing is a carpet, and only the first arrangement is made.
const MAX_SWEPT_EDGES: usize = 200_000;

/// Tasks by layer; tasks are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    /// `rows[layer]` has the tasks of a layer in their order; every task stands in exactly one, no row is empty.
    pub rows: Vec<Vec<usize>>,
    /// For each task its layer and its place in it, from 0.
    pub places: Vec<(usize, usize)>,
}

/// Arranges `count` tasks. An edge is `(task, depends_on)`: the task stands in a later layer. Edges that name no task
/// are left out, as are those that close a cycle (they are refused at admission, but can be seen).
pub fn arrange(count: usize, edges: &[(usize, usize)]) -> Layers {
    let (layer, edges) = layer_of_each(count, edges);
    let mut rows = vec![Vec::new(); layer.iter().max().map_or(0, |last| last + 1)];
    for (task, &layer) in layer.iter().enumerate() {
        rows[layer].push(task);
    }
    let mut current = Layers { places: vec![(0, 0); count], rows };
    (0..current.rows.len()).for_each(|row| current.renumber(row));
    if edges.len() > MAX_SWEPT_EDGES {
        return current;
    }
    let (above, below) = neighbours(count, &edges);
    let mut fewest = crossings(&current, &edges);
    let mut best = current.clone();
    for sweep in 0..SWEEPS {
        if fewest == 0 {
            break;
        }
        if sweep % 2 == 0 {
            (0..current.rows.len()).for_each(|row| current.settle(row, &above));
        } else {
            (0..current.rows.len()).rev().for_each(|row| current.settle(row, &below));
        }
        let crossed = crossings(&current, &edges);
        if crossed < fewest {
            fewest = crossed;
            best = current.clone();
        }
    }
    best
}

impl Layers {
    /// The most tasks in one layer.
    pub fn width(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn renumber(&mut self, row: usize) {
        for (place, &task) in self.rows[row].iter().enumerate() {
            self.places[task] = (row, place);
        }
    }

    /// Where a task stands in its layer, as a share of the layer's width: layers of any sizes compare.
    fn share(&self, task: usize) -> f64 {
        let (row, place) = self.places[task];
        (place as f64 + 0.5) / self.rows[row].len() as f64
    }

    /// Sorts a row by the mean place of each task's neighbours; a task without any keeps to where it is.
    fn settle(&mut self, row: usize, neighbours: &[Vec<usize>]) {
        let wish = |task: usize| match neighbours[task].as_slice() {
            [] => self.share(task),
            some => some.iter().map(|&other| self.share(other)).sum::<f64>() / some.len() as f64,
        };
        let mut wishes: Vec<(f64, usize)> = self.rows[row].iter().map(|&task| (wish(task), task)).collect();
        // Stable: equal wishes keep the order that earlier sweeps found.
        wishes.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.rows[row] = wishes.into_iter().map(|(_, task)| task).collect();
        self.renumber(row);
    }
}

/// Counts the pairs of lines that cross, among lines between the same two layers.
pub fn crossings(layers: &Layers, edges: &[(usize, usize)]) -> usize {
    let mut bundles: BTreeMap<(usize, usize), Vec<(usize, usize)>> = BTreeMap::new();
    for &(task, depends_on) in edges {
        let (Some(&(to, end)), Some(&(from, start))) =
            (layers.places.get(task), layers.places.get(depends_on))
        else {
            continue;
        };
        if from < to {
            bundles.entry((from, to)).or_default().push((start, end));
        }
    }
    bundles
        .into_iter()
        .map(|((_, to), mut lines)| {
            lines.sort_unstable();
            inversions(lines.into_iter().map(|(_, end)| end), layers.rows[to].len())
        })
        .sum()
}

/// Counts the pairs of values below `bound` that stand in falling order, with a Fenwick tree.
fn inversions(values: impl Iterator<Item = usize>, bound: usize) -> usize {
    let mut seen = vec![0_usize; bound + 1];
    let mut inversions = 0;
    for (n, value) in values.enumerate() {
        let (mut at, mut not_above) = (value + 1, 0);
        while at > 0 {
            not_above += seen[at];
            at &= at - 1;
        }
        inversions += n - not_above;
        at = value + 1;
        while at <= bound {
            seen[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    inversions
}

/// The layer of each task, and the edges that remain, sorted and each once.
fn layer_of_each(count: usize, edges: &[(usize, usize)]) -> (Vec<usize>, Vec<(usize, usize)>) {
    let is_inside = |edge: &(usize, usize)| edge.0 < count && edge.1 < count;
    let mut edges: Vec<(usize, usize)> = edges.iter().copied().filter(is_inside).collect();
    edges.sort_unstable();
    edges.dedup();
    if let Some(layout) = graph::layout(count, &edges) {
        return (layout.layer, edges);
    }
    let id = |place: usize| i64::try_from(place).unwrap_or(i64::MAX);
    let by_id: Vec<(i64, i64)> = edges.iter().map(|&(a, b)| (id(a), id(b))).collect();
    let closing: std::collections::BTreeSet<_> = graph::closing_edges(&by_id).into_iter().collect();
    edges.retain(|&(a, b)| !closing.contains(&(id(a), id(b))));
    let layer = graph::layout(count, &edges).map_or_else(|| vec![0; count], |layout| layout.layer);
    (layer, edges)
}

/// For each task what it depends on, and what depends on it.
fn neighbours(count: usize, edges: &[(usize, usize)]) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let (mut above, mut below) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for &(task, depends_on) in edges {
        above[task].push(depends_on);
        below[depends_on].push(task);
    }
    (above, below)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_has_no_layers() {
        assert_eq!(arrange(0, &[]), Layers { rows: vec![], places: vec![] });
        assert_eq!(arrange(2, &[(7, 0), (1, 9)]).rows, [[0, 1]]);
    }

    #[test]
    fn a_diamond_has_three_layers() {
        assert_eq!(
            arrange(4, &[(1, 0), (2, 0), (3, 1), (3, 2)]).rows,
            [[0].as_slice(), [1, 2].as_slice(), [3].as_slice()]
        );
    }

    #[test]
    fn crossed_chains_are_uncrossed() {
        // 0 ← 5, 1 ← 4, 2 ← 3: drawn by number, every pair of lines crosses.
        let edges = [(5, 0), (4, 1), (3, 2)];
        let layers = arrange(6, &edges);
        assert_eq!(crossings(&layers, &edges), 0);
        assert_eq!(layers.rows, [[0, 1, 2], [5, 4, 3]]);
    }

    #[test]
    fn crossings_are_counted() {
        let by_number = |count| arrange(count, &[]);
        assert_eq!(crossings(&by_number(4), &[(3, 0), (2, 1)]), 0, "one layer has no lines");
        let two = Layers {
            rows: vec![vec![0, 1, 2], vec![3, 4, 5]],
            places: vec![(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
        };
        assert_eq!(crossings(&two, &[(5, 0), (4, 1), (3, 2)]), 3);
        assert_eq!(crossings(&two, &[(3, 0), (4, 0), (4, 1), (5, 2)]), 0, "lines that meet do not cross");
    }

    #[test]
    fn a_cycle_is_drawn_without_the_edge_that_closes_it() {
        assert_eq!(arrange(3, &[(0, 1), (1, 2), (2, 0)]).rows, [[2], [1], [0]]);
        assert_eq!(arrange(1, &[(0, 0)]).rows, [[0]]);
    }

    #[test]
    fn a_long_chain_and_a_wide_fan_need_no_stack_and_little_time() {
        let chain: Vec<_> = (1..100_000).map(|task| (task, task - 1)).collect();
        assert_eq!(arrange(100_000, &chain).rows.len(), 100_000);
        let fan: Vec<_> = (1..100_000).map(|task| (task, 0)).collect();
        assert_eq!(arrange(100_000, &fan).width(), 99_999);
    }

    fn edges() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0_usize..15, 0_usize..15), 0..40)
    }

    proptest! {
        #[test]
        fn every_task_stands_in_one_place_below_all_it_depends_on(edges in edges()) {
            let layers = arrange(15, &edges);
            let mut all: Vec<usize> = layers.rows.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..15).collect::<Vec<_>>());
            prop_assert!(layers.rows.iter().all(|row| !row.is_empty()));
            for (row, tasks) in layers.rows.iter().enumerate() {
                for (place, &task) in tasks.iter().enumerate() {
                    prop_assert_eq!(layers.places[task], (row, place));
                }
            }
            let (_, kept) = layer_of_each(15, &edges);
            for (task, depends_on) in kept {
                prop_assert!(layers.places[depends_on].0 < layers.places[task].0);
            }
        }

        #[test]
        fn the_sweeps_never_make_it_worse_and_the_order_of_edges_is_nothing(mut edges in edges()) {
            let layers = arrange(15, &edges);
            let mut plain = layers.clone();
            for row in 0..plain.rows.len() {
                plain.rows[row].sort_unstable();
                plain.renumber(row);
            }
            let (_, kept) = layer_of_each(15, &edges);
            prop_assert!(crossings(&layers, &kept) <= crossings(&plain, &kept));
            edges.reverse();
            prop_assert_eq!(layers, arrange(15, &edges));
        }
    }
}
