//! One small actor per signal: SIGTERM, SIGINT and SIGHUP become Terminate, CancelAll and Reload.

use actix::{Actor, AsyncContext, Context, Message, Recipient, StreamHandler};
use futures::stream::poll_fn;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::messages::Reload;
use crate::settings::{Settings, SettingsError};

/// Turns each arrival of one signal into a message.
pub struct SignalActor {
    stream: Option<Signal>,
    heard: Box<dyn FnMut()>,
}

impl SignalActor {
    /// Starts an actor that sends `make()` to `to` at each arrival of the signal.
    ///
    /// # Errors
    /// When the signal cannot be listened to.
    pub fn relay<M>(kind: SignalKind, to: Recipient<M>, make: impl Fn() -> M + 'static) -> std::io::Result<()>
    where
        M: Message<Result = ()> + Send + 'static,
    {
        Self::listen(kind, Box::new(move || to.do_send(make())))
    }

    /// Starts the actor of SIGHUP: reads the settings whole; if they are valid, sends Reload, else logs one error and
    /// changes nothing.
    ///
    /// # Errors
    /// When the signal cannot be listened to.
    pub fn reload(
        to: Recipient<Reload>,
        read: impl Fn() -> Result<Settings, SettingsError> + 'static,
    ) -> std::io::Result<()> {
        let heard = move || match read() {
            Ok(settings) => to.do_send(Reload(Box::new(settings))),
            Err(e) => tracing::error!("reload refused, nothing changed: {e}"),
        };
        Self::listen(SignalKind::hangup(), Box::new(heard))
    }

    /// Starts an actor that ends the process, without any order, at the first arrival of the signal.
    ///
    /// # Errors
    /// When the signal cannot be listened to.
    pub fn at_once(kind: SignalKind, exit: i32) -> std::io::Result<()> {
        Self::listen(kind, Box::new(move || std::process::exit(exit)))
    }

    fn listen(kind: SignalKind, heard: Box<dyn FnMut()>) -> std::io::Result<()> {
        let stream = signal(kind)?;
        SignalActor { stream: Some(stream), heard }.start();
        Ok(())
    }
}

impl Actor for SignalActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(mut signals) = self.stream.take() {
            ctx.add_stream(poll_fn(move |cx| signals.poll_recv(cx)));
        }
    }
}

impl StreamHandler<()> for SignalActor {
    fn handle(&mut self, (): (), _: &mut Self::Context) {
        (self.heard)();
    }
}
