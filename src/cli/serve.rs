//! `yardmaster serve`: the service.

use std::rc::Rc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::{CliError, Context, Exit};
use crate::app::{AppError, Ended, Home, Service, Systemd};
use crate::db::{client, migrate};
use crate::http::Bound;
use crate::settings::Settings;
use crate::telemetry;

const EXAMPLES: &str = "\
Without a database of yours (--database, DATABASE_URL, settings) a private PostgreSQL is started and kept below
data_dir. SIGTERM ends the service in order, SIGINT cancels its jobs first, SIGHUP reads the settings again.
Pages, API and /metrics are on http://127.0.0.1:8380/ (http.listen).

Examples:
  yardmaster serve
  yardmaster serve --config /etc/yardmaster/Settings.toml
  yardmaster serve --set limits.max_task_executors=8 --set log.format=json";

/// Arguments of `serve`: everything is in the settings.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {}

/// Runs the service until it is told to leave.
///
/// # Errors
/// See [`CliError`].
pub fn serve(context: &Context, _args: ServeArgs) -> Result<Exit, CliError> {
    let mut settings = context.settings()?;
    let logs = Rc::new(telemetry::start(&settings.log).map_err(|e| CliError::Usage(e.to_string()))?);
    let bound = Bound::new(&settings.http)?;
    actix_rt::System::new().block_on(async {
        let Some(mut home) = prepare(&mut settings).await? else { return Ok(Exit::Well) };
        let place = client::place(&home.service_url).map(|place| place.to_string()).unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(instance = %settings.instance_name, "yardmaster {version} starts; home is {place}");
        let private = home.is_private();
        let manager = Systemd::default();
        let (heard, told) = (manager.clone(), manager.clone());
        let applied = move |settings: &Settings| {
            if let Err(e) = logs.set_level(&settings.log.level) {
                tracing::error!("log.level: {e}");
            }
            told.reloaded();
        };
        let mut service =
            Service::start(home.config()?, home.service_url.clone(), &settings, Rc::new(applied));
        let sources = context.sources();
        service.hear_signals(move || {
            heard.reloading();
            let read = Settings::load(&sources).inspect_err(|_| heard.reloaded());
            read.map(|mut s| {
                s.allow_superuser_owners |= private;
                s
            })
        })?;
        manager.watch(&service)?;
        let page = bound.serve(&home.service_url, service.monitor().clone().recipient())?;
        let reached = service.reached();
        tokio::task::spawn_local(async move {
            reached.await;
            tracing::info!("ready: the catalog has version {}", migrate::own_version());
        });
        let ended = tokio::select! {
            ended = service.ended() => ended,
            () = home.keep() => unreachable!("keeping home never ends"),
        };
        page.stop().await;
        home.close().await;
        exit(ended)
    })
}

/// Finds or starts home; nothing if a signal says to leave meanwhile: making a private server takes seconds.
async fn prepare(settings: &mut Settings) -> Result<Option<Home>, CliError> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    tokio::select! {
        home = Home::prepare(settings) => Ok(Some(home?)),
        _ = interrupts.recv() => Ok(None),
        _ = terminations.recv() => Ok(None),
    }
}

/// What the end of the service means for the exit code.
pub(super) fn exit(ended: Ended) -> Result<Exit, CliError> {
    match ended {
        Ended::Settled { clean: true } => Ok(Exit::Well),
        Ended::Settled { clean: false } => Ok(Exit::WorkFailed),
        Ended::Unsuitable(e) => Err(AppError::Db(e).into()),
        Ended::Died(actor) => Err(CliError::Died(actor)),
    }
}
