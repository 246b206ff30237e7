//! Cuts the server's byte stream into protocol messages while it flows, and decides what becomes of each.
//!
//! Between the socket and tokio-postgres, because that library buffers every message whole (a 1-GB row, a 200-MB
//! error), gives up on text that is not UTF-8, and drops command tags. Here nothing is buffered beyond
//! [`KEPT_BYTES`]; rows of the command stream by and vanish; notices never reach the library; an error reaches it
//! short and clean. Pure: bytes in, bytes out, remarks into [`Replies`].

use bytes::{BufMut, BytesMut};

use super::replies::{Replies, TransactionStatus};
use super::report;

/// How much of a notice, error or tag is kept; the rest is skipped as it arrives. Equal to the default bound of a
/// task's message: more could not be stored anyhow.
pub const KEPT_BYTES: usize = 64 * 1024;

/// The largest message that is forwarded. What the service itself asks for in an owner's session is far smaller, so
/// more means that something else is talking; it ends the connection.
pub const FORWARDED_BYTES: usize = 1024 * 1024;

/// Why a connection was ended here. The transaction under way is rolled back by the server or its fate is read from
/// the completion record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length no message can have.
    #[error("protocol error: a message '{}' of length {length}", .tag.escape_ascii())]
    Length {
        /// Its type.
        tag: u8,
        /// Its length field.
        length: u32,
    },
    /// More than [`FORWARDED_BYTES`].
    #[error("a message '{}' of {length} bytes is larger than the {FORWARDED_BYTES} allowed here", .tag.escape_ascii())]
    TooLarge {
        /// Its type.
        tag: u8,
        /// Its length field.
        length: u32,
    },
    /// A ReadyForQuery without a known status.
    #[error("protocol error: a ReadyForQuery with an unknown transaction status")]
    Status,
    /// The server asked for COPY data.
    #[error("the command copies from the client, which has no data to send")]
    CopyIn,
    /// COPY data outside the command.
    #[error("protocol error: COPY data where none was asked for")]
    Copy,
}

/// What becomes of the message under way.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// Its bytes pass as they come.
    Forward,
    /// Its bytes vanish as they come.
    Drop,
    /// Its bytes go to the output file as they come.
    Save,
    /// Its first bytes are kept, then looked at.
    Keep,
}

#[derive(Debug)]
enum State {
    Header { bytes: [u8; 5], have: usize },
    Body { tag: u8, rule: Rule, left: usize },
}

/// The parser of one connection's incoming stream.
#[derive(Debug)]
pub struct Framer {
    state: State,
    kept: Vec<u8>,
    skipped: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self { state: State::Header { bytes: [0; 5], have: 0 }, kept: Vec::new(), skipped: 0 }
    }
}

