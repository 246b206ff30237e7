//! The office: the loop that connects, waits for the lock, takes office and takes turns, until one of them is lost.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_postgres::Client;

use super::super::coordinator;
use super::super::resolving::Desk;
use super::super::runner::SessionSource;
use super::super::scrubbing::Scrubber;
use super::{Queued, Superiors};
use crate::db::catalog::leadership::{self, Office};
use crate::db::catalog::publish::{self, PublishedNode};
use crate::db::catalog::recover;
use crate::db::catalog::retention::{self, Janitor, Keep};
use crate::db::catalog::{Catalog, schedule};
use crate::db::connect::{self, Access, Purpose};
use crate::db::{AttemptName, DbError, Nodes, TicketKeys, migrate};
use crate::messages::{LostOffice, NodesFound, TicketMaker, TookOffice, TurnError};
use crate::meters::meters;
use crate::settings::Settings;

/// How long a turn may take before its connection is given up: more than the server's own statement timeout.
const TURN_LIMIT: Duration = Duration::from_secs(20);
/// The shortest pause between two attempts to reach home.
const MIN_BACK_OFF: Duration = Duration::from_millis(100);
/// The longest.
const MAX_BACK_OFF: Duration = Duration::from_secs(5);

/// Keeps the office: the loop behind the actor.
pub(super) struct Keeper {
    pub(super) config: Access,
    pub(super) home_url: String,
    pub(super) settings: watch::Receiver<Settings>,
    pub(super) superiors: Superiors,
    pub(super) turns: mpsc::Receiver<Queued>,
    pub(super) desk: watch::Sender<Option<Desk>>,
    pub(super) releasing: watch::Receiver<bool>,
    pub(super) released: watch::Sender<bool>,
    /// The office held before the connection was lost.
    pub(super) held: Option<Office>,
    /// Counts the times office was taken or resumed.
    pub(super) term: u64,
    pub(super) nodes: Rc<Nodes>,
    pub(super) sessions: Rc<dyn SessionSource>,
}

/// Home cannot be used: since when, and how long to wait before the next attempt.
#[derive(Default)]
struct Outage {
    since: Option<Instant>,
    back_off: Duration,
}

impl Outage {
    /// Logs the first failure only.
    fn begin(&mut self, error: &DbError) {
        if self.since.is_none() {
            tracing::warn!("home is not usable, trying again until it is: {error}");
            meters().outages.inc();
            self.since = Some(Instant::now());
        }
    }

    /// Home is usable: this process leads or stands by.
    fn end(&mut self) {
        if let Some(since) = self.since.take() {
            tracing::info!("home is back after {:.1?}", since.elapsed());
        }
        self.back_off = Duration::ZERO;
    }

    fn pause(&mut self) -> Duration {
        self.back_off = (self.back_off * 2).clamp(MIN_BACK_OFF, MAX_BACK_OFF);
        self.back_off.mul_f64(0.75 + super::super::chance() / 2.0)
    }
}

/// How a term ended without a failure.
enum Term {
    Released,
    Fenced,
}

impl Keeper {
    pub(super) async fn keep(mut self) {
        let mut outage = Outage::default();
        let mut releasing = self.releasing.clone();
        loop {
            let term = tokio::select! {
                term = self.term(&mut outage) => term,
                _ = releasing.wait_for(|r| *r) => Ok(Term::Released),
            };
            self.desk.send_replace(None);
            // Whoever waits for a turn learns that the office is over.
            while let Ok((_, _, answer)) = self.turns.try_recv() {
                let _ = answer.send(Err(TurnError::Doubt("the office ended".to_owned())));
            }
            match term {
                Ok(Term::Released) => {
                    self.released.send_replace(true);
                    return;
                }
                Ok(Term::Fenced) => {
                    tracing::warn!("another leader has taken office; standing by");
                    self.held = None;
                    self.superiors.lost.do_send(LostOffice);
                }
                Err(DbError::Unsuitable(text)) => {
                    (self.superiors.fatal)(DbError::Unsuitable(text));
                    return;
                }
                Err(e) => outage.begin(&e),
            }
            tokio::select! {
                () = tokio::time::sleep(outage.pause()) => {}
                _ = releasing.wait_for(|r| *r) => {}
            }
        }
    }

