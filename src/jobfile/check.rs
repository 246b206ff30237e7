//! What concerns several tasks at once: names, dependencies, nodes. And each task's SQL.

use std::collections::{BTreeSet, HashMap};

use crate::jobfile::command::raw_offset;
use crate::jobfile::fields::{Draft, Places};
use crate::jobfile::job::Task;
use crate::jobfile::reader::{Place, Reader, nearest};
use crate::jobfile::{Format, yaml};
use crate::model::graph::{self, Layout};
use crate::sql::{self, Refusal};

/// Cycles reported one by one; the rest shows when these are mended.
const MAX_CYCLES: usize = 10;
/// Tasks of one cycle that a message names.
const MAX_CYCLE_NAMES: usize = 12;

/// Checks the tasks against one another and returns the order in which to submit them: their places in the
/// file. `None` if there is no such order.
pub(super) fn check(
    reader: &mut Reader<'_>,
    draft: &Draft,
    known_nodes: Option<&BTreeSet<String>>,
) -> Option<Vec<usize>> {
    let names = check_names(reader, &draft.tasks);
    for (places, task) in &draft.tasks {
        check_command(reader, places, task);
        check_around(reader, places, task);
        check_node(reader, places, task, known_nodes);
    }
    let edges = check_dependencies(reader, &draft.tasks, &names);
    let layout = graph::layout(draft.tasks.len(), &edges);
    if layout.is_none() {
        report_cycles(reader, &draft.tasks, &edges);
    }
    layout.map(|Layout { order, .. }| order)
}

/// Reports duplicates; returns the first place of each name.
fn check_names<'d>(reader: &mut Reader<'_>, tasks: &'d [(Places, Task)]) -> HashMap<&'d str, usize> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (at, (places, task)) in tasks.iter().enumerate() {
        let Some(place) = &places.name else { continue };
        match names.get(task.name.as_str()).and_then(|&first| tasks[first].0.name.as_ref()) {
            Some(first) => {
                let message = format!("duplicate task name \"{}\"", task.name);
                let line = reader.source().line(first.start);
                reader.mistake_with_hint(place.clone(), message, format!("the first one is in line {line}"));
            }
            None => {
                names.insert(&task.name, at);
            }
        }
    }
    names
}

fn check_command(reader: &mut Reader<'_>, places: &Places, task: &Task) {
    let Some(place) = &places.command else { return };
    if sql::is_blank(&task.command) {
        reader.mistake(place.clone(), format!("`command` of {} is empty", label(task)));
        return;
    }
    let inspected = sql::inspect(&task.command);
    let refusal = match (&task.output, inspected) {
        (None, Ok(_)) => return,
        (Some(_), Err(Refusal::ClientCopy { .. })) if sql::copies_out(&task.command) => return,
        (Some(_), Ok(_)) => {
            let message = format!("{} has `output`, but its command is no COPY … TO STDOUT", label(task));
            reader.mistake_with_hint(place.clone(), message, "make it COPY (SELECT …) TO STDOUT, alone");
            return;
        }
        (_, Err(refusal)) => refusal,
    };
    report(reader, place, &task.command, &refusal, &label(task));
}

fn check_around(reader: &mut Reader<'_>, places: &Places, task: &Task) {
    for (what, place, text) in [("verify", &places.verify, &task.verify), ("undo", &places.undo, &task.undo)]
    {
        let (Some(place), Some(text)) = (place, text) else { continue };
        match sql::inspect(text) {
            Err(refusal) => report(reader, place, text, &refusal, &format!("`{what}` of {}", label(task))),
            Ok(_) if what == "verify" && sql::sole_statement(text).is_none() => {
                let message =
                    format!("`verify` of {} must be one query that yields true or false", label(task));
                reader.mistake(place.clone(), message);
            }
            Ok(_) => {}
        }
    }
}

fn report(reader: &mut Reader<'_>, place: &Place, sql: &str, refusal: &Refusal, whose: &str) {
    let message = match &refusal {
        Refusal::Syntax { .. } => format!("SQL of {whose}: {refusal}"),
        _ => format!("{whose}: {refusal}"),
    };
    let text = reader.source().text();
    let is_rewritten = reader.is_rewritten(place.start);
    let within = if is_rewritten { 0..0 } else { word_at(sql, char_offset(sql, refusal.position())) };
    if reader.add_in_file(place.start, &within, &message, refusal.remedy()) {
        return;
    }
    let raw = text.get(place.clone()).unwrap_or_default();
    let at = match reader.format() {
        // Where the SQL says it is not where the file has it.
        _ if is_rewritten => 0,
        Format::Toml => raw_offset(raw, refusal.position()),
        Format::Yaml | Format::Json => yaml::raw_offset(raw, sql, refusal.position()),
    };
    reader.add(word_at(text, place.start + at), message, refusal.remedy().map(str::to_owned));
}

