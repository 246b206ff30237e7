//! NOTIFY, the poll and the next due time become one coalesced Wake.
//!
//! A notification is a hint; the poll catches what it lost. The listener is a connection of its own with nothing else on
//! it, and heals itself: after each (re)connect a Wake makes the Monitor look. It is asked for a sign of life now and
//! then, since a connection can go silent without closing.

use std::time::Duration;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Recipient, SpawnHandle, WrapFuture};
use futures::future::LocalBoxFuture;

use crate::messages::{Wake, WakeAt};

/// How often the catalog is looked at when nobody says anything (SPEC 7).
pub const POLL_EVERY: Duration = Duration::from_secs(1);

/// Listens until the connection ends; calls back at each hint. Made by the app over `db::listen`.
pub type Listener = Box<dyn Fn(Box<dyn Fn()>) -> LocalBoxFuture<'static, ()>>;

/// Wakes the Monitor.
pub struct Waker {
    monitor: Recipient<Wake>,
    listener: Option<Listener>,
    due: Option<SpawnHandle>,
}

impl Waker {
    /// A waker with a listener, or without one (then the poll alone wakes).
    pub fn new(monitor: Recipient<Wake>, listener: Option<Listener>) -> Waker {
        Waker { monitor, listener, due: None }
    }
}

impl Actor for Waker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(POLL_EVERY, |waker, _| waker.wake());
        if let Some(listener) = self.listener.take() {
            let monitor = self.monitor.clone();
            // Full means that a Wake is waiting already, which is as good.
            let listening = listener(Box::new(move || drop(monitor.try_send(Wake))));
            ctx.spawn(listening.into_actor(self));
        }
    }
}

impl Waker {
    fn wake(&self) {
        let _ = self.monitor.try_send(Wake);
    }
}

impl Handler<WakeAt> for Waker {
    type Result = ();

    fn handle(&mut self, WakeAt(due): WakeAt, ctx: &mut Self::Context) {
        if let Some(earlier) = self.due.take() {
            ctx.cancel_future(earlier);
        }
        // Beyond the poll there is nothing to set: the turn of a poll asks again.
        if let Some(due) = due.filter(|d| *d < POLL_EVERY * 2) {
            let slept = tokio::time::sleep(due).into_actor(self).map(|(), waker, _| {
                waker.due = None;
                waker.wake();
            });
            self.due = Some(ctx.spawn(slept));
        }
    }
}
