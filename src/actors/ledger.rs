//! The one actor that reads and writes the catalog.
//!
//! It holds the office: a loop that connects, waits for the lock, takes office, and then takes turns one by one until
//! the connection, the lock or the office is lost; then again, for ever. An outage is logged once at its start and once at
//! its end. Resolving lost attempts runs beside the turns, on a control connection.
//!
//! ```text
//!   connect ─▶ migrate ─▶ lock (standby) ─▶ take office, or resume it ─▶ TookOffice ─▶ turns · renewals
//!      ▲                                                                                │
//!      └────────────── back-off ◀── connection lost (in doubt) · fenced (LostOffice) ◀──┘
//! ```

use std::path::PathBuf;
use std::rc::Rc;

use actix::{Actor, AsyncContext, Context, Handler, Recipient, ResponseFuture, WrapFuture};
use tokio::sync::{mpsc, oneshot, watch};

use super::job_folders;
use super::resolving::{self, Desk};
use super::runner::SessionSource;
use super::scrubbing;
use crate::db::catalog::publish;
use crate::db::catalog::{claim, request, scratch};
use crate::db::connect::Access;
use crate::db::{DbError, Nodes};
use crate::messages::{
    EndBackend, Flush, LostOffice, NodesFound, PrepareOutput, Publish, PublishHealth, Release, RequestCancel,
    Resolve, Resolved, RunTurn, TookOffice, TurnError, UseScratch,
};
use crate::model::{Turn, TurnReply};
use crate::settings::Settings;

mod keeper;

use keeper::{Keeper, publish_settings};

/// A turn with the term it is meant for and where its answer goes.
type Queued = (u64, Turn, Answer);
type Answer = oneshot::Sender<Result<TurnReply, TurnError>>;

/// Reads and writes the catalog.
pub struct Ledger {
    turns: mpsc::Sender<Queued>,
    desk: watch::Receiver<Option<Desk>>,
    release: watch::Sender<bool>,
    released: watch::Receiver<bool>,
    settings: watch::Sender<Settings>,
    fatal: Rc<dyn Fn(DbError)>,
    nodes: Rc<Nodes>,
    keeper: Option<Keeper>,
}

/// Whom the Ledger tells.
#[derive(Clone)]
pub struct Superiors {
    /// Hears which nodes home names.
    pub found: Recipient<NodesFound>,
    /// Hears that this process decides.
    pub took: Recipient<TookOffice>,
    /// Hears that it does not any more.
    pub lost: Recipient<LostOffice>,
    /// Hears what ends the process: a catalog that is not for us, two homes.
    pub fatal: Rc<dyn Fn(DbError)>,
    /// Hears when the catalog was reached for the first time.
    pub reached: Rc<dyn Fn()>,
}

impl Ledger {
    /// A Ledger of the catalog in the database that `config` names. `nodes` are where attempts run beside it; `sessions`
    /// opens those in which owners' scratch schemas are dropped.
    pub fn new(
        (config, home_url): (Access, String),
        settings: Settings,
        nodes: Rc<Nodes>,
        sessions: Rc<dyn SessionSource>,
        superiors: Superiors,
    ) -> Ledger {
        // One turn at a time: the Monitor waits for each. One place is enough, and a bound.
        let (turns, queue) = mpsc::channel(1);
        let (desk_sender, desk) = watch::channel(None);
        let (release, releasing) = watch::channel(false);
        let (released_sender, released) = watch::channel(false);
        let (settings, current) = watch::channel(settings);
        let fatal = Rc::clone(&superiors.fatal);
        let keeper = Keeper {
            config,
            home_url,
            settings: current,
            superiors,
            turns: queue,
            desk: desk_sender,
            releasing,
            released: released_sender,
            held: None,
            term: 0,
            nodes: Rc::clone(&nodes),
            sessions,
        };
        Ledger { turns, desk, release, released, settings, fatal, nodes, keeper: Some(keeper) }
    }
}

impl Actor for Ledger {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(keeper) = self.keeper.take() {
            ctx.spawn(keeper.keep().into_actor(self));
        }
    }
}

impl Handler<RunTurn> for Ledger {
    type Result = ResponseFuture<Result<TurnReply, TurnError>>;

