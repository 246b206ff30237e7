//! The fields of an ErrorResponse or NoticeResponse: read whatever bytes came, written back small and clean.
//!
//! Protocol: a body is a list of (type byte, NUL-terminated text), ended by a NUL. See the manual, "Error and Notice
//! Message Fields".

use bytes::{BufMut, BytesMut};

use crate::model::Report;

/// How much of an error's text is forwarded to tokio-postgres, which needs only to know that there was one.
const FORWARDED_TEXT_BYTES: usize = 1024;

/// Reads a body of which the last `missing` bytes were skipped while it arrived.
///
/// All fields that are complete are taken; the one in which the cut fell is taken up to a character's boundary and
/// marked. Invalid UTF-8 becomes U+FFFD.
pub fn read(body: &[u8], missing: usize) -> Report {
    let mut report = Report::default();
    let mut translated_severity = String::new();
    let mut rest = body;
    while let [kind, value @ ..] = rest {
        if *kind == 0 {
            break;
        }
        let text = match value.iter().position(|byte| *byte == 0) {
            Some(end) => {
                rest = &value[end + 1..];
                String::from_utf8_lossy(&value[..end]).into_owned()
            }
            None => {
                rest = &[];
                format!("{} … {missing} bytes cut …", String::from_utf8_lossy(whole_characters(value)))
            }
        };
        match kind {
            b'S' => translated_severity = text,
            b'V' => report.severity = text,
            b'C' => report.sqlstate = text,
            b'M' => report.text = text,
            b'D' => report.detail = Some(text),
            b'H' => report.hint = Some(text),
            b'q' => report.query = Some(text),
            b'W' => report.context = Some(text),
            b'P' => report.position = text.parse().ok(),
            b'R' => report.routine = Some(text),
            // Names of schema, table, file, line…: the manual asks to ignore what is not known.
            _ => {}
        }
    }
    if report.severity.is_empty() {
        report.severity = translated_severity;
    }
    if report.sqlstate.len() != 5 {
        report.sqlstate = "XX000".to_owned();
    }
    report
}

/// Drops the beginning of a character whose rest was cut.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    match bytes.utf8_chunks().last() {
        Some(last) if std::str::from_utf8(last.invalid()).is_err_and(|e| e.error_len().is_none()) => {
            &bytes[..bytes.len() - last.invalid().len()]
        }
        _ => bytes,
    }
}

/// Appends an ErrorResponse that says the same in at most a few hundred bytes of valid UTF-8.
pub fn write_error(report: &Report, out: &mut BytesMut) {
    let text = &report.text[..report.text.floor_char_boundary(FORWARDED_TEXT_BYTES)];
    let fields = [(b'S', &*report.severity), (b'C', &*report.sqlstate), (b'M', text)];
    let body: usize = fields.iter().map(|(_, value)| value.len() + 2).sum();
    out.put_u8(b'E');
    out.put_u32((4 + body + 1) as u32);
    for (kind, value) in fields {
        out.put_u8(kind);
        out.put_slice(value.as_bytes());
        out.put_u8(0);
    }
    out.put_u8(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_bad_bytes_replaced() {
        let r = read(b"SFEHLER\0VERROR\0C22012\0Mdivision \xe9\0DD\0HH\0WW\0P12\0Rint4div\0\0", 0);
        assert_eq!((r.severity.as_str(), r.sqlstate.as_str()), ("ERROR", "22012"));
        assert_eq!(r.text, "division \u{FFFD}");
        assert_eq!(
            (r.detail.as_deref(), r.hint.as_deref(), r.context.as_deref()),
            (Some("D"), Some("H"), Some("W"))
        );
        assert_eq!((r.position, r.routine.as_deref()), (Some(12), Some("int4div")));
    }

    #[test]
    fn a_cut_falls_between_characters_and_is_marked() {
        let mut body = b"SNOTICE\0VNOTICE\0C00000\0M".to_vec();
        body.extend("aé€😀".as_bytes());
        for (cut, text) in
            [(0, "aé€😀"), (1, "aé€"), (3, "aé€"), (4, "aé€"), (5, "aé"), (7, "aé"), (8, "a"), (9, "a")]
        {
            let r = read(&body[..body.len() - cut], cut);
            assert_eq!(r.text, format!("{text} … {cut} bytes cut …"));
        }
    }

    #[test]
    fn what_is_forwarded_is_small_and_parses() {
        let report = Report {
            severity: "ERROR".into(),
            sqlstate: "P0001".into(),
            text: "€".repeat(100_000),
            ..Report::default()
        };
        let mut out = BytesMut::new();
        write_error(&report, &mut out);
        assert_eq!(u32::from_be_bytes([out[1], out[2], out[3], out[4]]) as usize + 1, out.len());
        assert!(out.len() < 1100);
        let again = read(&out[5..], 0);
        assert_eq!((again.severity.as_str(), again.sqlstate.as_str()), ("ERROR", "P0001"));
        assert_eq!(again.text, "€".repeat(341));
    }

    #[test]
    fn garbage_gives_a_report_all_the_same() {
        for body in [&b""[..], b"\0", b"M", b"\xff\xff", b"C1\0"] {
            assert_eq!(read(body, 3).sqlstate, "XX000");
        }
    }
}