impl Framer {
    /// Takes bytes as they arrived, cut anywhere; appends to `out` what tokio-postgres shall see.
    ///
    /// # Errors
    /// The connection must end: see [`FrameError`].
    pub fn feed(
        &mut self,
        mut input: &[u8],
        replies: &mut Replies,
        out: &mut BytesMut,
    ) -> Result<(), FrameError> {
        while !input.is_empty() {
            match &mut self.state {
                State::Header { bytes, have } => {
                    let taken = input.len().min(5 - *have);
                    bytes[*have..*have + taken].copy_from_slice(&input[..taken]);
                    *have += taken;
                    input = &input[taken..];
                    if *have == 5 {
                        let [tag, length @ ..] = *bytes;
                        self.begin(tag, u32::from_be_bytes(length), replies, out)?;
                    }
                }
                State::Body { rule, left, .. } => {
                    let taken = input.len().min(*left);
                    let (bytes, rest) = input.split_at(taken);
                    match rule {
                        Rule::Forward => out.put_slice(bytes),
                        Rule::Drop => {}
                        Rule::Save => {
                            if let Some(sink) = &mut replies.sink {
                                sink.take(bytes);
                            }
                        }
                        Rule::Keep => {
                            let room = KEPT_BYTES - self.kept.len();
                            self.kept.extend_from_slice(&bytes[..taken.min(room)]);
                            self.skipped += taken.saturating_sub(room);
                        }
                    }
                    *left -= taken;
                    input = rest;
                }
            }
            if let State::Body { tag, rule, left: 0 } = self.state {
                if let Rule::Keep = rule {
                    self.finish(tag, replies, out)?;
                }
                self.state = State::Header { bytes: [0; 5], have: 0 };
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        tag: u8,
        length: u32,
        replies: &mut Replies,
        out: &mut BytesMut,
    ) -> Result<(), FrameError> {
        let left = length.checked_sub(4).ok_or(FrameError::Length { tag, length })? as usize;
        let rule = match tag {
            b'E' | b'N' | b'C' | b'Z' => Rule::Keep,
            // Notifications and parameter changes: noise, and its text may be no UTF-8.
            b'A' | b'S' => Rule::Drop,
            b'T' | b'D' if replies.in_command() => Rule::Drop,
            b'G' => {
                replies.copy_in = true;
                return Err(FrameError::CopyIn);
            }
            b'd' if replies.in_command() && replies.sink.is_some() => {
                replies.copy_out();
                Rule::Save
            }
            b'H' | b'd' | b'c' if replies.in_command() => {
                replies.copy_out();
                Rule::Drop
            }
            b'H' | b'W' | b'd' | b'c' => return Err(FrameError::Copy),
            _ => Rule::Forward,
        };
        if let Rule::Forward = rule {
            if left > FORWARDED_BYTES {
                return Err(FrameError::TooLarge { tag, length });
            }
            out.put_u8(tag);
            out.put_u32(length);
        }
        self.kept.clear();
        self.skipped = 0;
        self.state = State::Body { tag, rule, left };
        Ok(())
    }

    fn finish(&mut self, tag: u8, replies: &mut Replies, out: &mut BytesMut) -> Result<(), FrameError> {
        match tag {
            b'N' => replies.notice(&report::read(&self.kept, self.skipped)),
            b'E' => {
                let report = report::read(&self.kept, self.skipped);
                report::write_error(&report, out);
                replies.error(report);
            }
            b'C' => {
                self.pass_on(tag, out);
                let text = self.kept.split(|byte| *byte == 0).next().unwrap_or_default();
                replies.tag(String::from_utf8_lossy(text).into_owned());
            }
            _ => {
                let status = match self.kept.as_slice() {
                    b"I" => TransactionStatus::Idle,
                    b"T" => TransactionStatus::Open,
                    b"E" => TransactionStatus::Aborted,
                    _ => return Err(FrameError::Status),
                };
                self.pass_on(tag, out);
                replies.ready(status);
            }
        }
        // One large notice must not leave its buffer behind for the session's life.
        self.kept.shrink_to(1024);
        Ok(())
    }

    fn pass_on(&self, tag: u8, out: &mut BytesMut) {
        out.put_u8(tag);
        out.put_u32(self.kept.len() as u32 + 4);
        out.put_slice(&self.kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut f = vec![tag];
        f.extend((body.len() as u32 + 4).to_be_bytes());
        f.extend(body);
        f
    }

    fn tags(mut bytes: &[u8]) -> String {
        let mut tags = String::new();
        while let [tag, a, b, c, d, ..] = *bytes {
            tags.push(tag as char);
            bytes = &bytes[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
        }
        tags
    }

    fn conversation() -> Vec<u8> {
        [
            frame(b'C', b"BEGIN\0"),
            frame(b'T', b"\0\0"),
            frame(b'D', &[7; 3000]),
            frame(b'C', b"SELECT 1\0"),
            frame(b'S', b"client_encoding\0\xe9\0"),
            frame(b'A', b"\0\0\0\x01ch\0\xff\0"),
            frame(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0"),
            frame(b'I', b""),
            frame(b'E', b"SERROR\0VERROR\0C22012\0Mdivision by zero\0\0"),
            frame(b'N', b"SWARNING\0VWARNING\0C25P01\0Mour own echo\0\0"),
            frame(b'Z', b"E"),
            frame(b'T', b"\0\0"),
            frame(b'D', b"\0\0"),
            frame(b'C', b"ROLLBACK\0"),
            frame(b'Z', b"I"),
        ]
        .concat()
    }

    #[test]
    fn the_same_is_heard_however_the_bytes_are_cut() {
        let bytes = conversation();
        for step in (1..40).chain([bytes.len()]) {
            let (mut framer, mut replies, mut out) = (Framer::default(), Replies::default(), BytesMut::new());
            replies.begin_attempt(4096, 1, 3);
            for chunk in bytes.chunks(step) {
                framer.feed(chunk, &mut replies, &mut out).unwrap();
            }
            assert_eq!(tags(&out), "CCIEZTDCZ");
            let heard = replies.end_attempt().unwrap();
            assert_eq!(heard.phases.len(), 3);
            assert_eq!(heard.phases[0].error.as_ref().unwrap().sqlstate, "22012");
            assert_eq!(heard.phases[0].status, Some(TransactionStatus::Aborted));
            assert_eq!(heard.phases[1].tag.as_deref(), Some("ROLLBACK"));
            assert_eq!(heard.phases[2].status, None);
            assert!(!heard.ended_transaction, "only the command's own tags tell that");
            assert_eq!(heard.transcript.finish(None), "SELECT 1\nNOTICE: hello");
        }
    }

    #[test]
    fn outside_the_command_rows_pass_and_copy_or_large_messages_end_it() {
        let feed = |bytes: &[u8]| {
            let mut out = BytesMut::new();
            let result = Framer::default().feed(bytes, &mut Replies::default(), &mut out);
            result.map(|()| tags(&out))
        };
        assert_eq!(feed(&frame(b'D', b"\0\0")), Ok("D".into()));
        assert_eq!(feed(&frame(b'd', b"x")), Err(FrameError::Copy));
        assert_eq!(feed(&frame(b'W', b"x")), Err(FrameError::Copy));
        assert_eq!(feed(&frame(b'G', b"x")), Err(FrameError::CopyIn));
        assert_eq!(feed(b"D\0\0\0\x03"), Err(FrameError::Length { tag: b'D', length: 3 }));
        assert_eq!(feed(b"D\x7f\0\0\0"), Err(FrameError::TooLarge { tag: b'D', length: 0x7f00_0000 }));
        assert_eq!(feed(&frame(b'Z', b"?")), Err(FrameError::Status));
    }

    #[test]
    fn a_huge_notice_and_a_huge_value_cost_nothing() {
        let (mut framer, mut replies, mut out) = (Framer::default(), Replies::default(), BytesMut::new());
        replies.begin_attempt(1024, 0, 1);
        let chunk = [b'x'; 8192];
        for (tag, start) in [(b'N', &b"SNOTICE\0VNOTICE\0C00000\0M"[..]), (b'D', b"")] {
            let length = (1000 * chunk.len() + start.len() + 4) as u32;
            framer
                .feed(&[&[tag][..], &length.to_be_bytes(), start].concat(), &mut replies, &mut out)
                .unwrap();
            for _ in 0..1000 {
                framer.feed(&chunk, &mut replies, &mut out).unwrap();
            }
        }
        framer.feed(&frame(b'Z', b"T"), &mut replies, &mut out).unwrap();
        assert!(framer.kept.capacity() <= 2048 && out.len() < 100);
        let message = replies.end_attempt().unwrap().transcript.finish(None);
        let cut = 1000 * chunk.len() - (KEPT_BYTES - 24);
        assert!(message.ends_with(&format!("… {cut} bytes cut …")), "{message}");
    }
}