/// The byte offset of the `position`th character, from 1.
fn char_offset(text: &str, position: usize) -> usize {
    text.char_indices().nth(position.saturating_sub(1)).map_or(text.len(), |(at, _)| at)
}

/// The word at a byte offset, for the caret.
fn word_at(text: &str, at: usize) -> Place {
    let word = text.get(at..).unwrap_or_default();
    at..at + word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len())
}

fn check_node(reader: &mut Reader<'_>, places: &Places, task: &Task, known: Option<&BTreeSet<String>>) {
    let Some(known) = known else { return };
    for (node, place) in task.node.iter().zip(&places.node).filter(|(node, _)| !known.contains(*node)) {
        unknown_node(reader, place, node, known);
    }
}

fn unknown_node(reader: &mut Reader<'_>, place: &Place, node: &str, known: &BTreeSet<String>) {
    let hint = match nearest(node, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => "the settings declare no node; add one as [nodes.NAME]".to_owned(),
        None => {
            format!("declared nodes: {}", known.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
    };
    reader.mistake_with_hint(place.clone(), format!("unknown node \"{node}\""), hint);
}

/// Reports unknown names and self-dependencies; returns the other edges, by places in the file.
fn check_dependencies(
    reader: &mut Reader<'_>,
    tasks: &[(Places, Task)],
    names: &HashMap<&str, usize>,
) -> Vec<(usize, usize)> {
    let mut edges = Vec::new();
    for (at, (places, task)) in tasks.iter().enumerate() {
        for (name, place) in task.depends_on.iter().zip(&places.depends_on) {
            match names.get(name.as_str()) {
                _ if *name == task.name => {
                    reader.mistake(place.clone(), format!("task \"{name}\" depends on itself"));
                }
                Some(&other) => edges.push((at, other)),
                None => {
                    let message = format!("unknown task \"{name}\" in `depends_on` of {}", label(task));
                    let hint = similar_task(reader, tasks, task, name);
                    reader.add(place.clone(), message, hint);
                }
            }
        }
    }
    edges
}

/// Suggests the task that `task` may mean by `name`. Each search looks at all names, so it is given up after
/// many mistakes.
fn similar_task(reader: &Reader<'_>, tasks: &[(Places, Task)], task: &Task, name: &str) -> Option<String> {
    if !reader.has_room_for_advice() {
        return None;
    }
    let names = tasks.iter().map(|(_, other)| other.name.as_str());
    let near = nearest(name, names.filter(|other| *other != task.name && !other.is_empty()))?;
    Some(format!("did you mean \"{near}\"?"))
}

/// Reports cycles at the edges that close them.
fn report_cycles(reader: &mut Reader<'_>, tasks: &[(Places, Task)], edges: &[(usize, usize)]) {
    let ids: Vec<(i64, i64)> = edges.iter().map(|&(a, b)| (id(a), id(b))).collect();
    for path in graph::cycle_paths(&ids, MAX_CYCLES) {
        let cycle: Vec<&(Places, Task)> =
            path.iter().filter_map(|&id| tasks.get(usize::try_from(id).ok()?)).collect();
        let (Some((_, first)), Some((places, last))) = (cycle.first(), cycle.last()) else { continue };
        let mut names: Vec<&str> =
            cycle.iter().take(MAX_CYCLE_NAMES).map(|(_, task)| task.name.as_str()).collect();
        if cycle.len() > MAX_CYCLE_NAMES {
            names.push("…");
        }
        names.push(&first.name);
        let closing = last.depends_on.iter().position(|name| *name == first.name);
        let place = closing.and_then(|at| places.depends_on.get(at)).unwrap_or(&places.header).clone();
        let message = format!("dependencies form a cycle: {}", names.join(" → "));
        reader.mistake_with_hint(
            place,
            message,
            "each task waits for the one after the arrow; remove one dependency",
        );
    }
}

/// How messages speak of a task, named or not.
fn label(task: &Task) -> String {
    if task.name.is_empty() { "the task".to_owned() } else { format!("task \"{}\"", task.name) }
}

fn id(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}
