//! Where the tasks of a job stand in a drawing: layers from left to right, few crossings, lines that go around boxes.
//!
//! The usual three steps of layered drawing: layers (by [`graph::layout`]), order within a layer (each task near the middle
//! of its neighbours, some sweeps), heights (the same with a least distance). A line that skips layers gets a place in
//! each, so that it has a way between the boxes.

use std::collections::BTreeMap;

use super::graph;
use super::status::TaskStatus;

/// A drawing. One unit across is a layer, one unit down is a box.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    /// Where each task stands: its layer, and the height of its middle.
    pub boxes: Vec<(usize, f64)>,
    /// The lines.
    pub lines: Vec<Line>,
    /// Number of layers.
    pub layers: usize,
    /// Height of all.
    pub height: f64,
}

/// The line of a dependency.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The task that is waited for: where the line begins.
    pub from: usize,
    /// The task that waits.
    pub to: usize,
    /// The heights at which it passes the layers in between.
    pub through: Vec<f64>,
}

/// One layer of a job that is too large to be drawn task by task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerSummary {
    /// Tasks by status; only those that there are.
    pub counts: BTreeMap<TaskStatus, usize>,
}

/// Passes over the layers, there and back.
const SWEEPS: usize = 6;
/// Lines that skip layers have ways of their own only so far: beyond it they go straight.
const MOST_WAYPOINTS: usize = 3000;
/// The room of a line between boxes.
const LINE_ROOM: f64 = 0.4;

/// Draws `count` tasks with their dependencies `(task, depends_on)`; edges that name other tasks are left out. If there is
/// a cycle (the catalog has none), all tasks stand in one layer and there are no lines.
pub fn draw(count: usize, edges: &[(usize, usize)]) -> Drawing {
    let mut edges: Vec<(usize, usize)> =
        edges.iter().copied().filter(|(a, b)| *a < count && *b < count && a != b).collect();
    edges.sort_unstable();
    edges.dedup();
    let Some(layout) = graph::layout(count, &edges) else { return draw(count, &[]) };
    let mut sheet = Sheet::new(&layout.layer, &edges);
    sheet.order();
    sheet.settle();
    sheet.drawing(count)
}

impl Drawing {
    /// The tasks of each layer, in their order.
    pub fn rows(&self) -> Vec<Vec<usize>> {
        let mut rows = vec![Vec::new(); self.layers];
        for (task, (layer, _)) in self.boxes.iter().enumerate() {
            rows[*layer].push(task);
        }
        for row in &mut rows {
            row.sort_by(|&a, &b| self.boxes[a].1.total_cmp(&self.boxes[b].1));
        }
        rows
    }
}

/// The layers of `count` tasks, each with its tasks by status.
pub fn summarise(statuses: &[TaskStatus], edges: &[(usize, usize)]) -> Vec<LayerSummary> {
    let layer = graph::layout(statuses.len(), edges).map_or_else(|| vec![0; statuses.len()], |l| l.layer);
    let layers = layer.iter().max().map_or(0, |last| last + 1);
    let mut summaries = vec![LayerSummary { counts: BTreeMap::new() }; layers];
    for (&layer, &status) in layer.iter().zip(statuses) {
        *summaries[layer].counts.entry(status).or_default() += 1;
    }
    summaries
}

/// Places: the tasks, then the waypoints.
struct Sheet {
    /// For each layer its places from top to bottom.
    rows: Vec<Vec<usize>>,
    /// For each place: how much room it takes, its height, its neighbours to the left and to the right.
    room: Vec<f64>,
    at: Vec<f64>,
    left: Vec<Vec<usize>>,
    right: Vec<Vec<usize>>,
    layer: Vec<usize>,
    lines: Vec<(usize, usize, Vec<usize>)>,
}

impl Sheet {
    fn new(layer: &[usize], edges: &[(usize, usize)]) -> Sheet {
        let layers = layer.iter().max().map_or(0, |last| last + 1);
        let count = layer.len();
        let mut sheet = Sheet {
            rows: vec![Vec::new(); layers],
            room: vec![1.0; count],
            at: vec![0.0; count],
            left: vec![Vec::new(); count],
            right: vec![Vec::new(); count],
            layer: layer.to_vec(),
            lines: Vec::with_capacity(edges.len()),
        };
        for (place, &layer) in layer.iter().enumerate() {
            sheet.rows[layer].push(place);
        }
        for &(to, from) in edges {
            let mut through = Vec::new();
            let mut last = from;
            if sheet.room.len() - count < MOST_WAYPOINTS {
                for between in layer[from] + 1..layer[to] {
                    let place = sheet.waypoint(between);
                    sheet.join(last, place);
                    through.push(place);
                    last = place;
                }
            }
            sheet.join(last, to);
            sheet.lines.push((from, to, through));
        }
        sheet
    }

