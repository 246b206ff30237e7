//! A job's graph as a picture: one file, no script, no font or style from elsewhere, light and dark.

use std::fmt::Write as _;

use crate::model::layers::Layers;

const BOX_WIDTH: usize = 150;
const BOX_HEIGHT: usize = 30;
const GAP_X: usize = 24;
const GAP_Y: usize = 46;
const MARGIN: usize = 20;
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

/// Draws tasks by their names; an edge is `(task, depends_on)` by places in `names`.
pub(super) fn draw(names: &[String], edges: &[(usize, usize)], layers: &Layers) -> String {
    let columns = layers.width().max(1);
    let width = 2 * MARGIN + columns * (BOX_WIDTH + GAP_X) - GAP_X;
    let rows = layers.rows.len().max(1);
    let height = 2 * MARGIN + rows * (BOX_HEIGHT + GAP_Y) - GAP_Y;
    let corner = |task: usize| {
        let (row, place) = layers.places[task];
        let row_width = layers.rows[row].len() * (BOX_WIDTH + GAP_X) - GAP_X;
        let left = (width - row_width) / 2 + place * (BOX_WIDTH + GAP_X);
        (left, MARGIN + row * (BOX_HEIGHT + GAP_Y))
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<style>\n{STYLE}</style>\n"
    );
    for &(task, depends_on) in edges {
        let ((x1, y1), (x2, y2)) = (corner(depends_on), corner(task));
        let (x1, y1, x2) = (x1 + BOX_WIDTH / 2, y1 + BOX_HEIGHT, x2 + BOX_WIDTH / 2);
        let middle = y1.midpoint(y2);
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(svg, "<path d=\"M{x1} {y1} C{x1} {middle} {x2} {middle} {x2} {y2}\"/>");
    }
    for (task, name) in names.iter().enumerate() {
        let (x, y) = corner(task);
        let shown = match name.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.clone(),
        };
        let _ = writeln!(
            svg,
            "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>\
             <text x=\"{}\" y=\"{}\">{}</text></g>",
            escape(name),
            x + BOX_WIDTH / 2,
            y + BOX_HEIGHT / 2,
            escape(&shown)
        );
    }
    svg.push_str("</svg>\n");
    svg
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
    use crate::model::layers;

    #[test]
    fn names_are_text_and_boxes_do_not_overlap() {
        let names = ["<script>".to_owned(), "b&\u{7}".to_owned(), "a name that is rather long".to_owned()];
        let edges = [(1, 0), (2, 0)];
        let svg = draw(&names, &edges, &layers::arrange(3, &edges));
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
        assert!(svg.contains("b&amp;\u{fffd}") && svg.contains(">a name that is rathe…<"), "{svg}");
        assert_eq!((svg.matches("<rect").count(), svg.matches("<path").count()), (3, 2));
        assert!(svg.contains("<rect x=\"20\" y=\"96\"") && svg.contains("<rect x=\"194\" y=\"96\""), "{svg}");
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(draw(&[], &[], &layers::arrange(0, &[])).ends_with("</svg>\n"));
    }
}
