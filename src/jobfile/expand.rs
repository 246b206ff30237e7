//! What a job file abbreviates, written out before its tasks are read: `[vars]`, `for_each`, `command_file`.
//!
//! `${name}` stands for a variable of `[vars]`, `${each}` for the value at hand of a task with `for_each`. A
//! file without either is left as it is, `${` and all. Nothing else is replaced, so that SQL's own `$` (in
//! `$1`, `$$`, `$tag$`) need not be escaped.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::jobfile::Options;
use crate::jobfile::reader::{self, Place, Reader, Section, nearest};

/// More tasks than this from one `for_each` are taken for a mistake.
const MAX_EXPANSION: i64 = 100_000;
/// Stands for the value at hand.
const EACH: &str = "${each}";

type Variables = BTreeMap<String, String>;

/// Writes the document out.
pub(super) fn expand(reader: &mut Reader<'_>, document: &mut DeTable<'_>, options: &Options<'_>) {
    let variables = read_variables(reader, document, options);
    document.remove("vars");
    if let Some(variables) = &variables {
        for (key, value) in document.iter_mut() {
            if key.get_ref() != "task" {
                substitute(reader, value, variables, true);
            }
        }
    }
    let Some(DeValue::Array(tasks)) = document.get_mut("task").map(Spanned::get_mut) else { return };
    let mut groups = HashMap::new();
    let mut written = DeArray::new();
    for mut task in std::mem::replace(tasks, DeArray::new()) {
        if let DeValue::Table(table) = task.get_mut() {
            read_command_file(reader, table, options);
        }
        if let Some(variables) = &variables {
            substitute(reader, &mut task, variables, true);
        }
        expand_task(reader, task, &mut groups, &mut written);
    }
    for task in written.iter_mut() {
        name_groups(task, &groups);
    }
    *tasks = written;
}

fn read_variables(
    reader: &mut Reader<'_>,
    document: &DeTable<'_>,
    options: &Options<'_>,
) -> Option<Variables> {
    let mut variables = Variables::new();
    let declared = document.get("vars");
    if let Some(value) = declared {
        let Some(table) = value.get_ref().as_table() else {
            reader::wrong_type(reader, "vars", "a table", value);
            return None;
        };
        for (key, value) in table.iter() {
            let name = key.get_ref();
            if !is_name(name) || name == "each" {
                let hint = "take letters, digits and _, not beginning with a digit; `each` is for_each's own";
                reader.mistake_with_hint(key.span(), format!("`{name}` is no name of a variable"), hint);
            }
            match plain(value.get_ref()) {
                Some(text) => drop(variables.insert(name.to_string(), text)),
                None => reader::wrong_type(reader, name, "text, a number, true or false", value),
            }
        }
    }
    for (name, value) in options.variables {
        if variables.contains_key(name) {
            variables.insert(name.clone(), value.clone());
            continue;
        }
        let hint = match nearest(name, variables.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare it with its default in [vars]".to_owned(),
        };
        let place = declared.map_or(0..0, Spanned::span);
        reader.mistake_with_hint(
            place,
            format!("--var sets `{name}`, which the file does not declare"),
            hint,
        );
    }
    declared.map(|_| variables)
}

/// The text of a value that has one.
fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Datetime(moment) => Some(moment.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Replaces variables in all text below `value`; with `strict`, reports those that are not declared.
fn substitute(
    reader: &mut Reader<'_>,
    value: &mut Spanned<DeValue<'_>>,
    variables: &Variables,
    strict: bool,
) {
    let place = value.span();
    match value.get_mut() {
        DeValue::String(text) => {
            if let Some(new) = replaced(reader, text, variables, strict.then_some(&place)) {
                reader.note_rewritten(place.start);
                *text = Cow::Owned(new);
            }
        }
        DeValue::Array(list) => {
            list.iter_mut().for_each(|value| substitute(reader, value, variables, strict));
        }
        DeValue::Table(table) => {
            table.iter_mut().for_each(|(_, value)| substitute(reader, value, variables, strict));
        }
        _ => {}
    }
}

/// The text with its variables replaced; `None` if there are none.
fn replaced(
    reader: &mut Reader<'_>,
    text: &str,
    variables: &Variables,
    strict: Option<&Place>,
) -> Option<String> {
    let mut new = String::new();
    let (mut rest, mut found) = (text, false);
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        new.push_str(before);
        let name = from.find('}').and_then(|end| from.get(2..end)).filter(|name| is_name(name));
        // `$${a}$$` is a quoted string of SQL.
        let is_quote = before.ends_with('$');
        let Some(name) = name.filter(|_| !is_quote) else {
            new.push_str("${");
            rest = &from[2..];
            continue;
        };
        match variables.get(name) {
            Some(value) => {
                found = true;
                new.push_str(value);
            }
            None => {
                new.push_str(&from[..name.len() + 3]);
                if let Some(place) = strict.filter(|_| name != "each") {
                    let hint = nearest(name, variables.keys().map(String::as_str))
                        .map(|near| format!("did you mean `{near}`?"));
                    reader.add(place.clone(), format!("unknown variable `{name}`"), hint);
                }
            }
        }
        rest = &from[name.len() + 3..];
    }
    new.push_str(rest);
    found.then_some(new)
}

