//! What an Executor needs of a session, so that tests can stand in for PostgreSQL.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::time::Instant;

use crate::db::{AttemptEnd, Completion, Order, Output, Session, Site};
use crate::model::{Backend, SessionKey};

/// A session that logged in as an owner.
pub trait Runner: Send + 'static {
    /// The server process behind it.
    fn backend(&self) -> Backend;
    /// The node's database that it is logged in to; `None` for home.
    fn site(&self) -> Option<&Site> {
        None
    }
    /// When its server was started.
    fn server_started(&self) -> jiff::Timestamp;
    /// When it was opened.
    fn opened_at(&self) -> Instant;
    /// How many commands it has run.
    fn uses(&self) -> u32;
    /// May it be lent again?
    fn is_reusable(&self) -> bool;
    /// Makes what cancels the next run; call it before the run.
    fn canceller(&self) -> Box<dyn Fn() -> LocalBoxFuture<'static, ()>>;
    /// Makes its owner's scratch schema if it is not there, and puts it first in the search path of the next run; or says how
    /// the attempt ends instead.
    fn use_scratch<'a>(&'a mut self, schema: &'a str) -> LocalBoxFuture<'a, Result<(), AttemptEnd>>;
    /// Runs a command in a transaction that ends with its completion record.
    fn run_transactional<'a>(
        &'a mut self,
        order: Order<'a>,
        completion: &'a Completion,
    ) -> LocalBoxFuture<'a, AttemptEnd>;
    /// Runs a single `COPY … TO STDOUT` likewise, and streams what it sends to a file.
    fn run_output<'a>(
        &'a mut self,
        order: Order<'a>,
        completion: &'a Completion,
        output: &'a Output,
    ) -> LocalBoxFuture<'a, AttemptEnd>;
    /// Runs a command outside a transaction.
    fn run_plain<'a>(&'a mut self, order: Order<'a>) -> LocalBoxFuture<'a, AttemptEnd>;
    /// Closes it and waits, for a moment, until its backend has ended.
    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()>;
}

/// How long a session may take to end when it is closed; its slots wait for that.
const CLOSE_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

impl Runner for Session {
    fn backend(&self) -> Backend {
        Session::backend(self)
    }

    fn site(&self) -> Option<&Site> {
        Session::site(self)
    }

    fn server_started(&self) -> jiff::Timestamp {
        Session::server_started(self)
    }

    fn opened_at(&self) -> Instant {
        Session::opened_at(self)
    }

    fn uses(&self) -> u32 {
        Session::uses(self)
    }

    fn is_reusable(&self) -> bool {
        Session::is_reusable(self)
    }

    fn canceller(&self) -> Box<dyn Fn() -> LocalBoxFuture<'static, ()>> {
        let canceller = Session::canceller(self);
        Box::new(move || {
            let canceller = canceller.clone();
            async move {
                if let Err(e) = canceller.cancel().await {
                    tracing::warn!("cancel request failed: {e}");
                }
            }
            .boxed_local()
        })
    }

    fn use_scratch<'a>(&'a mut self, schema: &'a str) -> LocalBoxFuture<'a, Result<(), AttemptEnd>> {
        Session::use_scratch(self, schema).boxed_local()
    }

    fn run_transactional<'a>(
        &'a mut self,
        order: Order<'a>,
        completion: &'a Completion,
    ) -> LocalBoxFuture<'a, AttemptEnd> {
        async move { Session::run_transactional(self, &order, completion).await }.boxed_local()
    }

    fn run_output<'a>(
        &'a mut self,
        order: Order<'a>,
        completion: &'a Completion,
        output: &'a Output,
    ) -> LocalBoxFuture<'a, AttemptEnd> {
        async move { Session::run_output(self, &order, completion, output).await }.boxed_local()
    }

    fn run_plain<'a>(&'a mut self, order: Order<'a>) -> LocalBoxFuture<'a, AttemptEnd> {
        async move { Session::run_plain(self, &order).await }.boxed_local()
    }

    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async move { Session::close(*self, CLOSE_LIMIT).await }.boxed_local()
    }
}

/// Why a session could not be opened, as far as the Monitor must tell the cases apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenFailure {
    /// Concerns this owner alone: its tasks fail with these words.
    Refused {
        /// The server's SQLSTATE, or one of ours for a missing credential or node.
        sqlstate: String,
        /// What to write on the tasks.
        message: String,
    },
    /// Will pass: the node is not reachable, or has no room.
    Later {
        /// What to log.
        message: String,
        /// Does it look as if the node were down?
        suspect: bool,
    },
}

/// Opens sessions. The real one knows the nodes and the owners' passwords.
pub trait SessionSource: 'static {
    /// Opens a session logged in as the key's owner on the key's node.
    fn open(&self, key: SessionKey) -> LocalBoxFuture<'static, Result<Box<dyn Runner>, OpenFailure>>;
}
