//! `yardmaster doctor`: everything that keeps jobs from running well, with the remedy.
//!
//! It asks with the settings of the service, as the role of the service, from where it is started: to be run beside the
//! service. What the answers mean is decided in [`super::verdicts`].

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;

use super::findings::{self, Finding};
use super::{CliError, Context, Exit, verdicts};
use crate::db::client;
use crate::db::inspect::{QueryError, doctor, plan, service};
use crate::settings::Settings;

/// Owners whose login is tried.
const MAX_OWNERS: i64 = 50;
/// Logins tried at once.
const AT_ONCE: usize = 8;

const EXAMPLES: &str = "\
Run it where the service runs, with its settings: it tries the logins that the service would try. Exits 1 if something
will not work.

Examples:
  yardmaster doctor --config /etc/yardmaster/Settings.toml
  yardmaster doctor -o json | jq '.findings[] | select(.severity == \"error\")'";

/// Arguments of `doctor`: everything is in the settings.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {}

#[derive(Serialize)]
struct Told<'a> {
    findings: &'a [Finding],
}

pub(super) async fn doctor(context: &Context) -> Result<Exit, CliError> {
    let mut findings = Vec::new();
    match context.settings() {
        Ok(settings) => {
            findings.push(Finding::ok("settings", "no mistake"));
            examine(context, &settings, &mut findings).await?;
        }
        Err(CliError::Mistakes(mistakes)) => findings.extend(
            mistakes.into_iter().map(|m| Finding::error("settings", m, "see Settings.toml, the manual")),
        ),
        Err(e) => return Err(e),
    }
    findings.sort_by_key(|finding| finding.severity);
    if context.output.is_json() {
        context.output.json(&Told { findings: &findings })?;
    } else {
        findings::print(&context.output, &findings)?;
    }
    Ok(if findings::has_error(&findings) { Exit::WorkFailed } else { Exit::Well })
}

async fn examine(
    context: &Context,
    settings: &Settings,
    findings: &mut Vec<Finding>,
) -> Result<(), CliError> {
    let url = match context.database_url() {
        Ok(url) => url,
        Err(e) => {
            findings.push(Finding::error("connection", e.to_string(), "name a database"));
            return Ok(());
        }
    };
    let (connection, mut other) = match (client::connect(&url).await, client::connect(&url).await) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(e), _) | (_, Err(e)) => {
            findings.push(Finding::error("connection", e.to_string(), e.fault.hint()));
            return Ok(());
        }
    };
    let asked = Instant::now();
    let server = doctor::server(&connection.client).await?;
    findings.extend(verdicts::of_server(&server, settings));
    findings.push(verdicts::of_clock(server.now, Timestamp::now(), asked.elapsed()));
    findings.push(verdicts::of_pooler(doctor::is_pooled(&connection.client, &mut other.client).await?));
    if !server.has_catalog {
        findings.push(verdicts::no_catalog());
        return Ok(());
    }
    match of_catalog(&connection.client, settings, &url).await {
        Ok(found) => findings.extend(found),
        Err(e) => findings.push(Finding::error("catalog", e.to_string(), e.hint().unwrap_or_default())),
    }
    Ok(())
}

async fn of_catalog(
    client: &tokio_postgres::Client,
    settings: &Settings,
    home: &str,
) -> Result<Vec<Finding>, QueryError> {
    let mut findings = vec![verdicts::of_version(doctor::schema_version(client).await?)];
    findings.push(verdicts::of_leader(&service::leader(client).await?));
    findings.extend(verdicts::of_tables(&doctor::tables(client).await?));
    findings.push(verdicts::of_snapshot(doctor::old_snapshot(client).await?.as_ref()));
    let around = plan::surroundings(client, &[]).await?;
    findings.extend(verdicts::of_nodes(&around.nodes));
    let mut urls: BTreeMap<&str, &str> = BTreeMap::from([("", home)]);
    for (name, node) in &settings.nodes {
        let Some(url) = &node.url else {
            urls.insert(name, home);
            continue;
        };
        urls.insert(name, url);
        findings.extend(of_node(name, url, settings).await);
    }
    let owners = doctor::pending_owners(client, MAX_OWNERS).await?;
    let file = settings.sessions.password_file.as_deref();
    let tries = owners.iter().filter_map(|pending| Some((pending, *urls.get(pending.node.as_str())?)));
    let logins = futures::stream::iter(tries).map(|(pending, url)| async move {
        let tried = doctor::try_login(url, &pending.owner, file, settings.sessions.connect_timeout).await;
        verdicts::of_login(pending, tried)
    });
    findings.extend(logins.buffered(AT_ONCE).collect::<Vec<_>>().await);
    Ok(findings)
}

/// What the service needs at a node with a database of its own.
async fn of_node(name: &str, url: &str, settings: &Settings) -> Vec<Finding> {
    let about = |findings: Vec<Finding>| {
        let prefix = |mut finding: Finding| {
            finding.message = format!("node {name}: {}", finding.message);
            finding
        };
        findings.into_iter().map(prefix).collect()
    };
    match client::connect(url).await {
        Err(e) => about(vec![Finding::error("connection", e.to_string(), e.fault.hint())]),
        Ok(connection) => match doctor::server(&connection.client).await {
            Ok(server) => about(verdicts::of_server(&server, settings)),
            Err(e) => about(vec![Finding::error("connection", e.to_string(), e.hint().unwrap_or_default())]),
        },
    }
}
