//! pgbench's yardsticks: see `benches/limits/README.md`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::report::Report;
use crate::yard::{EXECUTORS, Yard};

/// How long each script runs.
const SECONDS: u32 = 3;
/// Rows of `limits.task` for each client; the scripts know the number too.
const ROWS_PER_CLIENT: u32 = 20_000;
/// The scripts, in `benches/limits/`.
const SCRIPTS: [&str; 5] = ["life_1x1", "life_b100_pipe", "life_b100_sel_b100", "commit_insert", "select1"];

const TABLES: &str = "
CREATE SCHEMA limits;
CREATE TABLE limits.task (id bigint PRIMARY KEY, state smallint NOT NULL DEFAULT 0, started timestamptz,
                          finished timestamptz, body text) WITH (fillfactor = 80);
CREATE TABLE limits.tiny (id bigserial PRIMARY KEY, x integer)";

/// The name under which loading rows in one statement is a yardstick; it is no script.
pub const BULK: &str = "rows of one INSERT … SELECT";

/// Makes the tables, runs the scripts, and takes the rates into the report. Without pgbench it says so.
pub async fn measure(yard: &Yard, report: &mut Report) -> Result<()> {
    yard.admin.batch_execute(TABLES).await?;
    let rows = i64::from(ROWS_PER_CLIENT * EXECUTORS);
    let started = Instant::now();
    let load =
        "INSERT INTO limits.task (id, body) SELECT i, 'SELECT 1' FROM generate_series(0, $1::bigint - 1) i";
    yard.admin.execute(load, &[&rows]).await?;
    report.yardstick(BULK, 1, f64::from(ROWS_PER_CLIENT * EXECUTORS) / started.elapsed().as_secs_f64());
    yard.admin.batch_execute("VACUUM ANALYZE limits.task, limits.tiny").await?;

    let Some(pgbench) = yard.program("pgbench") else {
        report
            .note("no yardsticks", "pgbench is neither beside the server's binaries nor in PATH".to_owned());
        return Ok(());
    };
    for script in SCRIPTS {
        report.yardstick(script, EXECUTORS, rate(&pgbench, script, EXECUTORS, &yard.admin_url)?);
    }
    report.commit_time(1000.0 / rate(&pgbench, "commit_insert", 1, &yard.admin_url)?);
    Ok(())
}

/// Runs a script; answers its runs a second, without the time to connect.
fn rate(pgbench: &Path, script: &str, clients: u32, url: &str) -> Result<f64> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/limits").join(script).with_extension("sql");
    let mut command = Command::new(pgbench);
    command.args(["-n", "-M", "prepared", "-D", "b=0"]);
    command.args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string(), "-T", &SECONDS.to_string()]);
    let output = command.arg("-f").arg(file).arg(url).output().context("run pgbench")?;
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "pgbench {script}: {complained}");
    let line =
        said.lines().find(|line| line.starts_with("tps = ") && !line.contains("including connections"));
    match line.and_then(|line| line.split(' ').nth(2)?.parse().ok()) {
        Some(rate) => Ok(rate),
        None => bail!("pgbench {script} names no rate: {said}"),
    }
}
