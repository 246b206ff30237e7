//! `job plan`: what a job file would do, checked as far as it can be without doing it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::submit::read_files;
use super::svg;
use crate::cli::context::parse_variable;
use crate::cli::error::submission;
use crate::cli::findings::{self, Finding};
use crate::cli::{CliError, Context, Exit, text};
use crate::db::inspect::plan::{self as catalog, Rehearsal, Surroundings};
use crate::db::inspect::service;
use crate::model::drawing::{self, Drawing};
use crate::model::plan::{self, Estimate, PlannedTask, Slots};
use crate::sql::{self, Inspection};

/// Tasks that are listed one by one.
const MAX_LISTED: usize = 200;
/// Tasks that one finding names.
const MAX_NAMED: usize = 8;

const EXAMPLES: &str = "\
Checks everything that a submission would, and more: grammar, graph, nodes, rights, statements that PostgreSQL refuses in
a transaction, limits that can never be met. Nothing is stored. Exits 2 if the job would not work. The estimate plays
the job in rounds, as if all commands took equally long.

Examples:
  yardmaster job plan nightly.toml
  yardmaster job plan nightly.toml --svg nightly.svg
  yardmaster job plan nightly.toml --offline            without a database
  yardmaster job plan nightly.toml -o json | jq .estimate";

/// Arguments of `job plan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// The job file; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Set a variable that the file declares in [vars]; may be repeated.
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,
    /// Draw the graph into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Ask no database: only what the file itself tells.
    #[arg(long)]
    offline: bool,
}

/// A job file's tasks, by place.
struct Draft {
    names: Vec<String>,
    tasks: Vec<PlannedTask>,
    edges: Vec<(usize, usize)>,
    owners: BTreeSet<String>,
    drawing: Drawing,
}

#[derive(Serialize)]
struct Told<'a> {
    tasks: usize,
    dependencies: usize,
    layers: Vec<Vec<&'a str>>,
    order: Vec<&'a str>,
    estimate: &'a Estimate,
    findings: &'a [Finding],
}

pub(super) async fn plan(context: &Context, args: &PlanArgs) -> Result<Exit, CliError> {
    let jobs = read_files(std::slice::from_ref(&args.file), &args.variables)?;
    let Some(job) = jobs.first() else { return Ok(Exit::Usage) };
    let draft = Draft::read(job);
    let mut findings = of_commands(job, &draft);
    let slots = if args.offline {
        let settings = context.settings()?;
        let of_node = settings.nodes.iter().filter_map(|(name, node)| {
            Some((name.clone(), usize::try_from(node.max_task_executors?).unwrap_or(usize::MAX)))
        });
        Slots {
            global: usize::try_from(settings.limits.max_task_executors).unwrap_or(usize::MAX),
            per_node: usize::try_from(settings.limits.max_task_executors_per_node).unwrap_or(usize::MAX),
            of_node: of_node.collect(),
        }
    } else {
        ask(context, job, &draft, &mut findings).await?
    };
    findings.sort_by_key(|finding| finding.severity);
    let estimate = plan::estimate(&draft.tasks, &slots);
    if let Some(file) = &args.svg {
        std::fs::write(file, svg::draw(&draft.names, &draft.drawing))
            .map_err(|e| CliError::Usage(format!("{} cannot be written: {e}", file.display())))?;
    }
    if context.output.is_json() {
        context.output.json(&draft.told(&estimate, &findings))?;
    } else {
        context.output.line(&draft.text(&estimate, &slots))?;
        findings::print(&context.output, &findings)?;
        context.output.line("nothing was stored")?;
    }
    Ok(if findings::has_error(&findings) { Exit::Usage } else { Exit::Well })
}

