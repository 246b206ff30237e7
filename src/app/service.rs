//! The running service: its actors, how to talk to them, and how it ends.

use std::rc::Rc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Recipient};
use futures::FutureExt;
use tokio::signal::unix::SignalKind;
use tokio::sync::{mpsc, watch};

use super::AppError;
use crate::actors::ledger::{Ledger, Superiors};
use crate::actors::monitor::{Colleagues, Monitor, limits};
use crate::actors::node_limiter::NodeLimiter;
use crate::actors::node_watch::NodeWatch;
use crate::actors::runner::SessionSource;
use crate::actors::sessions::DbSessions;
use crate::actors::signals::SignalActor;
use crate::actors::waker::Waker;
use crate::db::connect::Access;
use crate::db::{DbError, Nodes, listen};
use crate::messages::{CancelAll, NodesDeclared, Release, Terminate};
use crate::settings::{Settings, SettingsError};

/// How the service ended.
#[derive(Debug)]
pub enum Ended {
    /// Everything was settled. Says whether every job that was to be cancelled was.
    Settled {
        /// Did all go as asked?
        clean: bool,
    },
    /// The catalog is not one we can work with.
    Unsuitable(DbError),
    /// An actor that lives as long as the process died: a bug. A normal start is the recovery.
    Died(&'static str),
}

/// The service.
pub struct Service {
    monitor: Addr<Monitor>,
    ledger: Addr<Ledger>,
    limiter: Addr<NodeLimiter>,
    waker: Addr<Waker>,
    watch: Addr<NodeWatch>,
    ends: mpsc::Receiver<Ended>,
    reached: watch::Receiver<bool>,
}

/// How often the long-lived actors are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// 128 and the signal's number, as a shell tells the end by SIGQUIT.
const QUIT_EXIT: i32 = 131;
/// How long giving up the office may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

impl Service {
    /// Starts the actors, bottom-up. Must be called inside an actix system.
    ///
    /// `applied` hears the settings of each reload.
    pub fn start(
        config: Access,
        home_url: String,
        settings: &Settings,
        applied: Rc<dyn Fn(&Settings)>,
    ) -> Service {
        let (end, ends) = mpsc::channel(4);
        let (reach, reached) = watch::channel(false);
        let nodes = Rc::new(Nodes::new(&settings.nodes));
        let sessions = Rc::new(DbSessions::new(home_url.clone(), settings.clone(), Rc::clone(&nodes)));
        let limiter = NodeLimiter::new(limits(settings), settings.limits.reserve_after).start();

        // The Ledger and the Monitor know each other: the Monitor's context is made first, so that both can start whole.
        let mut addresses = None;
        let monitor = Monitor::create(|ctx: &mut Context<Monitor>| {
            let monitor = actix::AsyncContext::address(ctx);
            let (fatal, settled) = (end.clone(), end);
            let ledger = Ledger::new(
                (config.clone(), home_url),
                settings.clone(),
                Rc::clone(&nodes),
                Rc::clone(&sessions) as Rc<dyn SessionSource>,
                Superiors {
                    found: monitor.clone().recipient(),
                    took: monitor.clone().recipient(),
                    lost: monitor.clone().recipient(),
                    fatal: Rc::new(move |e| drop(fatal.try_send(Ended::Unsuitable(e)))),
                    reached: Rc::new(move || {
                        reach.send_replace(true);
                    }),
                },
            )
            .start();
            let listener =
                Box::new(move |hint: Box<dyn Fn()>| listen::listen(config.clone(), hint).boxed_local());
            let waker = Waker::new(monitor.clone().recipient(), Some(listener)).start();
            let watch = NodeWatch::new(nodes, monitor.clone().recipient()).start();
            let (for_reload, for_watch) = (Rc::clone(&sessions), watch.clone());
            let colleagues = Colleagues {
                turns: ledger.clone().recipient(),
                resolve: ledger.clone().recipient(),
                scratch: ledger.clone().recipient(),
                output: ledger.clone().recipient(),
                end: ledger.clone().recipient(),
                flush: ledger.clone().recipient(),
                cancel: ledger.clone().recipient(),
                publish: ledger.clone().recipient(),
                health: ledger.clone().recipient(),
                suspect: watch.clone().recipient(),
                slots: limiter.clone().recipient(),
                adopt: limiter.clone().recipient(),
                limits: limiter.clone().recipient(),
                due: waker.clone().recipient(),
                stopped: Rc::new(move |clean| drop(settled.try_send(Ended::Settled { clean }))),
                reloaded: Rc::new(move |settings| {
                    for_reload.reload(settings.clone());
                    for_watch.do_send(NodesDeclared);
                    applied(settings);
                }),
            };
            addresses = Some((ledger, waker, watch));
            Monitor::new(settings.clone(), colleagues, sessions)
        });
        let (ledger, waker, watch) =
            addresses.expect("the closure above has run: create calls it before it returns");
        Service { monitor, ledger, limiter, waker, watch, ends, reached }
    }