    /// One term: from connecting to whatever ends it.
    async fn term(&mut self, outage: &mut Outage) -> Result<Term, DbError> {
        let migrated = migrate::migrate(&self.config).await?;
        if migrated.from != migrated.to {
            tracing::info!(from = migrated.from, to = migrated.to, "catalog migrated");
        }
        let (lock, mut lock_ended) = connect::connect(&self.config, Purpose::Lock).await?;
        (self.superiors.reached)();
        self.wait_for_lock(&lock, outage).await?;

        let (turn_client, _) = connect::connect(&self.config, Purpose::Turns).await?;
        let (control, mut control_ended) = connect::connect(&self.config, Purpose::Control).await?;
        let (renewals, _) = connect::connect(&self.config, Purpose::Control).await?;
        let (janitor, mut janitor_ended) = connect::connect(&self.config, Purpose::Control).await?;
        let (clock, mut clock_ended) = connect::connect(&self.config, Purpose::Control).await?;
        let instance = self.settings.borrow().instance_name.clone();
        let resumed = match self.held {
            Some(office) => leadership::resume(&renewals, office).await?,
            None => None,
        };
        if resumed.is_none() && self.held.take().is_some() {
            // Somebody held office meanwhile: what runs here is over before the new term begins.
            self.superiors.lost.do_send(LostOffice);
        }
        let office = match resumed {
            Some(office) => office,
            None => leadership::take_office(&renewals, &instance).await?,
        };
        self.held = Some(office);
        let settings = self.settings.borrow().clone();
        let found = coordinator::nodes(&control, &self.home_url, &settings).await?;
        if settings.database.citus_nodes && found.is_empty() {
            tracing::warn!("database.citus_nodes is set, but home has no pg_dist_node that names a node");
        }
        let published = settings.with_found(&found);
        // Before the first turn, which would refuse the tasks of nodes that nobody knows.
        self.superiors.found.do_send(NodesFound(found));
        publish_settings(&control, &published).await?;
        let keys = recover::ticket_keys(&control).await?;
        let mut catalog = Catalog::new(turn_client, office).await?;
        let live = catalog.live().await?;
        tracing::info!(
            epoch = office.epoch.0,
            instance,
            "{}",
            if resumed.is_some() { "office resumed" } else { "office taken" }
        );
        let control = Rc::new(control);
        self.desk.send_replace(Some(Desk { control: Rc::clone(&control), office }));
        self.term += 1;
        self.superiors.took.do_send(TookOffice {
            epoch: office.epoch,
            term: self.term,
            token: office.token,
            resumed: resumed.is_some(),
            live,
            tickets: tickets(keys),
        });
        outage.end();
        let janitor = Janitor::new(janitor, office).await?;
        let sweeping = sweep(janitor, self.settings.clone());
        let home = Rc::clone(&control);
        let scrubber = Scrubber {
            home: Rc::clone(&control),
            office,
            nodes: Rc::clone(&self.nodes),
            sessions: Rc::clone(&self.sessions),
            data_dir: published.data_dir.clone(),
        };
        let sweeping_nodes = sweep_nodes(control, Rc::clone(&self.nodes), self.settings.clone());
        let scheduling = tend_schedules(clock, office);
        let home_url = self.home_url.clone();
        let watching =
            coordinator::watch_nodes(&home, &home_url, self.settings.clone(), self.superiors.found.clone());
        let place = self.config.to_string();
        tokio::select! {
            term = self.serve(&mut catalog) => term,
            // Beside the turns: a slow one must not make a living leader look dead.
            term = keep_renewing(&renewals, office) => term,
            never = sweeping => match never {},
            never = sweeping_nodes => match never {},
            never = scheduling => match never {},
            never = scrubber.scrub() => match never {},
            never = watching => match never {},
            // Who resolves attempts, or removes what is old, would try for ever on a connection that is gone.
            error = lost(&mut control_ended, &place, "the control connection ended") => Err(error),
            error = lost(&mut janitor_ended, &place, "the connection of retention ended") => Err(error),
            error = lost(&mut clock_ended, &place, "the connection of schedules ended") => Err(error),
            error = lost(&mut lock_ended, &place, "the connection that holds the leadership lock ended") => Err(error),
        }
    }

    /// Waits for the lock, and unseats a leader that has fallen silent meanwhile.
    async fn wait_for_lock(&self, lock: &Client, outage: &mut Outage) -> Result<(), DbError> {
        let waiting = leadership::lock(lock);
        tokio::pin!(waiting);
        if let Ok(locked) = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await {
            return locked;
        }
        let (watcher, _) = connect::connect(&self.config, Purpose::Control).await?;
        outage.end();
        tracing::info!("another instance leads; standing by");
        tokio::select! {
            locked = waiting => locked,
            failed = leadership::watch(&watcher) => Err(failed),
        }
    }