    fn handle(&mut self, RunTurn { turn, term }: RunTurn, _: &mut Self::Context) -> Self::Result {
        let (turns, desk) = (self.turns.clone(), self.desk.clone());
        Box::pin(async move {
            // Looked at when it is queued, not before: nobody answers what is queued between two terms.
            if desk.borrow().is_none() {
                return Err(TurnError::NoOffice);
            }
            let (answer, answered) = oneshot::channel();
            turns.send((term, turn, answer)).await.map_err(|_| TurnError::NoOffice)?;
            answered.await.unwrap_or_else(|_| Err(TurnError::Doubt("the office ended".to_owned())))
        })
    }
}

impl Handler<Resolve> for Ledger {
    type Result = ResponseFuture<Resolved>;

    fn handle(&mut self, resolve: Resolve, _: &mut Self::Context) -> Self::Result {
        let (desk, nodes) = (self.desk.clone(), Rc::clone(&self.nodes));
        Box::pin(resolving::resolve(desk, nodes, resolve, Rc::clone(&self.fatal)))
    }
}

impl Handler<UseScratch> for Ledger {
    type Result = ResponseFuture<Result<String, String>>;

    fn handle(&mut self, ask: UseScratch, _: &mut Self::Context) -> Self::Result {
        let desk = self.desk.borrow().clone();
        Box::pin(scrubbing::begin_use(desk, ask))
    }
}

impl Handler<PrepareOutput> for Ledger {
    type Result = ResponseFuture<Result<(PathBuf, u64), String>>;

    fn handle(&mut self, PrepareOutput(job): PrepareOutput, _: &mut Self::Context) -> Self::Result {
        let desk = self.desk.borrow().clone();
        let settings = self.settings.borrow();
        let (data_dir, mib) = (settings.data_dir.clone(), settings.tasks.max_output_mib);
        Box::pin(async move {
            let Some(Desk { control, .. }) = desk else { return Err("no office is held".to_owned()) };
            let home = scratch::home(&control).await.map_err(|e| e.to_string())?;
            Ok((job_folders::prepare(&data_dir, home, job.0).await?, u64::from(mib) << 20))
        })
    }
}

impl Handler<EndBackend> for Ledger {
    type Result = ();

    fn handle(&mut self, end: EndBackend, ctx: &mut Self::Context) {
        let desk = self.desk.borrow().clone();
        ctx.spawn(resolving::end(desk, Rc::clone(&self.nodes), end).into_actor(self));
    }
}

impl Handler<Flush> for Ledger {
    type Result = ResponseFuture<bool>;

    fn handle(&mut self, Flush: Flush, _: &mut Self::Context) -> Self::Result {
        let desk = self.desk.borrow().clone();
        Box::pin(async move {
            let Some(Desk { control, .. }) = desk else { return false };
            claim::flush(&control).await.inspect_err(|e| tracing::debug!("{e}")).is_ok()
        })
    }
}

impl Handler<RequestCancel> for Ledger {
    type Result = ResponseFuture<bool>;

    fn handle(&mut self, RequestCancel(jobs): RequestCancel, _: &mut Self::Context) -> Self::Result {
        let desk = self.desk.borrow().clone();
        Box::pin(async move {
            let Some(Desk { control, .. }) = desk else { return false };
            let asked = request::ask_cancel(&control, &jobs).await;
            asked.inspect_err(|e| tracing::error!("{e}")).is_ok()
        })
    }
}

impl Handler<Publish> for Ledger {
    type Result = ();

    fn handle(&mut self, Publish(settings): Publish, ctx: &mut Self::Context) {
        self.settings.send_replace((*settings).clone());
        let Some(Desk { control, .. }) = self.desk.borrow().clone() else { return };
        let publishing = async move {
            if let Err(e) = publish_settings(&control, &settings).await {
                tracing::warn!("{e}");
            }
        };
        ctx.spawn(publishing.into_actor(self));
    }
}

impl Handler<PublishHealth> for Ledger {
    type Result = ();

    fn handle(&mut self, PublishHealth(heard): PublishHealth, ctx: &mut Self::Context) {
        let Some(Desk { control, .. }) = self.desk.borrow().clone() else { return };
        let publishing = async move {
            let nodes: Vec<_> = heard.into_iter().map(|n| (n.node, n.fault)).collect();
            if let Err(e) = publish::health(&control, &nodes).await {
                tracing::warn!("{e}");
            }
        };
        ctx.spawn(publishing.into_actor(self));
    }
}

impl Handler<Release> for Ledger {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Release, _: &mut Self::Context) -> Self::Result {
        self.release.send_replace(true);
        let mut released = self.released.clone();
        Box::pin(async move {
            let _ = released.wait_for(|r| *r).await;
        })
    }
}
