//! What all requests share.

use std::time::Duration;

use actix::Recipient;
use tokio::sync::watch;

use super::live::Hub;
use super::metrics::Look;
use super::token::Token;
use crate::db::reader::Readers;
use crate::messages::{GetSnapshot, Snapshot};

/// The Monitor answers at once unless something is wrong with it.
const MONITOR_LIMIT: Duration = Duration::from_secs(2);

/// What all requests share.
pub(super) struct State {
    /// The connections for reading.
    pub readers: Readers,
    /// The last look at the figures.
    pub look: tokio::sync::Mutex<Option<Look>>,
    /// Who watches what.
    pub hub: Hub,
    monitor: Recipient<GetSnapshot>,
    /// What a request that steers must bring; nothing: nobody steers here.
    pub token: Option<Token>,
    closing: watch::Sender<bool>,
}

impl State {
    pub(super) fn new(token: Option<Token>, home_url: &str, monitor: Recipient<GetSnapshot>) -> State {
        let readers = Readers::new(home_url);
        let (closing, _) = watch::channel(false);
        State { readers, look: tokio::sync::Mutex::new(None), hub: Hub::default(), monitor, token, closing }
    }

    /// How the yard of this process stands; nothing if the Monitor does not answer.
    pub(super) async fn snapshot(&self) -> Option<Snapshot> {
        tokio::time::timeout(MONITOR_LIMIT, self.monitor.send(GetSnapshot)).await.ok()?.ok()
    }

    /// Ends the event streams.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Becomes true when the event streams are to end.
    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}