/// Puts the text of `command_file` in the place of its name.
fn read_command_file(reader: &mut Reader<'_>, table: &mut DeTable<'_>, options: &Options<'_>) {
    let section = Section { what: "the task", table };
    if section.get("command_file").is_none() {
        return;
    }
    let Some(name) = section.text(reader, "command_file", 4096) else {
        table.remove("command_file");
        return;
    };
    let Some((key, _)) = table.remove_entry("command_file") else { return };
    if table.contains_key("command") {
        let hint = "leave one of them out";
        reader.mistake_with_hint(name.place, "a task has `command` or `command_file`, not both", hint);
        return;
    }
    let text = match (options.read_file)(&name.value) {
        Ok(text) => text,
        Err(why) => {
            reader.mistake(name.place.clone(), format!("`command_file`: \"{}\" {why}", name.value));
            // A command that passes, so that only this is reported.
            "SELECT".to_owned()
        }
    };
    reader.note_file(name.place.start, &name.value, &text);
    let value = Spanned::new(name.place, DeValue::String(Cow::Owned(text)));
    table.insert(Spanned::new(key.span(), Cow::Borrowed("command")), value);
}

/// Writes out one task with `for_each`, and remembers the names that it becomes.
fn expand_task<'t>(
    reader: &mut Reader<'_>,
    mut task: Spanned<DeValue<'t>>,
    groups: &mut HashMap<String, Vec<String>>,
    written: &mut DeArray<'t>,
) {
    let each = match task.get_mut() {
        DeValue::Table(table) => table.remove("for_each"),
        _ => None,
    };
    let Some(each) = each else {
        written.push(task);
        return;
    };
    let name =
        task.get_ref().get("name").map(|name| (name.span(), name.get_ref().as_str().map(str::to_owned)));
    if let Some((place, Some(name))) = &name
        && !name.contains(EACH)
    {
        let hint = format!("write \"{name}_{EACH}\"");
        reader.mistake_with_hint(place.clone(), "the name of a task with `for_each` must hold ${each}", hint);
        return;
    }
    for value in values(reader, &each) {
        let variables = Variables::from([("each".to_owned(), value)]);
        let mut copy = task.clone();
        substitute(reader, &mut copy, &variables, false);
        if let Some((_, Some(template))) = &name
            && let Some(name) = copy.get_ref().get("name").and_then(|name| name.get_ref().as_str())
        {
            groups.entry(template.clone()).or_default().push(name.to_owned());
        }
        written.push(copy);
    }
}

/// The values of `for_each`: those of a list, or the whole numbers of `{ from, to }`, both included.
fn values(reader: &mut Reader<'_>, each: &Spanned<DeValue<'_>>) -> Vec<String> {
    match each.get_ref() {
        DeValue::Array(list) => {
            if list.is_empty() {
                reader.mistake(each.span(), "`for_each` is empty");
            }
            let mut values = Vec::with_capacity(list.len());
            for value in list.iter() {
                match plain(value.get_ref()) {
                    Some(text) if values.contains(&text) => {
                        reader.mistake(value.span(), format!("`for_each` names \"{text}\" twice"));
                    }
                    Some(text) => values.push(text),
                    None => reader::wrong_type(reader, "for_each", "a list of text or numbers", value),
                }
            }
            values
        }
        DeValue::Table(table) => {
            let section = Section { what: "`for_each`", table };
            section.check_keys(reader, &["from", "to"]);
            let mut bound = |key| {
                if section.get(key).is_none() {
                    reader.mistake(each.span(), format!("`for_each` has no `{key}`"));
                }
                section.integer(reader, key, i32::MIN, i32::MAX).map(i64::from)
            };
            let (Some(from), Some(to)) = (bound("from"), bound("to")) else { return Vec::new() };
            if !(1..=MAX_EXPANSION).contains(&(to - from + 1)) {
                let message =
                    format!("`for_each` from {from} to {to} is not between 1 and {MAX_EXPANSION} tasks");
                reader.mistake(each.span(), message);
                return Vec::new();
            }
            (from..=to).map(|number| number.to_string()).collect()
        }
        _ => {
            reader::wrong_type(reader, "for_each", "a list or { from = 1, to = 8 }", each);
            Vec::new()
        }
    }
}

/// A dependency on `part_${each}` from outside is one on all that it became.
fn name_groups(task: &mut Spanned<DeValue<'_>>, groups: &HashMap<String, Vec<String>>) {
    let DeValue::Table(table) = task.get_mut() else { return };
    let Some(DeValue::Array(names)) = table.get_mut("depends_on").map(Spanned::get_mut) else { return };
    let mut all = DeArray::new();
    for name in std::mem::replace(names, DeArray::new()) {
        match name.get_ref().as_str().and_then(|name| groups.get(name)) {
            Some(group) => {
                for member in group {
                    all.push(Spanned::new(name.span(), DeValue::String(Cow::Owned(member.clone()))));
                }
            }
            None => all.push(name),
        }
    }
    *names = all;
}