    /// Takes turns until something ends the term.
    async fn serve(&mut self, catalog: &mut Catalog) -> Result<Term, DbError> {
        let mut refused: Option<String> = None;
        while let Some((term, turn, answer)) = self.turns.recv().await {
            if term != self.term {
                let _ = answer.send(Err(TurnError::NoOffice));
                continue;
            }
            match tokio::time::timeout(TURN_LIMIT, catalog.take(&turn)).await {
                Ok(Ok(reply)) => drop(answer.send(Ok(reply))),
                Ok(Err(DbError::Deposed(epoch))) => {
                    let _ = answer.send(Err(TurnError::Doubt(format!("epoch {epoch} is over"))));
                    return Ok(Term::Fenced);
                }
                Ok(Err(e)) if e.sqlstate().is_some() && !catalog.is_closed() => {
                    let _ = answer.send(Err(TurnError::Refused(e.to_string())));
                    if e.is_transient() {
                        return Err(e);
                    }
                    // What refuses one turn refuses the next: tell it once, and try again with a pause in between.
                    let words = e.to_string();
                    if refused.as_ref() != Some(&words) {
                        tracing::error!("a turn was refused, trying again: {words}");
                        refused = Some(words);
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Ok(Err(e)) => {
                    let _ = answer.send(Err(TurnError::Doubt(e.to_string())));
                    return Err(e);
                }
                Err(_) => {
                    let error = DbError::Timeout { context: "take a turn", seconds: TURN_LIMIT.as_secs() };
                    let _ = answer.send(Err(TurnError::Doubt(error.to_string())));
                    return Err(error);
                }
            }
        }
        Ok(Term::Released)
    }
}

/// Removes what is past its retention, batch by batch, as long as the term lasts. Never ends: when its connection fails
/// the term's own connections will tell, and a batch that is refused is tried again.
async fn sweep(janitor: Janitor, settings: watch::Receiver<Settings>) -> std::convert::Infallible {
    let mut told = false;
    loop {
        tokio::time::sleep(retention::EVERY).await;
        if let Err(e) = retention::analyze_grown(janitor.client()).await {
            tracing::debug!("{e}");
        }
        loop {
            let rules = settings.borrow().retention.clone();
            let keep = Keep { finished: rules.finished, failed: rules.failed, records: rules.records };
            match janitor.sweep(keep).await {
                Ok(true) => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(false) => break,
                Err(e) => {
                    if !told && !janitor.client().is_closed() {
                        tracing::warn!("retention: {e}");
                        told = true;
                    }
                    break;
                }
            }
        }
    }
}

/// The same for the records on nodes. One that cannot be asked is tried again later and keeps no other waiting.
async fn sweep_nodes(
    home: Rc<Client>,
    nodes: Rc<Nodes>,
    settings: watch::Receiver<Settings>,
) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(retention::NODES_EVERY).await;
        let keep = settings.borrow().retention.records;
        let sweeps = nodes.all().into_iter().map(|node| {
            let home = Rc::clone(&home);
            async move { while let Ok(true) = retention::sweep_node(&node, &home, keep).await {} }
        });
        futures::future::join_all(sweeps).await;
    }
}

/// Makes the jobs of schedules, as long as the term lasts. Never ends, for the same reason.
async fn tend_schedules(client: Client, office: Office) -> std::convert::Infallible {
    let mut told = false;
    loop {
        let pause = match schedule::tend(&client, office).await {
            Ok(pause) => pause,
            Err(e) => {
                if !told && !client.is_closed() && !matches!(e, DbError::Deposed(_)) {
                    tracing::warn!("schedules: {e}");
                    told = true;
                }
                retention::EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Renews the office until it is over or in doubt.
async fn keep_renewing(client: &Client, office: Office) -> Result<Term, DbError> {
    let mut renew = tokio::time::interval(leadership::RENEW_EVERY);
    let mut renewed = Instant::now();
    loop {
        renew.tick().await;
        match tokio::time::timeout(leadership::RENEW_EVERY, leadership::renew(client, office)).await {
            Ok(Ok(true)) => renewed = Instant::now(),
            Ok(Ok(false)) => return Ok(Term::Fenced),
            Ok(Err(e)) if client.is_closed() => return Err(e),
            Ok(Err(_)) | Err(_) if renewed.elapsed() < leadership::DOUBT_AFTER => {}
            Ok(Err(e)) => return Err(e),
            Err(_) => return Err(DbError::Timeout { context: "renew the office", seconds: 6 }),
        }
    }
}

/// Waits until a connection has ended: its channel of hints ends with it.
async fn lost(hints: &mut mpsc::Receiver<()>, place: &str, what: &str) -> DbError {
    while hints.recv().await.is_some() {}
    DbError::Unreachable { place: place.to_owned(), reason: what.to_owned() }
}

fn tickets(keys: TicketKeys) -> TicketMaker {
    TicketMaker(Arc::new(move |task, owner| keys.ticket(&AttemptName::from(task), owner)))
}

pub(super) async fn publish_settings(control: &Client, settings: &Settings) -> Result<(), DbError> {
    let default = settings.limits.max_task_executors_per_node;
    let nodes: Vec<PublishedNode> = settings
        .nodes
        .iter()
        .map(|(name, node)| PublishedNode {
            name: name.clone(),
            max_task_executors: i32::try_from(node.max_task_executors.unwrap_or(default)).unwrap_or(i32::MAX),
            max_tracked_tasks: node.max_tracked_tasks.map(|n| i32::try_from(n).unwrap_or(i32::MAX)),
        })
        .collect();
    let pairs = [
        ("allow_superuser_owners", settings.allow_superuser_owners.to_string()),
        ("max_task_executors", settings.limits.max_task_executors.to_string()),
        ("max_task_executors_per_node", default.to_string()),
        ("wait.max_sql", format!("{} milliseconds", settings.wait.max_sql.as_millis())),
    ];
    publish::publish(control, &nodes, &pairs).await
}