    fn waypoint(&mut self, layer: usize) -> usize {
        let place = self.room.len();
        self.room.push(LINE_ROOM);
        self.at.push(0.0);
        self.left.push(Vec::new());
        self.right.push(Vec::new());
        self.layer.push(layer);
        self.rows[layer].push(place);
        place
    }

    fn join(&mut self, left: usize, right: usize) {
        self.right[left].push(right);
        self.left[right].push(left);
    }

    /// Orders each layer by the middle of its neighbours, from the left, then from the right.
    fn order(&mut self) {
        self.stack();
        for sweep in 0..SWEEPS {
            let forward = sweep % 2 == 0;
            for step in 0..self.rows.len() {
                let layer = if forward { step } else { self.rows.len() - 1 - step };
                let mut row = std::mem::take(&mut self.rows[layer]);
                let neighbours = if forward { &self.left } else { &self.right };
                row.sort_by(|&a, &b| {
                    let middle = |place: usize| self.middle(&neighbours[place]).unwrap_or(self.at[place]);
                    middle(a).total_cmp(&middle(b))
                });
                self.rows[layer] = row;
                self.stack_layer(layer);
            }
        }
    }

    fn stack(&mut self) {
        for layer in 0..self.rows.len() {
            self.stack_layer(layer);
        }
    }

    /// One below the other, without gaps, around the height zero.
    fn stack_layer(&mut self, layer: usize) {
        let total: f64 = self.rows[layer].iter().map(|&place| self.room[place]).sum();
        let mut top = -total / 2.0;
        for &place in &self.rows[layer] {
            self.at[place] = top + self.room[place] / 2.0;
            top += self.room[place];
        }
    }

    /// Moves places towards their neighbours, keeping their order and distance.
    fn settle(&mut self) {
        for sweep in 0..SWEEPS {
            let forward = sweep % 2 == 0;
            for step in 0..self.rows.len() {
                let layer = if forward { step } else { self.rows.len() - 1 - step };
                let neighbours = if forward { &self.left } else { &self.right };
                let wish = |place: usize| self.middle(&neighbours[place]).unwrap_or(self.at[place]);
                let wishes: Vec<f64> = self.rows[layer].iter().map(|&place| wish(place)).collect();
                let row = &self.rows[layer];
                let mut heights: Vec<f64> = Vec::with_capacity(row.len());
                for (i, &place) in row.iter().enumerate() {
                    let least = match (i.checked_sub(1).map(|above| row[above]), heights.last()) {
                        (Some(above), Some(height)) => height + (self.room[above] + self.room[place]) / 2.0,
                        _ => f64::NEG_INFINITY,
                    };
                    heights.push(wishes[i].max(least));
                }
                // Pushing went downwards only: half of it is taken back.
                let pushed: f64 = heights.iter().zip(&wishes).map(|(height, wish)| height - wish).sum();
                let back = if row.is_empty() { 0.0 } else { pushed / row.len() as f64 };
                for (&place, height) in row.iter().zip(heights) {
                    self.at[place] = height - back;
                }
            }
        }
    }

    fn middle(&self, places: &[usize]) -> Option<f64> {
        (!places.is_empty())
            .then(|| places.iter().map(|&place| self.at[place]).sum::<f64>() / places.len() as f64)
    }

