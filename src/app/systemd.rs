//! What the service manager is told (sd_notify(3)): ready, reloading, stopping, how it stands, and that it is alive.
//!
//! Without a NOTIFY_SOCKET nothing is sent.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix::Recipient;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use super::{AppError, Service};
use crate::messages::{GetSnapshot, Snapshot};
use crate::model::yard::Mode;

/// How often the status line is looked at.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// The service manager, if there is one.
#[derive(Clone, Default)]
pub struct Systemd {
    /// READY was sent: until then a reload is none of its business.
    ready: Rc<Cell<bool>>,
}

impl Systemd {
    /// Tells READY once the catalog is reachable and migrated, STOPPING at the first signal to leave, and meanwhile a status
    /// line and, as long as the Monitor answers, signs of life.
    ///
    /// # Errors
    /// When the signals cannot be listened to.
    pub fn watch(&self, service: &Service) -> Result<(), AppError> {
        let (reached, ready) = (service.reached(), Rc::clone(&self.ready));
        actix_rt::spawn(async move {
            reached.await;
            ready.set(true);
            tell(&[NotifyState::Ready]);
        });
        let mut terminate = signal(SignalKind::terminate()).map_err(AppError::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signals)?;
        actix_rt::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            tell(&[NotifyState::Stopping]);
        });
        let monitor = service.monitor().clone().recipient();
        if let Some(limit) = sd_notify::watchdog_enabled() {
            actix_rt::spawn(keep_alive(monitor.clone(), limit / 3, || tell(&[NotifyState::Watchdog])));
        }
        actix_rt::spawn(async move {
            let mut last = String::new();
            while let Ok(snapshot) = monitor.send(GetSnapshot).await {
                let now = status(&snapshot);
                if now != last {
                    tell(&[NotifyState::Status(&now)]);
                    last = now;
                }
                tokio::time::sleep(STATUS_EVERY).await;
            }
        });
        Ok(())
    }

    /// The settings are being read again.
    pub fn reloading(&self) {
        if self.ready.get() {
            match NotifyState::monotonic_usec_now() {
                Ok(now) => tell(&[NotifyState::Reloading, now]),
                Err(e) => tracing::warn!("the service manager does not hear of the reload: {e}"),
            }
        }
    }

    /// They are in effect, or were refused.
    pub fn reloaded(&self) {
        if self.ready.get() {
            tell(&[NotifyState::Ready]);
        }
    }
}

/// Calls `alive` every `pause`, as long as the Monitor answers within that time; when it does not, it is asked again.
async fn keep_alive(monitor: Recipient<GetSnapshot>, pause: Duration, alive: impl Fn()) {
    loop {
        match tokio::time::timeout(pause, monitor.send(GetSnapshot)).await {
            Ok(Ok(_)) => {
                alive();
                tokio::time::sleep(pause).await;
            }
            Ok(Err(_)) => return,
            Err(_) => {}
        }
    }
}

fn status(snapshot: &Snapshot) -> String {
    let running = snapshot.running.len();
    match (snapshot.mode, snapshot.epoch) {
        (Mode::Standby, _) | (Mode::Accepting, None) => "standing by".to_owned(),
        (Mode::Accepting, Some(epoch)) => format!("leading (epoch {epoch}), {running} running"),
        (Mode::CancellingAll, _) => format!("cancelling all, {running} running"),
        (Mode::Draining | Mode::Interrupting, _) => format!("leaving, {running} running"),
        (Mode::Stopped, _) => "left".to_owned(),
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::debug!("the service manager does not hear: {e}");
    }
}

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler};

    use super::*;

    /// Answers as long as it may.
    struct Sleeper {
        answers: u32,
    }

    impl Actor for Sleeper {
        type Context = Context<Self>;
    }

    impl Handler<GetSnapshot> for Sleeper {
        type Result = actix::ResponseFuture<Snapshot>;

        fn handle(&mut self, _: GetSnapshot, _: &mut Self::Context) -> Self::Result {
            let awake = self.answers > 0;
            self.answers = self.answers.saturating_sub(1);
            Box::pin(async move {
                if !awake {
                    std::future::pending::<()>().await;
                }
                Snapshot {
                    epoch: None,
                    mode: Mode::Standby,
                    running: Vec::new(),
                    unsettled: 0,
                    idle_sessions: 0,
                }
            })
        }
    }

    #[actix::test]
    async fn signs_of_life_end_when_the_monitor_does_not_answer() {
        tokio::time::pause();
        let beats = Rc::new(Cell::new(0));
        let count = Rc::clone(&beats);
        let monitor = Sleeper { answers: 3 }.start().recipient();
        let kept = keep_alive(monitor, Duration::from_secs(1), move || count.set(count.get() + 1));
        let _ = tokio::time::timeout(Duration::from_secs(60), kept).await;
        assert_eq!(beats.get(), 3);
    }
}
