//! Sessions: opened when the Yard wants one, kept where they wait.

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use tokio::time::Instant;

use super::super::runner::{OpenFailure, Runner};
use super::Monitor;
use crate::messages::{SessionsRetried, Suspect};
use crate::model::SessionKey;
use crate::model::yard::Input;

/// The longest pause between two attempts to open a session.
const MAX_BACK_OFF: std::time::Duration = std::time::Duration::from_secs(5);

impl Monitor {
    pub(super) fn open(&mut self, key: SessionKey, ctx: &mut Context<Self>) {
        let begun = Instant::now();
        let opened = self.sessions.open(key.clone()).into_actor(self);
        ctx.spawn(opened.map(move |opened, monitor, ctx| {
            let opened = if monitor.siding.has_moved_since(&key.node, begun) {
                Err(OpenFailure::Later {
                    message: "the node leads elsewhere by now".to_owned(),
                    suspect: false,
                })
            } else {
                opened
            };
            monitor.opened(key, opened, ctx);
        }));
    }

    fn opened(
        &mut self,
        key: SessionKey,
        opened: Result<Box<dyn Runner>, OpenFailure>,
        ctx: &mut Context<Self>,
    ) {
        match opened {
            Ok(session) => {
                if self.troubled.remove(&key).is_some() {
                    tracing::info!(owner = key.owner, node = key.node, "sessions can be opened again");
                }
                self.feed(Input::SessionOpened(key.clone()), ctx);
                self.keep(key, session, ctx);
            }
            Err(OpenFailure::Refused { sqlstate, message }) => {
                tracing::debug!(owner = key.owner, node = key.node, sqlstate, "login refused: {message}");
                self.feed(Input::SessionRefused { key, sqlstate, message }, ctx);
            }
            Err(OpenFailure::Later { message, suspect }) => {
                if suspect {
                    self.colleagues.suspect.do_send(Suspect(key.node.clone()));
                }
                let failures = self.troubled.entry(key.clone()).or_insert(0);
                if *failures == 0 {
                    tracing::warn!(
                        owner = key.owner,
                        node = key.node,
                        "no session could be opened, trying again: {message}"
                    );
                }
                *failures += 1;
                let pause = std::time::Duration::from_millis(100 * 2u64.saturating_pow((*failures).min(6)))
                    .min(MAX_BACK_OFF);
                ctx.notify_later(
                    SessionsRetried(key.clone()),
                    pause.mul_f64(0.75 + super::super::chance() / 2.0),
                );
                self.feed(Input::SessionFailed(key), ctx);
            }
        }
    }

    pub(super) fn keep(&mut self, key: SessionKey, session: Box<dyn Runner>, ctx: &mut Context<Self>) {
        if self.siding.put(key.clone(), session, &self.settings.sessions) {
            self.feed(Input::SessionReady(key), ctx);
        }
    }
}
