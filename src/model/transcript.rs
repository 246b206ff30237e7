//! A task's *message*: what PostgreSQL said during one attempt, as text of a bounded size.
//!
//! Pure. The session (`db::replies`) feeds it while the attempt runs, so memory stays flat whatever a command
//! says: the head is kept, then a window of the newest bytes slides along, and the cut between is marked. The
//! error, if any, is the last word and always survives.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// Below this a message could not hold even a short error with its cut marks.
pub const MIN_MESSAGE_BYTES: usize = 512;

/// Room for the line that marks a cut.
const MARK_BYTES: usize = 64;

/// One notice or error of the server, as text: valid UTF-8 without NUL, whatever bytes came.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// `NOTICE`, `WARNING`, `ERROR`, `FATAL`…: the label that no `lc_messages` translates.
    pub severity: String,
    /// Five characters.
    pub sqlstate: String,
    /// The primary message.
    pub text: String,
    /// Its DETAIL.
    pub detail: Option<String>,
    /// Its HINT.
    pub hint: Option<String>,
    /// The statement that failed inside a function, if that is where it failed.
    pub query: Option<String>,
    /// Its CONTEXT: the call stack.
    pub context: Option<String>,
    /// The character of the command it points at, from 1.
    pub position: Option<usize>,
    /// The server's C function that reported it: tells apart what shares an SQLSTATE, in any language.
    pub routine: Option<String>,
}

impl Report {
    /// Did the server end the session with it?
    pub fn is_fatal(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }

    /// Renders `SEVERITY: text` and, each on a line of its own, what else was said.
    pub fn render(&self) -> String {
        let mut out = format!("{}: {}\n", self.severity, self.text);
        let rest = [
            ("DETAIL", &self.detail),
            ("HINT", &self.hint),
            ("QUERY", &self.query),
            ("CONTEXT", &self.context),
        ];
        for (label, text) in rest {
            if let Some(text) = text {
                let _ = writeln!(out, "{label}: {text}");
            }
        }
        out
    }

    /// Renders it with a last line `POSITION: character (line, column)` that says where in `command` it points.
    pub fn render_in(&self, command: &str) -> String {
        let mut out = self.render();
        if let Some(position) = self.position {
            let before = command.chars().take(position.saturating_sub(1));
            let (line, column) = before
                .fold((1, 1), |(line, column), c| if c == '\n' { (line + 1, 1) } else { (line, column + 1) });
            let _ = writeln!(out, "POSITION: {position} (line {line}, column {column})");
        }
        out
    }
}

/// A message in the making.
#[derive(Debug)]
pub struct Transcript {
    head: String,
    /// The newest bytes after the head; may begin inside a character once something was cut.
    tail: VecDeque<u8>,
    /// How much each of them may hold.
    part_bytes: usize,
    cut_bytes: usize,
}

impl Transcript {
    /// An empty one, which will never exceed `max_bytes` (at least [`MIN_MESSAGE_BYTES`]).
    pub fn new(max_bytes: usize) -> Self {
        let part_bytes = (max_bytes.max(MIN_MESSAGE_BYTES) - MARK_BYTES) / 2;
        Self { head: String::new(), tail: VecDeque::new(), part_bytes, cut_bytes: 0 }
    }

    /// Adds a notice.
    pub fn notice(&mut self, report: &Report) {
        self.push(&report.render());
    }

    /// Adds a command tag.
    pub fn tag(&mut self, tag: &str) {
        self.push(tag);
        self.push("\n");
    }

    fn push(&mut self, text: &str) {
        let mut text = text;
        if self.tail.is_empty() {
            let fits = text.floor_char_boundary(self.part_bytes - self.head.len());
            self.head.push_str(&text[..fits]);
            text = &text[fits..];
        }
        let skipped = text.len().saturating_sub(self.part_bytes);
        let kept = &text.as_bytes()[skipped..];
        let evicted = (self.tail.len() + kept.len()).saturating_sub(self.part_bytes).min(self.tail.len());
        self.tail.drain(..evicted);
        self.tail.extend(kept);
        self.cut_bytes += skipped + evicted;
    }

