//! How fast Yardmaster is, beside what PostgreSQL allows on the same machine in the same minutes.
//!
//! A plain program (`cargo bench --bench drain`, or `make bench`). It starts a private PostgreSQL with fsync on and default
//! durability, measures pgbench's yardsticks there ([`yardsticks`]), then runs the real binary's `serve` as an ordinary,
//! non-superuser service role with [`yard::EXECUTORS`] executors, and gives it work as an ordinary user ([`parts`]).
//! Every figure is printed with the yardstick it should be read beside: the ratio travels between machines, the figure
//! does not. Arguments name the parts to run (all without any); `--json FILE` also writes the figures for programs.

mod crowd;
mod parts;
mod report;
mod waits;
mod yard;
mod yardsticks;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use report::Report;
use yard::Yard;

/// The parts, in the order they are run. The yardsticks come first and have no name of their own: everything is read
/// beside them; `--no-yardsticks` skips them.
const PARTS: [(&str, &str); 8] = [
    ("latency", "commit to start and to done, one task at a time"),
    ("drain", "20,000 tasks that only read, 20,000 that insert a row"),
    ("graphs", "a chain, layers, a fan"),
    ("submit", "one job of 100,000 tasks"),
    ("waits", "how soon a wait and a cancel end"),
    ("crowd", "the drain beside millions of other tasks (takes minutes; only if named)"),
    ("idle", "what a service without work asks and burns"),
    ("memory", "of the service, idle and at its peak"),
];

#[derive(Debug, Default)]
struct Arguments {
    parts: Vec<String>,
    json: Option<PathBuf>,
    no_yardsticks: bool,
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments> {
        let mut parsed = Arguments::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Cargo says so to every benchmark.
                "--bench" => {}
                "--json" => {
                    parsed.json = Some(arguments.next().context("--json needs the name of a file")?.into())
                }
                "--no-yardsticks" => parsed.no_yardsticks = true,
                part if PARTS.iter().any(|(name, _)| *name == part) => parsed.parts.push(argument),
                other => bail!("unknown argument {other:?}\n\n{}", usage()),
            }
        }
        Ok(parsed)
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() && part != "crowd" || self.parts.iter().any(|p| p == part)
    }
}

fn usage() -> String {
    let parts: String = PARTS.iter().map(|(name, what)| format!("\n  {name:<8} {what}")).collect();
    format!("usage: cargo bench --bench drain -- [PART…] [--json FILE] [--no-yardsticks]\n\nparts:{parts}")
}

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // What was started ends with the future that is dropped.
        tokio::select! {
            measured = measure(&arguments) => measured,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let mut report = Report::default();
    let mut yard = Yard::build().await?;
    report.note("machine", machine(&yard).await?);
    if !arguments.no_yardsticks {
        yardsticks::measure(&yard, &mut report).await?;
    }
    yard.serve().await?;
    let idle = yard.service_memory("VmRSS")?;
    if arguments.wants("latency") {
        parts::latency(&yard, &mut report).await?;
    }
    if arguments.wants("drain") {
        parts::drain(&yard, &mut report).await?;
    }
    if arguments.wants("graphs") {
        parts::graphs(&yard, &mut report).await?;
    }
    if arguments.wants("submit") {
        parts::submit(&yard, &mut report).await?;
    }
    if arguments.wants("waits") {
        waits::waits(&yard, &mut report).await?;
    }
    if arguments.wants("crowd") {
        crowd::crowd(&yard, &mut report).await?;
    }
    if arguments.wants("idle") {
        waits::idle(&yard, &mut report).await?;
    }
    if arguments.wants("memory") {
        report.plain("memory", "idle, just started", idle, "MiB");
        report.plain("memory", "peak of this run", yard.service_memory("VmHWM")?, "MiB");
    }
    report.note("load at the end", load());
    yard.close().await?;
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.json()).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

async fn machine(yard: &Yard) -> Result<String> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let version: String = yard.admin.query_one("SELECT current_setting('server_version')", &[]).await?.get(0);
    Ok(format!("{cores} cores, load {}, PostgreSQL {version}, {} executors", load(), yard::EXECUTORS))
}

/// The load average of the last minute. Far above zero before the start means that others use the machine.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