/// Asks the catalog; the slots are those that the leader published.
async fn ask(
    context: &Context,
    job: &Value,
    draft: &Draft,
    findings: &mut Vec<Finding>,
) -> Result<Slots, CliError> {
    let mut connection = context.connect().await?;
    match catalog::rehearse(&mut connection.client, job).await.map_err(submission) {
        Ok(Rehearsal::New) => {}
        Ok(Rehearsal::Known(id)) => findings.push(Finding::note(
            "key",
            format!("the key was submitted before: submitting the file again gives job {id}"),
        )),
        // What the catalog says to this job is a finding among others; without an answer there is no plan.
        Err(CliError::Submission(e)) => {
            findings.push(Finding::error("catalog", e.to_string(), e.hint().unwrap_or_default()));
        }
        Err(CliError::Query(e @ crate::db::inspect::QueryError::Denied { .. })) => {
            findings.push(Finding::error("rights", e.to_string(), e.hint().unwrap_or_default()));
        }
        Err(e) => return Err(e),
    }
    let owners: Vec<String> = draft.owners.iter().cloned().collect();
    let around = catalog::surroundings(&connection.client, &owners).await?;
    findings.extend(of_surroundings(draft, &around));
    if !service::leader(&connection.client).await?.alive {
        findings.push(Finding::warning(
            "service",
            "no service runs on this database: the job would wait",
            "start `yardmaster serve`",
        ));
    }
    let published =
        |key: &str, default| around.settings.get(key).and_then(|n| n.parse().ok()).unwrap_or(default);
    let of_node = around
        .nodes
        .iter()
        .map(|(name, node)| (name.clone(), usize::try_from(node.max_task_executors).unwrap_or(1)));
    Ok(Slots {
        global: published("max_task_executors", 4),
        per_node: published("max_task_executors_per_node", 1),
        of_node: of_node.collect(),
    })
}

impl Draft {
    fn read(job: &Value) -> Self {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let texts = |value: &Value, key: &str| -> Vec<String> {
            let list = value.get(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let priority = |value: &Value| value.get("priority").and_then(Value::as_i64);
        let given: &[Value] = job.get("task").and_then(Value::as_array).map_or(&[], Vec::as_slice);
        let names: Vec<String> = given
            .iter()
            .enumerate()
            .map(|(place, task)| text(task, "name").unwrap_or_else(|| format!("#{}", place + 1)))
            .collect();
        let places: HashMap<&str, usize> =
            names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        let tasks: Vec<PlannedTask> = given
            .iter()
            .map(|task| PlannedTask {
                nodes: text(task, "node").into_iter().chain(texts(task, "nodes_involved")).collect(),
                priority: priority(task)
                    .or_else(|| priority(job))
                    .and_then(|n| i32::try_from(n).ok())
                    .unwrap_or(0),
                depends_on: texts(task, "depends_on")
                    .iter()
                    .filter_map(|name| places.get(name.as_str()).copied())
                    .collect(),
            })
            .collect();
        let edges: Vec<(usize, usize)> = tasks
            .iter()
            .enumerate()
            .flat_map(|(place, task)| task.depends_on.iter().map(move |&other| (place, other)))
            .collect();
        let owners = given.iter().filter_map(|task| text(task, "owner")).chain(text(job, "owner")).collect();
        let drawing = drawing::draw(tasks.len(), &edges);
        Self { names, tasks, edges, owners, drawing }
    }

    fn told<'a>(&'a self, estimate: &'a Estimate, findings: &'a [Finding]) -> Told<'a> {
        let name = |&task: &usize| self.names[task].as_str();
        Told {
            tasks: self.tasks.len(),
            dependencies: self.edges.len(),
            layers: self.drawing.rows().iter().map(|row| row.iter().map(name).collect()).collect(),
            order: estimate.order.iter().map(name).collect(),
            estimate,
            findings,
        }
    }

    /// The graph layer by layer, and the estimate.
    fn text(&self, estimate: &Estimate, slots: &Slots) -> String {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let edges = self.edges.len();
        let mut lines = vec![format!(
            "{}, {} {}, {}",
            text::plural(count(self.tasks.len()), "task"),
            text::count(count(edges)),
            if edges == 1 { "dependency" } else { "dependencies" },
            text::plural(count(self.drawing.layers), "layer")
        )];
        let listed = self.tasks.len() <= MAX_LISTED;
        for (layer, row) in self.drawing.rows().iter().enumerate().take(MAX_LISTED) {
            let head = format!("layer {:<4}", layer + 1);
            if !listed {
                lines.push(format!("{head}{}", text::plural(count(row.len()), "task")));
                continue;
            }
            for (place, &task) in row.iter().enumerate() {
                let head = if place == 0 { head.as_str() } else { "" };
                lines.push(format!("{head:<10}{}", self.task_line(task)));
            }
        }
        lines.push(format!(
            "estimate  {} of at most {} at once; the longest path has {} (slots: {} in all, {} a node)",
            text::plural(count(estimate.rounds), "round"),
            text::plural(count(estimate.most_at_once), "task"),
            text::plural(count(estimate.longest_path), "task"),
            slots.global,
            slots.per_node
        ));
        lines.join("\n")
    }