    /// The message, `last_words` (an error, already rendered) at its end.
    pub fn finish(mut self, last_words: Option<&str>) -> String {
        if let Some(words) = last_words {
            self.push(&shorten(words, self.part_bytes));
        }
        let mut tail = Vec::from(self.tail);
        let partial = tail.iter().take_while(|byte| is_continuation(**byte)).count();
        tail.drain(..partial);
        let mut message = self.head;
        let cut_bytes = self.cut_bytes + partial;
        if cut_bytes > 0 {
            if !message.ends_with('\n') {
                message.push('\n');
            }
            let _ = writeln!(message, "… {cut_bytes} bytes cut …");
        }
        message.push_str(&String::from_utf8_lossy(&tail));
        message.truncate(message.trim_end_matches('\n').len());
        message
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// Keeps head and tail of `text` within `max_bytes`, the cut marked.
fn shorten(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let part = max_bytes.saturating_sub(MARK_BYTES) / 2;
    let head = &text[..text.floor_char_boundary(part)];
    let tail = &text[text.ceil_char_boundary(text.len() - part)..];
    format!("{head} … {} bytes cut … {tail}", text.len() - head.len() - tail.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> Report {
        Report { severity: "NOTICE".into(), text: text.into(), ..Report::default() }
    }

    #[test]
    fn everything_appears_in_order_and_the_error_is_last() {
        let mut t = Transcript::new(64 * 1024);
        t.tag("SELECT 1");
        t.notice(&Report {
            detail: Some("d".into()),
            hint: Some("h".into()),
            context: Some("c1\nc2".into()),
            ..notice("n")
        });
        let error =
            Report { severity: "ERROR".into(), text: "no".into(), position: Some(6), ..Report::default() };
        assert_eq!(
            t.finish(Some(&error.render_in("é\nab x"))),
            "SELECT 1\nNOTICE: n\nDETAIL: d\nHINT: h\nCONTEXT: c1\nc2\nERROR: no\nPOSITION: 6 (line 2, column 4)"
        );
        assert_eq!(Transcript::new(0).finish(None), "");
    }

    #[test]
    fn a_million_notices_keep_head_and_tail_and_the_cut_adds_up() {
        let mut t = Transcript::new(4096);
        let mut all = 0;
        for i in 0..1_000_000 {
            let n = notice(&format!("é{i}"));
            all += n.render().len();
            t.notice(&n);
        }
        assert!(t.tail.capacity() < 3 * 4096, "memory is flat");
        let message = t.finish(Some("ERROR: the end\n"));
        assert!(message.len() <= 4096, "{}", message.len());
        assert!(message.starts_with("NOTICE: é0\nNOTICE: é1\n"));
        assert!(message.ends_with("NOTICE: é999999\nERROR: the end"));
        let mark = message.lines().find(|l| l.starts_with('…')).unwrap();
        let cut: usize = mark.split(' ').nth(1).unwrap().parse().unwrap();
        let marks = mark.len() + 1 + usize::from(!message.split('…').next().unwrap().is_empty());
        let kept = message.len() + 1 - marks;
        assert!((all + "ERROR: the end\n".len()).abs_diff(cut + kept) <= 1, "{all} {cut} {kept}");
    }

    #[test]
    fn a_huge_error_survives_with_both_ends() {
        let mut t = Transcript::new(2048);
        t.notice(&notice(&"€".repeat(5000)));
        let message = t.finish(Some(&format!("ERROR: start{}end\n", "€".repeat(100_000))));
        assert!(message.len() <= 2048, "{}", message.len());
        assert!(message.contains("ERROR: start€"), "{message}");
        assert!(message.ends_with("€end"), "{message}");
        assert_eq!(message.matches("bytes cut").count(), 2);
    }

    #[test]
    fn every_size_gives_valid_text_within_its_bound() {
        for max in MIN_MESSAGE_BYTES..MIN_MESSAGE_BYTES + 9 {
            for width in 0..40 {
                let mut t = Transcript::new(max);
                for _ in 0..200 {
                    t.tag(&"é😀"[..].repeat(width));
                }
                let message = t.finish(Some(&"ß".repeat(width * 20)));
                assert!(message.len() <= max, "{} > {max}", message.len());
                assert!(!message.contains('\u{FFFD}'));
            }
        }
    }
}
