//! The timeline of a job: its attempts as bars, node by node.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::parts::task_name;
use crate::db::inspect::picture::Bar;
use crate::model::{text, timeline};

/// So many attempts are drawn, the latest.
pub(super) const MOST_BARS: i64 = 300;

/// In pixels.
const LABEL: f64 = 130.0;
const WIDTH: f64 = 860.0;
const ROW: f64 = 18.0;
const THICK: f64 = 13.0;
const HEAD: f64 = 22.0;
const GAP: f64 = 8.0;
/// A bar is at least so wide, so that it can be seen.
const THINNEST: f64 = 2.5;
/// Marks of the axis.
const MARKS: i32 = 4;

/// Draws it.
pub(super) fn drawn(bars: &[Bar], now: Timestamp) -> Markup {
    let start = bars.iter().map(|bar| bar.started_at).min().unwrap_or(now);
    let end = bars.iter().map(|bar| bar.ended_at.unwrap_or(now)).max().unwrap_or(now);
    let all = end.duration_since(start).as_secs_f64().max(0.001);
    let x = |at: Timestamp| LABEL + WIDTH * at.duration_since(start).as_secs_f64() / all;
    let mut nodes: BTreeMap<&str, Vec<&Bar>> = BTreeMap::new();
    for bar in bars {
        nodes.entry(&bar.node).or_default().push(bar);
    }
    let mut y = HEAD;
    let mut lanes = Vec::new();
    for (node, bars) in &nodes {
        let spans: Vec<(i64, i64)> = bars
            .iter()
            .map(|bar| (bar.started_at.as_microsecond(), bar.ended_at.unwrap_or(now).as_microsecond()))
            .collect();
        let (rows, count) = timeline::rows(&spans);
        lanes.push((*node, bars, rows, y));
        y += ROW * count as f64 + GAP;
    }
    html! {
        @if bars.len() as i64 >= MOST_BARS { p.note { "The latest " (MOST_BARS) " attempts." } }
        div.scroll tabindex="0" role="region" aria-label="Timeline of the attempts" {
            svg.gantt width=(LABEL + WIDTH + 10.0) height=(px(y)) viewBox={ "0 0 " (LABEL + WIDTH + 10.0) " " (px(y)) } role="group" aria-label={ (bars.len()) " attempts" } {
                @for mark in 0..=MARKS {
                    @let at = LABEL + WIDTH * f64::from(mark) / f64::from(MARKS);
                    line.axis x1=(px(at)) x2=(px(at)) y1=(px(HEAD - 6.0)) y2=(px(y)) {}
                    text.sub x=(px(at)) y="12" text-anchor=(if mark == MARKS { "end" } else if mark == 0 { "start" } else { "middle" }) {
                        (tick(all * f64::from(mark) / f64::from(MARKS)))
                    }
                }
                @for (node, bars, rows, top) in &lanes {
                    text.name x="0" y=(px(top + THICK - 2.0)) { @if node.is_empty() { "home" } @else { (cut(node)) } }
                    @for (bar, row) in bars.iter().zip(rows) {
                        @let left = x(bar.started_at);
                        @let wide = (x(bar.ended_at.unwrap_or(now)) - left).max(THINNEST);
                        @let outcome = bar.outcome.as_deref().unwrap_or("running");
                        @let name = task_name(bar.task_id, bar.name.as_deref());
                        @let took = text::between(bar.started_at, bar.ended_at.unwrap_or(now));
                        a class={ "bar s-" (outcome) } href={ "/tasks/" (bar.task_id) } aria-label={ (name) ", attempt " (bar.attempt) ": " (outcome) ", " (took) } {
                            title { (name) ", attempt " (bar.attempt) ": " (outcome) ", " (took) }
                            rect.mark x=(px(left)) y=(px(top + ROW * *row as f64)) width=(px(wide)) height=(px(THICK)) rx="2" {}
                        }
                    }
                }
            }
        }
    }
}

fn tick(seconds: f64) -> String {
    SignedDuration::try_from_secs_f64(seconds).map(text::duration).unwrap_or_default()
}

fn px(n: f64) -> String {
    format!("{n:.1}")
}

fn cut(node: &str) -> String {
    let shown: String = node.chars().take(16).collect();
    text::inert(&shown).into_owned()
}