    fn task_line(&self, task: usize) -> String {
        let planned = &self.tasks[task];
        let mut line = text::inert(&self.names[task]).into_owned();
        if !planned.nodes.is_empty() {
            line.push_str(&format!(" on {}", text::inert(&planned.nodes.join(", "))));
        }
        if !planned.depends_on.is_empty() {
            let names: Vec<&str> =
                planned.depends_on.iter().map(|&other| self.names[other].as_str()).collect();
            line.push_str(&format!(" ← {}", text::inert(&names.join(", "))));
        }
        line
    }
}

/// What the commands themselves tell.
fn of_commands(job: &Value, draft: &Draft) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut outside = Vec::new();
    let given = job.get("task").and_then(Value::as_array);
    for (task, name) in given.into_iter().flatten().zip(&draft.names) {
        let command = task.get("command").and_then(Value::as_str).unwrap_or_default();
        let forced = task.get("transactional").and_then(Value::as_bool);
        match sql::inspect(command) {
            Err(refusal) => findings.push(Finding::error(
                "command",
                format!("task {name}: {refusal}"),
                refusal.remedy().unwrap_or("correct the command"),
            )),
            Ok(Inspection::NonTransactional) if forced == Some(true) => findings.push(Finding::error(
                "command",
                format!("task {name} is forced into a transaction, in which PostgreSQL refuses its command"),
                "leave `transactional` out",
            )),
            Ok(Inspection::NonTransactional) => outside.push(name.as_str()),
            Ok(_) if forced == Some(false) => outside.push(name.as_str()),
            Ok(Inspection::Transactional | Inspection::RetryOutside | Inspection::Empty) => {}
        }
    }
    if !outside.is_empty() {
        findings.push(Finding::note(
            "exactly once",
            format!("outside a transaction, so after a crash they may run twice: {}", some_of(&outside)),
        ));
    }
    findings
}

/// What is there for the job: owners, nodes.
fn of_surroundings(draft: &Draft, around: &Surroundings) -> Vec<Finding> {
    let mut findings = Vec::new();
    for owner in around.owners.iter().filter(|owner| !owner.can_login) {
        findings.push(Finding::error(
            "owner",
            format!("role {} may not log in, and tasks run in a session of their owner", owner.name),
            format!("give role {} the right to log in, or name another owner", owner.name),
        ));
    }
    let mut burden: BTreeMap<&str, i64> = BTreeMap::new();
    for node in draft.tasks.iter().flat_map(|task| &task.nodes) {
        *burden.entry(node).or_insert(0) += 1;
    }
    let mut undeclared = Vec::new();
    for (name, tasks) in burden {
        let Some(node) = around.nodes.get(name) else {
            undeclared.push(name);
            continue;
        };
        if node.max_tracked_tasks.is_some_and(|limit| i64::from(limit) < tasks) {
            findings.push(Finding::error(
                "node",
                format!(
                    "{} for node {name}, which takes no more than {} that have not ended",
                    text::plural(tasks, "task"),
                    node.max_tracked_tasks.unwrap_or_default()
                ),
                format!("make several jobs of it, or raise nodes.{name}.max_tracked_tasks"),
            ));
        }
        if node.state != "active" {
            findings.push(Finding::warning(
                "node",
                format!(
                    "node {name} is {}: {}",
                    node.state,
                    node.reason.as_deref().unwrap_or("no reason given")
                ),
                "the tasks wait until it is active again",
            ));
        }
    }
    if !undeclared.is_empty() {
        findings.push(Finding::note(
            "node",
            format!("not declared in the settings, so they have the default limit: {}", some_of(&undeclared)),
        ));
    }
    findings
}

fn some_of(names: &[&str]) -> String {
    let mut shown = names.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED {
        shown.push_str(&format!(" and {} more", names.len() - MAX_NAMED));
    }
    shown
}