    /// Turns SIGTERM, SIGINT and SIGHUP into messages for this service; `read` reads the settings anew. SIGQUIT leaves
    /// at once: recovery does the rest. (It is heard too: a shell that starts us in the background has it ignored.)
    ///
    /// # Errors
    /// When a signal cannot be listened to.
    pub fn hear_signals(
        &self,
        read: impl Fn() -> Result<Settings, SettingsError> + 'static,
    ) -> Result<(), AppError> {
        SignalActor::at_once(SignalKind::quit(), QUIT_EXIT).map_err(AppError::Signals)?;
        SignalActor::relay(SignalKind::terminate(), self.terminate(), || Terminate)
            .map_err(AppError::Signals)?;
        SignalActor::relay(SignalKind::interrupt(), self.cancel_all(), || CancelAll)
            .map_err(AppError::Signals)?;
        SignalActor::reload(self.monitor.clone().recipient(), read).map_err(AppError::Signals)
    }

    /// Where Terminate goes.
    pub fn terminate(&self) -> Recipient<Terminate> {
        self.monitor.clone().recipient()
    }

    /// Where CancelAll goes.
    pub fn cancel_all(&self) -> Recipient<CancelAll> {
        self.monitor.clone().recipient()
    }

    /// The Monitor, for status pages and tests.
    pub fn monitor(&self) -> &Addr<Monitor> {
        &self.monitor
    }

    /// Waits until the catalog is reachable and migrated.
    pub fn reached(&self) -> impl Future<Output = ()> + use<> {
        let mut reached = self.reached.clone();
        async move {
            if reached.wait_for(|r| *r).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the end of the service, gives up the office and returns how it ended.
    pub async fn ended(&mut self) -> Ended {
        let ended = self.end().await;
        if tokio::time::timeout(RELEASE_LIMIT, self.ledger.send(Release)).await.is_err() {
            tracing::warn!("the office could not be given up in time; it ends with the process");
        }
        ended
    }

    /// Waits for an end that nobody asked for; the office is given up by the end of the process.
    pub async fn failed(&mut self) -> Ended {
        self.end().await
    }

    async fn end(&mut self) -> Ended {
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                Some(ended) = self.ends.recv() => return ended,
                _ = look.tick() => {
                    if let Some(name) = self.dead() {
                        return Ended::Died(name);
                    }
                }
            }
        }
    }

    fn dead(&self) -> Option<&'static str> {
        [
            ("Monitor", self.monitor.connected()),
            ("Ledger", self.ledger.connected()),
            ("NodeLimiter", self.limiter.connected()),
            ("Waker", self.waker.connected()),
            ("NodeWatch", self.watch.connected()),
        ]
        .into_iter()
        .find_map(|(name, alive)| (!alive).then_some(name))
    }
}
