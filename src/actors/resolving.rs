//! Finding out what became of an attempt: asked of the database in which it ran, for as long as it takes.
//!
//! A node that cannot be asked keeps its attempts as they are, 'outcome unknown' with their slots; nothing is guessed,
//! and nobody else waits.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::Client;

use crate::db::catalog::leadership::Office;
use crate::db::catalog::recover::{self, Resolution};
use crate::db::{DbError, Node, Nodes};
use crate::messages::{EndBackend, Resolve, Resolved};

/// How long an attempt's resolution pauses after a failure, at first.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// And at last.
const MAX_AGAIN_AFTER: Duration = Duration::from_secs(4);

/// What the office gives to those who work beside the turns.
#[derive(Clone)]
pub(super) struct Desk {
    /// The office's own connection to home.
    pub(super) control: Rc<Client>,
    /// The office.
    pub(super) office: Office,
}

/// The node in whose database an attempt runs; home if it has no site.
pub(super) async fn node_of(
    nodes: &Nodes,
    control: &Rc<Client>,
    name: &str,
    site: Option<uuid::Uuid>,
) -> Result<Rc<Node>, DbError> {
    match site {
        None => Ok(Rc::new(Node::home(Rc::clone(control)))),
        Some(site) => nodes.at(name, site).await,
    }
}

/// Returns when the attempt's outcome is certain, or the office is over.
pub(super) async fn resolve(
    mut desk: watch::Receiver<Option<Desk>>,
    nodes: Rc<Nodes>,
    ask: Resolve,
    fatal: Rc<dyn Fn(DbError)>,
) -> Resolved {
    let asked_by = desk.borrow().as_ref().map(|d| d.office);
    let mut told = false;
    let mut pause = AGAIN_AFTER;
    loop {
        let Ok(at) = desk.wait_for(Option::is_some).await.map(|d| (*d).clone()) else {
            return Resolved::Unknown;
        };
        let Some(Desk { control, office }) = at else { continue };
        if asked_by.is_some_and(|by| !by.continues(&office)) {
            return Resolved::Unknown;
        }
        let resolved = async {
            let node = node_of(&nodes, &control, &ask.node, ask.task.site).await?;
            let resolution = recover::resolve(&node, &control, office, &ask.task, ask.patience).await?;
            Ok((resolution, node))
        };
        match resolved.await {
            Ok((Resolution::Committed, _)) => return Resolved::Committed,
            Ok((Resolution::Revoked, node)) => {
                let server_started = recover::server_started(&node).await.ok();
                return Resolved::Revoked { server_started };
            }
            Err(e @ DbError::TwoHomes(_)) => {
                tracing::error!("{e}");
                fatal(e);
                return Resolved::Unknown;
            }
            Err(e) => {
                // That home is away is told by the one who keeps the office.
                if !told && (ask.task.site.is_some() || !e.is_transient()) {
                    tracing::warn!(
                        task = ask.task.task.0,
                        node = ask.node,
                        "outcome unknown, trying again: {e}"
                    );
                    told = true;
                }
                tokio::time::sleep(pause).await;
                if ask.task.site.is_some() {
                    pause = (pause * 2).min(MAX_AGAIN_AFTER);
                }
            }
        }
    }
}

/// Asks for the end of a backend, once.
pub(super) async fn end(desk: Option<Desk>, nodes: Rc<Nodes>, ask: EndBackend) {
    let Some(Desk { control, .. }) = desk else { return };
    let ended = async {
        let node = node_of(&nodes, &control, &ask.node, ask.site).await?;
        recover::terminate(&node, ask.backend).await
    };
    if let Err(e) = ended.await {
        tracing::warn!(pid = ask.backend.pid, node = ask.node, "{e}");
    }
}
