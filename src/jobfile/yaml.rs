//! YAML and JSON job files, read into the same table as TOML, with the place of every key and value, so that
//! one reader finds all mistakes of all three.
//!
//! JSON is checked to be JSON by its own parser first. What YAML has beyond JSON's kinds of values (anchors,
//! aliases, tags, several documents) is refused: a job file is data to be read by people.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::jobfile::reader::{Place, Reader};

/// More than any job file needs; bounds what drops the tree recursively.
const MAX_DEPTH: usize = 32;

/// An open list or table. A table holds the key whose value comes next.
enum Open<'t> {
    List(Place, DeArray<'t>),
    Table(Place, DeTable<'t>, Option<(Place, Cow<'t, str>)>),
}

/// Reports that `text` is no JSON, if so.
pub(super) fn check_json(reader: &mut Reader<'_>, text: &str) -> bool {
    let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) else { return true };
    let at = reader.source().offset(error.line(), error.column());
    let message = error.to_string();
    // The place is told by us.
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    reader.mistake(at..at, message.to_owned());
    false
}

/// Reads the document; `None` if it is no table, or if what follows a mistake cannot be trusted.
pub(super) fn read<'t>(reader: &mut Reader<'_>, text: &'t str) -> Option<DeTable<'t>> {
    let bytes = Bytes::new(text);
    let mut open: Vec<Open<'t>> = Vec::new();
    let mut whole = None;
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                let at = bytes.at(error.marker().index());
                reader.mistake(at..at, error.info().to_owned());
                return None;
            }
        };
        let place = bytes.place(span);
        let ended = match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    let hint = "write one file for each job";
                    reader.mistake_with_hint(place, "a second document in one job file", hint);
                    return None;
                }
                continue;
            }
            Event::Alias(_) => return refuse(reader, place, "an alias"),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                return refuse(reader, place, "an anchor");
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return refuse(reader, place, "a tag");
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == MAX_DEPTH => {
                reader.mistake(place, format!("nested deeper than {MAX_DEPTH} levels"));
                return None;
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(place, DeArray::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Table(place, DeTable::new(), None));
                continue;
            }
            Event::Scalar(value, style, ..) => {
                if let Some(Open::Table(_, _, key @ None)) = open.last_mut() {
                    *key = Some((place, value));
                    continue;
                }
                match scalar(text, &place, value, style) {
                    Some(value) => Spanned::new(place, value),
                    None => {
                        reader.mistake_with_hint(place, "null stands for no value", "leave the key out");
                        if let Some(Open::Table(_, _, key)) = open.last_mut() {
                            *key = None;
                        }
                        continue;
                    }
                }
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(place, list)) => Spanned::new(place, DeValue::Array(list)),
                Some(Open::Table(place, table, _)) => Spanned::new(place, DeValue::Table(table)),
                None => continue,
            },
            _ => continue,
        };
        match open.last_mut() {
            None => whole = Some(ended),
            Some(Open::List(_, list)) => list.push(ended),
            Some(Open::Table(_, table, key)) => {
                let Some((place, name)) = key.take() else {
                    reader.mistake(ended.span(), "a key must be text");
                    return None;
                };
                if table.contains_key(name.as_ref()) {
                    reader.mistake(place, format!("duplicate key `{name}`"));
                } else {
                    table.insert(Spanned::new(place, name), ended);
                }
            }
        }
    }
    match whole.map(Spanned::into_inner) {
        Some(DeValue::Table(table)) => Some(table),
        _ => {
            let hint = "begin with keys such as `description` and `task`";
            reader.mistake_with_hint(0..0, "a job file must be a table of keys and values", hint);
            None
        }
    }
}

fn refuse<T>(reader: &mut Reader<'_>, place: Place, what: &str) -> Option<T> {
    let hint = "write the value out, or use `vars` and `for_each`";
    reader.mistake_with_hint(place, format!("{what} of YAML is not read in a job file"), hint);
    None
}

/// The value of a scalar by YAML's core schema; `None` for null.
fn scalar<'t>(text: &'t str, place: &Place, value: Cow<'t, str>, style: ScalarStyle) -> Option<DeValue<'t>> {
    if style != ScalarStyle::Plain {
        return Some(DeValue::String(value));
    }
    match value.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => return None,
        "true" | "True" | "TRUE" => return Some(DeValue::Boolean(true)),
        "false" | "False" | "FALSE" => return Some(DeValue::Boolean(false)),
        _ => {}
    }
    let raw = text.get(place.clone()).unwrap_or_default().trim_end();
    // Numbers are written alike in TOML; the likes of 0x10 and 1_000 are text in YAML 1.2.
    let may_be_number = raw.bytes().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    match DeValue::parse(raw) {
        Ok(number)
            if may_be_number && matches!(number.get_ref(), DeValue::Integer(_) | DeValue::Float(_)) =>
        {
            Some(number.into_inner())
        }
        _ => Some(DeValue::String(value)),
    }
}

/// Byte offsets of the parser's places, which count characters.
struct Bytes {
    /// Empty if the text is ASCII, where both are the same.
    offsets: Vec<usize>,
    end: usize,
}

impl Bytes {
    fn new(text: &str) -> Self {
        let offsets =
            if text.is_ascii() { Vec::new() } else { text.char_indices().map(|(at, _)| at).collect() };
        Bytes { offsets, end: text.len() }
    }

    fn at(&self, index: usize) -> usize {
        if self.offsets.is_empty() {
            return index.min(self.end);
        }
        self.offsets.get(index).copied().unwrap_or(self.end)
    }

    fn place(&self, span: Span) -> Place {
        self.at(span.start.index())..self.at(span.end.index())
    }
}

/// Byte offset, in a scalar's raw text, of the `position`th character (from 1) of its value; 0 where the
/// value is written in a way (escapes, folding) that does not show it.
pub(super) fn raw_offset(raw: &str, value: &str, position: usize) -> usize {
    let at = value.char_indices().nth(position.saturating_sub(1)).map_or(value.len(), |(at, _)| at);
    let before = value.get(..at).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = at - before.rfind('\n').map_or(0, |end| end + 1);
    let wanted = value.split('\n').nth(line).unwrap_or_default();
    let is_block = raw.starts_with('|');
    if !is_block && value.trim_end().contains('\n') && raw.starts_with(['"', '\'', '>']) {
        return 0;
    }
    let mut start = 0;
    for (number, shown) in raw.split_inclusive('\n').enumerate() {
        if number == line + usize::from(is_block) {
            return shown.find(wanted).map_or(0, |indent| start + indent + column);
        }
        start += shown.len();
    }
    0
}
