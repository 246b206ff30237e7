//! The graph of a job as SVG.

use std::collections::HashMap;
use std::fmt::Write as _;

use maud::{Markup, html};

use super::parts::{sign, task_name};
use crate::db::inspect::picture::{Graph, GraphTask};
use crate::model::drawing::{self, Drawing, LayerSummary, Line};
use crate::model::{TaskStatus, text};

/// A job of more tasks is drawn layer by layer.
const MOST_DRAWN: usize = 300;
/// A job of more tasks is not drawn.
pub(super) const MOST_LAID_OUT: i64 = 5000;

/// Of a box, in pixels.
const WIDTH: f64 = 172.0;
const HEIGHT: f64 = 40.0;
/// From one layer, or one row, to the next.
const ACROSS: f64 = 236.0;
const DOWN: f64 = 54.0;
/// Around everything.
const MARGIN: f64 = 8.0;
/// Of a segment of a layer, so that it can be seen.
const THINNEST: f64 = 3.0;
/// A longer name is cut.
const LONGEST_NAME: usize = 22;

/// Draws it.
pub(super) fn drawn(graph: &Graph) -> Markup {
    let place: HashMap<_, _> = graph.tasks.iter().enumerate().map(|(i, task)| (task.task_id, i)).collect();
    let edges: Vec<(usize, usize)> = graph
        .edges
        .iter()
        .filter_map(|edge| Some((*place.get(&edge.task_id)?, *place.get(&edge.depends_on)?)))
        .collect();
    if graph.tasks.is_empty() {
        html! { p.empty { "No task yet." } }
    } else if graph.tasks.len() > MOST_DRAWN {
        let statuses: Vec<TaskStatus> = graph.tasks.iter().map(|task| task.status).collect();
        let layers = drawing::summarise(&statuses, &edges);
        html! {
            p.note {
                "The job has " (graph.tasks.len()) " tasks, more than " (MOST_DRAWN)
                ": drawn are its layers. A task of a layer waits for at least one of the layer before it."
            }
            (layered(&layers))
        }
    } else {
        tasks(graph, &drawing::draw(graph.tasks.len(), &edges))
    }
}

fn tasks(graph: &Graph, drawing: &Drawing) -> Markup {
    let width = MARGIN * 2.0 + ACROSS * (drawing.layers.max(1) - 1) as f64 + WIDTH;
    let height = MARGIN * 2.0 + drawing.height * DOWN;
    html! {
        div.scroll tabindex="0" role="region" aria-label="Graph of the tasks" {
            svg.graph width=(px(width)) height=(px(height)) viewBox={ "0 0 " (px(width)) " " (px(height)) } role="group" aria-label={ (graph.tasks.len()) " tasks in " (drawing.layers) " layers" } {
                @for line in &drawing.lines {
                    path class={ "edge" @if graph.tasks[line.from].status == TaskStatus::Done { " over" } } d=(way(drawing, line)) {}
                }
                @for (task, &(layer, at)) in graph.tasks.iter().zip(&drawing.boxes) { (node(task, layer, at)) }
            }
        }
    }
}

fn node(task: &GraphTask, layer: usize, at: f64) -> Markup {
    let (x, y) = corner(layer, at);
    let name = task_name(task.task_id, task.name.as_deref());
    html! {
        a class={ "node s-" (task.status) } href={ "/tasks/" (task.task_id) } data-task=(task.task_id) data-status=(task.status) aria-label={ (name) ": " (task.status) } {
            title { (name) ": " (task.status) }
            rect.box x=(px(x)) y=(px(y)) width=(px(WIDTH)) height=(px(HEIGHT)) rx="7" {}
            rect.mark x=(px(x)) y=(px(y)) width="5" height=(px(HEIGHT)) rx="2.5" {}
            text.name x=(px(x + 15.0)) y=(px(y + 17.0)) { (cut(&name)) }
            text.sub x=(px(x + 15.0)) y=(px(y + 32.0)) {
                (sign(task.status.as_str())) " " (task.status)
                @if let Some(node) = &task.node { " · " (cut(&text::inert(node))) }
            }
        }
    }
}

fn layered(layers: &[LayerSummary]) -> Markup {
    const BAR: f64 = 480.0;
    let most = layers.iter().map(|layer| layer.counts.values().sum::<usize>()).max().unwrap_or(1);
    let height = MARGIN * 2.0 + DOWN * layers.len() as f64;
    html! {
        div.scroll tabindex="0" role="region" aria-label="Graph of the layers" {
            svg.graph width="720" height=(px(height)) viewBox={ "0 0 720 " (px(height)) } role="group" aria-label={ (layers.len()) " layers" } {
                @for (i, layer) in layers.iter().enumerate() {
                    @let y = MARGIN + DOWN * i as f64;
                    @let all = layer.counts.values().sum::<usize>();
                    g.layer {
                        text.name x="8" y=(px(y + 17.0)) { "Layer " (i + 1) }
                        text.sub x="8" y=(px(y + 32.0)) { (text::plural(i64::try_from(all).unwrap_or(i64::MAX), "task")) }
                        @for (status, x, width) in segments(layer, BAR * all as f64 / most as f64) {
                            g class={ "segment s-" (status) } {
                                rect.mark x=(px(110.0 + x)) y=(px(y + 4.0)) width=(px(width)) height="14" { title { (layer.counts[&status]) " " (status) } }
                            }
                        }
                        text.sub x="110" y=(px(y + 32.0)) { (words(layer)) }
                    }
                }
            }
        }
    }
}

/// The statuses of a layer side by side: where each begins and how wide it is.
fn segments(layer: &LayerSummary, width: f64) -> Vec<(TaskStatus, f64, f64)> {
    let all = layer.counts.values().sum::<usize>().max(1) as f64;
    let mut x = 0.0;
    let mut segments = Vec::new();
    for (&status, &n) in &layer.counts {
        let wide = (width * n as f64 / all).max(THINNEST);
        segments.push((status, x, wide));
        x += wide;
    }
    segments
}

fn words(layer: &LayerSummary) -> String {
    let each = layer.counts.iter().map(|(status, n)| format!("{} {n} {status}", sign(status.as_str())));
    each.collect::<Vec<_>>().join("   ")
}

fn corner(layer: usize, at: f64) -> (f64, f64) {
    (MARGIN + ACROSS * layer as f64, MARGIN + at * DOWN - HEIGHT / 2.0)
}

/// From the right side of one box to the left side of the other, through the gaps of the layers in between.
fn way(drawing: &Drawing, line: &Line) -> String {
    let (layer, from) = drawing.boxes[line.from];
    let (last, to) = drawing.boxes[line.to];
    let left = |layer: usize| MARGIN + ACROSS * layer as f64;
    let down = |at: f64| MARGIN + at * DOWN;
    let mut at = (left(layer) + WIDTH, down(from));
    let mut way = format!("M{} {}", px(at.0), px(at.1));
    let stops = line.through.iter().enumerate().map(|(i, height)| (left(layer + 1 + i), down(*height), true));
    for (x, y, passes) in stops.chain([(left(last), down(to), false)]) {
        let half = (at.0 + x) / 2.0;
        // Writing to a String cannot fail.
        let _ = write!(way, "C{} {} {} {} {} {}", px(half), px(at.1), px(half), px(y), px(x), px(y));
        at = (x, y);
        if passes {
            at.0 += WIDTH;
            let _ = write!(way, "H{}", px(at.0));
        }
    }
    way
}

fn px(n: f64) -> String {
    format!("{n:.1}")
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
