//! A job's graph as a picture: one file, no script, no font or style from elsewhere, light and dark.

use std::fmt::Write as _;

use crate::model::drawing::{Drawing, Line};

const BOX_WIDTH: f64 = 150.0;
const BOX_HEIGHT: f64 = 30.0;
/// From one task of a layer, or one layer, to the next.
const ACROSS: f64 = BOX_WIDTH + 24.0;
const DOWN: f64 = BOX_HEIGHT + 46.0;
const MARGIN: f64 = 20.0;
/// Characters of a name that fit into a box; the whole name is its tooltip.
const SHOWN: usize = 20;

const STYLE: &str = "\
  rect { fill: #f4f6fb; stroke: #4a5a86 }
  path { fill: none; stroke: #8a94ad; stroke-width: 1.3 }
  text { font: 12px sans-serif; fill: #1b2238; text-anchor: middle; dominant-baseline: central }
  @media (prefers-color-scheme: dark) {
    svg { background: #12151f }
    rect { fill: #232a3d; stroke: #8fa0d0 }
    path { stroke: #6f7a96 }
    text { fill: #e8ebf5 }
  }
";

/// Draws tasks by their names, the layers from top to bottom.
pub(super) fn draw(names: &[String], drawing: &Drawing) -> String {
    let width = 2.0 * MARGIN + drawing.height.max(1.0) * ACROSS - (ACROSS - BOX_WIDTH);
    let height = 2.0 * MARGIN + drawing.layers.max(1) as f64 * DOWN - (DOWN - BOX_HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<style>\n{STYLE}</style>\n"
    );
    for line in &drawing.lines {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(svg, "<path d=\"{}\"/>", way(drawing, line));
    }
    for (name, &(layer, at)) in names.iter().zip(&drawing.boxes) {
        let (x, y) = (middle(at) - BOX_WIDTH / 2.0, top(layer));
        let shown = match name.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.clone(),
        };
        let _ = writeln!(
            svg,
            "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>\
             <text x=\"{}\" y=\"{}\">{}</text></g>",
            escape(name),
            middle(at),
            y + BOX_HEIGHT / 2.0,
            escape(&shown)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn middle(at: f64) -> f64 {
    let x = MARGIN + (at - 0.5) * ACROSS + BOX_WIDTH / 2.0;
    // Tenths are finer than anybody sees.
    (x * 10.0).round() / 10.0
}

fn top(layer: usize) -> f64 {
    MARGIN + layer as f64 * DOWN
}

/// From the lower side of one box to the upper side of the other, through the gaps of the layers in between.
fn way(drawing: &Drawing, line: &Line) -> String {
    let ((layer, from), (last, to)) = (drawing.boxes[line.from], drawing.boxes[line.to]);
    let (mut x, mut y) = (middle(from), top(layer) + BOX_HEIGHT);
    let mut way = format!("M{x} {y}");
    let stops = line.through.iter().enumerate().map(|(i, at)| (layer + 1 + i, *at));
    for (layer, at) in stops.chain([(last, to)]) {
        let (next, half) = (middle(at), y.midpoint(top(layer)));
        let _ = write!(way, " C{x} {half} {next} {half} {next} {}", top(layer));
        (x, y) = (next, top(layer));
        if layer < last {
            y += BOX_HEIGHT;
            let _ = write!(way, " V{y}");
        }
    }
    way
}

/// Text as XML text: no markup, no character that XML 1.0 does not have.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::drawing;

    #[test]
    fn names_are_text_and_boxes_do_not_overlap() {
        let names = ["<script>".to_owned(), "b&\u{7}".to_owned(), "a name that is rather long".to_owned()];
        let edges = [(1, 0), (2, 0)];
        let svg = draw(&names, &drawing::draw(3, &edges));
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
        assert!(svg.contains("b&amp;\u{fffd}") && svg.contains(">a name that is rathe…<"), "{svg}");
        assert_eq!((svg.matches("<rect").count(), svg.matches("<path").count()), (3, 2));
        assert!(svg.contains("<rect x=\"20\" y=\"96\"") && svg.contains("<rect x=\"194\" y=\"96\""), "{svg}");
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(draw(&[], &drawing::draw(0, &[])).ends_with("</svg>\n"));
    }
}