    fn drawing(self, count: usize) -> Drawing {
        let top =
            self.at.iter().zip(&self.room).map(|(at, room)| at - room / 2.0).fold(f64::INFINITY, f64::min);
        let bottom = self
            .at
            .iter()
            .zip(&self.room)
            .map(|(at, room)| at + room / 2.0)
            .fold(f64::NEG_INFINITY, f64::max);
        let height = |place: usize| self.at[place] - top;
        Drawing {
            boxes: (0..count).map(|task| (self.layer[task], height(task))).collect(),
            lines: self
                .lines
                .iter()
                .map(|(from, to, through)| Line {
                    from: *from,
                    to: *to,
                    through: through.iter().map(|&place| height(place)).collect(),
                })
                .collect(),
            layers: self.rows.len(),
            height: if count == 0 { 0.0 } else { bottom - top },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_diamond_has_three_layers_and_its_sides_beside_each_other() {
        let drawing = draw(4, &[(1, 0), (2, 0), (3, 1), (3, 2)]);
        assert_eq!(drawing.layers, 3);
        assert_eq!(drawing.boxes.iter().map(|b| b.0).collect::<Vec<_>>(), [0, 1, 1, 2]);
        assert!((drawing.boxes[0].1 - drawing.boxes[3].1).abs() < 0.01, "{drawing:?}");
        assert!((drawing.boxes[1].1 - drawing.boxes[2].1).abs() >= 0.99, "{drawing:?}");
    }

    #[test]
    fn a_line_that_skips_a_layer_goes_around_the_box_in_it() {
        let drawing = draw(3, &[(1, 0), (2, 1), (2, 0)]);
        let skipping = drawing.lines.iter().find(|line| line.from == 0 && line.to == 2).unwrap();
        assert_eq!(skipping.through.len(), 1);
        assert!((skipping.through[0] - drawing.boxes[1].1).abs() >= 0.69, "{drawing:?}");
    }

    #[test]
    fn two_chains_side_by_side_do_not_cross() {
        // 0 -> 3, 1 -> 2, given in the order that crosses.
        let drawing = draw(4, &[(3, 0), (2, 1)]);
        let above = |a: usize, b: usize| drawing.boxes[a].1 < drawing.boxes[b].1;
        assert_eq!(above(0, 1), above(3, 2));
    }

    #[test]
    fn nothing_and_a_cycle_are_drawn_too() {
        assert_eq!(draw(0, &[]).height, 0.0);
        let cycle = draw(2, &[(0, 1), (1, 0)]);
        assert_eq!((cycle.layers, cycle.lines.len()), (1, 0));
    }

    #[test]
    fn a_long_chain_and_a_wide_fan_need_no_stack() {
        let chain: Vec<_> = (1..100_000).map(|task| (task, task - 1)).collect();
        assert_eq!(draw(100_000, &chain).rows().len(), 100_000);
        let fan: Vec<_> = (1..100_000).map(|task| (task, 0)).collect();
        assert_eq!(draw(100_000, &fan).rows()[1].len(), 99_999);
    }

    #[test]
    fn rows_are_in_order_of_height_and_edges_that_name_nothing_are_left_out() {
        // 0 ← 5, 1 ← 4, 2 ← 3: drawn by number, every pair of lines would cross.
        assert_eq!(draw(6, &[(5, 0), (4, 1), (3, 2), (9, 0)]).rows(), [[0, 1, 2], [5, 4, 3]]);
        assert_eq!(draw(0, &[]).rows(), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn a_summary_counts_every_task_once() {
        use TaskStatus::{Blocked, Done, Running};
        let layers = summarise(&[Done, Running, Blocked, Blocked], &[(1, 0), (2, 1), (3, 1)]);
        assert_eq!(layers.len(), 3);
        assert_eq!(layers[2].counts, BTreeMap::from([(Blocked, 2)]));
    }

    proptest! {
        #[test]
        fn boxes_never_overlap_and_lines_go_to_the_right(
            count in 1_usize..40, raw in proptest::collection::vec((0_usize..40, 0_usize..40), 0..80)
        ) {
            let edges: Vec<_> = raw.into_iter().filter(|(a, b)| a > b && *a < count).collect();
            let drawing = draw(count, &edges);
            for a in 0..count {
                let (layer, at) = drawing.boxes[a];
                prop_assert!(at >= 0.49 && at <= drawing.height - 0.49);
                for b in 0..a {
                    if drawing.boxes[b].0 == layer {
                        prop_assert!((drawing.boxes[b].1 - at).abs() >= 0.99);
                    }
                }
            }
            for line in &drawing.lines {
                let (from, to) = (drawing.boxes[line.from].0, drawing.boxes[line.to].0);
                prop_assert!(from < to);
                prop_assert_eq!(line.through.len(), to - from - 1);
            }
        }
    }
}
