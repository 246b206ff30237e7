//! Takes typed values out of a TOML table by key and collects mistakes instead of stopping at the first.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::jobfile::Format;
use crate::jobfile::mistake::{Mistake, Source};

/// How alike two names must be for a suggestion (Jaro-Winkler, 0 to 1): a slip or two in a word, not another
/// word.
const SUGGESTION_THRESHOLD: f64 = 0.8;
/// Bound of the mistakes kept: enough to be "all" for a person, whatever the size of the file.
const MAX_MISTAKES: usize = 1_000;
/// Mistakes for which a similar name is looked up among those of the file.
const MAX_ADVISED: usize = 50;

/// Where a value stands: byte offsets of the file.
pub(super) type Place = Range<usize>;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// The collector of mistakes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    source: Source<'a>,
    format: Format,
    mistakes: Vec<Mistake>,
    /// Where text stands that is not as in the file, since variables were replaced in it.
    rewritten: HashSet<usize>,
    /// Name and text of the file that was read for a `command_file`, by the place of its name.
    files: HashMap<usize, (String, String)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, format: Format) -> Self {
        Reader {
            source: Source::new(file, text),
            format,
            mistakes: Vec::new(),
            rewritten: HashSet::new(),
            files: HashMap::new(),
        }
    }

    pub(super) fn source(&self) -> &Source<'a> {
        &self.source
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    pub(super) fn mistake(&mut self, place: Place, message: impl Into<String>) {
        self.add(place, message.into(), None);
    }

    pub(super) fn mistake_with_hint(
        &mut self,
        place: Place,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(place, message.into(), Some(hint.into()));
    }

    pub(super) fn add(&mut self, place: Place, message: String, hint: Option<String>) {
        if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(self.source.mistake(place, message, hint));
        }
    }

    /// Remembers that the text that begins at `place` is no longer what the file says.
    pub(super) fn note_rewritten(&mut self, place: usize) {
        self.rewritten.insert(place);
    }

    pub(super) fn is_rewritten(&self, place: usize) -> bool {
        self.rewritten.contains(&place)
    }

    /// Remembers the file whose name begins at `place`.
    pub(super) fn note_file(&mut self, place: usize, name: &str, text: &str) {
        self.files.insert(place, (name.to_owned(), text.to_owned()));
    }

    /// Reports a mistake in the file whose name begins at `place`; tells whether there is one.
    pub(super) fn add_in_file(
        &mut self,
        place: usize,
        within: &Place,
        message: &str,
        hint: Option<&str>,
    ) -> bool {
        let Some((name, text)) = self.files.get(&place) else { return false };
        if self.mistakes.len() < MAX_MISTAKES {
            let hint = hint.map(str::to_owned);
            self.mistakes.push(Source::new(name, text).mistake(within.clone(), message.to_owned(), hint));
        }
        true
    }

    /// Tells whether looking for a suggestion is still worth the time.
    pub(super) fn has_room_for_advice(&self) -> bool {
        self.mistakes.len() < MAX_ADVISED
    }

    pub(super) fn is_clean(&self) -> bool {
        self.mistakes.is_empty()
    }

    /// The mistakes by place.
    pub(super) fn into_mistakes(mut self) -> Vec<Mistake> {
        self.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        self.mistakes
    }
}

/// A table being read; `what` names it in messages (`the job`, `task "a"`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'t, 'i> {
    pub(super) what: &'t str,
    pub(super) table: &'t DeTable<'i>,
}

impl<'t, 'i> Section<'t, 'i> {
    /// Reports keys that are not in `known`.
    pub(super) fn check_keys(&self, reader: &mut Reader<'_>, known: &[&str]) {
        for key in self.table.keys() {
            let name = key.get_ref();
            if known.contains(&name.as_ref()) {
                continue;
            }
            let message = format!("unknown key `{name}` in {}", self.what);
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys: {}", known.join(", ")),
            };
            reader.mistake_with_hint(key.span(), message, hint);
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.table.get(key)
    }

    /// Reads text of `1..=max` characters.
    pub(super) fn text(&self, reader: &mut Reader<'_>, key: &str, max: usize) -> Option<Placed<String>> {
        text(reader, key, self.get(key)?, max)
    }

    pub(super) fn bool(&self, reader: &mut Reader<'_>, key: &str) -> Option<bool> {
        let value = self.get(key)?;
        let found = value.get_ref().as_bool();
        if found.is_none() {
            wrong_type(reader, key, "true or false", value);
        }
        found
    }

    /// Reads a whole number between two bounds.
    pub(super) fn integer(&self, reader: &mut Reader<'_>, key: &str, min: i32, max: i32) -> Option<i32> {
        let value = self.get(key)?;
        let DeValue::Integer(number) = value.get_ref() else {
            wrong_type(reader, key, "a whole number", value);
            return None;
        };
        let found =
            i32::from_str_radix(number.as_str(), number.radix()).ok().filter(|n| (min..=max).contains(n));
        if found.is_none() {
            reader
                .mistake(value.span(), format!("`{key}` is {number}, which is not between {min} and {max}"));
        }
        found
    }

    /// Reads a number between 0 and 1; a whole one will do.
    pub(super) fn share(&self, reader: &mut Reader<'_>, key: &str) -> Option<f64> {
        let value = self.get(key)?;
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            _ => {
                wrong_type(reader, key, "a number between 0.0 and 1.0", value);
                return None;
            }
        };
        let found = number.filter(|n| (0.0..=1.0).contains(n));
        if found.is_none() {
            reader.mistake(value.span(), format!("`{key}` is not between 0.0 and 1.0"));
        }
        found
    }

    /// Reads a list, element by element with `read`; `None` if the key is absent or not a list.
    pub(super) fn list<T>(
        &self,
        reader: &mut Reader<'_>,
        key: &str,
        mut read: impl FnMut(&mut Reader<'_>, &Spanned<DeValue<'i>>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let value = self.get(key)?;
        let Some(elements) = value.get_ref().as_array() else {
            wrong_type(reader, key, "a list in [ ]", value);
            return None;
        };
        Some(elements.iter().filter_map(|element| read(reader, element)).collect())
    }
}

/// Reads text of `1..=max` characters without NUL, which PostgreSQL cannot store.
pub(super) fn text(
    reader: &mut Reader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    max: usize,
) -> Option<Placed<String>> {
    let Some(text) = value.get_ref().as_str() else {
        wrong_type(reader, key, "text in quotes", value);
        return None;
    };
    let length = text.chars().count();
    if length == 0 {
        reader.mistake(value.span(), format!("`{key}` is empty"));
    } else if length > max {
        reader.mistake(value.span(), format!("`{key}` has {length} characters, more than {max}"));
    } else if text.contains('\0') {
        reader.mistake(value.span(), format!("`{key}` holds a NUL character, which PostgreSQL cannot store"));
    } else {
        return Some(Placed { value: text.to_owned(), place: value.span() });
    }
    None
}

/// Reports a value of the wrong type.
pub(super) fn wrong_type(reader: &mut Reader<'_>, key: &str, expected: &str, value: &Spanned<DeValue<'_>>) {
    let found = match value.get_ref() {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    reader.mistake(value.span(), format!("`{key}` must be {expected}, not {found}"));
}

/// The candidate most like `name`, if one is like it at all.
pub(super) fn nearest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= SUGGESTION_THRESHOLD)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
