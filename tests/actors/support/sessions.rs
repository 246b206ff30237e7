//! Sessions without a server: a run ends when the test says so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use yardmaster::actors::runner::{OpenFailure, Runner, SessionSource};
use yardmaster::db::{AttemptEnd, Completion, Order, Output};
use yardmaster::model::{Backend, SessionKey};

/// A run under way, in the test's hands.
pub struct Run {
    pub task: i64,
    pub attempt: i32,
    pub transactional: bool,
    pub command: String,
    pub owner: String,
    pub backend: Backend,
    pub cancels: Arc<AtomicU32>,
    end: oneshot::Sender<Option<AttemptEnd>>,
}

impl Run {
    pub fn end(self, end: AttemptEnd) {
        let _ = self.end.send(Some(end));
    }

    pub fn commit(self) {
        let recorded = self.transactional;
        self.end(AttemptEnd::Committed { recorded, message: "SELECT 1".into() });
    }

    /// Outside a transaction: it ends with these words.
    pub fn say(self, message: &str) {
        self.end(AttemptEnd::Succeeded { message: message.into() });
    }

    pub fn fail(self, sqlstate: &str) {
        self.end(AttemptEnd::Failed { sqlstate: sqlstate.into(), message: format!("ERROR: {sqlstate}") });
    }

    pub fn lose(self) {
        self.end(AttemptEnd::Doubt { fatal: None, message: "the connection was lost".into() });
    }

    /// The Runner panics.
    pub fn panic(self) {
        let _ = self.end.send(None);
    }

    pub fn cancels(&self) -> u32 {
        self.cancels.load(Ordering::SeqCst)
    }

    /// Did the Executor let go of the run?
    pub fn is_abandoned(&self) -> bool {
        self.end.is_closed()
    }
}

struct FakeSession {
    backend: Backend,
    owner: String,
    opened: Instant,
    uses: u32,
    cancels: Arc<AtomicU32>,
    spent: Arc<AtomicBool>,
    runs: mpsc::UnboundedSender<Run>,
}

impl FakeSession {
    fn run<'a>(&'a mut self, order: Order<'a>, transactional: bool) -> LocalBoxFuture<'a, AttemptEnd> {
        let (end, ended) = oneshot::channel();
        self.uses += 1;
        let run = Run {
            task: order.name.task.0,
            attempt: order.name.attempt,
            transactional,
            command: order.command.to_owned(),
            owner: self.owner.clone(),
            backend: self.backend,
            cancels: Arc::clone(&self.cancels),
            end,
        };
        let _ = self.runs.send(run);
        async move {
            match ended.await {
                Ok(Some(end)) => end,
                Ok(None) => panic!("the test wanted this panic"),
                Err(_) => std::future::pending().await,
            }
        }
        .boxed_local()
    }
}

impl Runner for FakeSession {
    fn backend(&self) -> Backend {
        self.backend
    }
    fn server_started(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }
    fn opened_at(&self) -> Instant {
        self.opened
    }
    fn uses(&self) -> u32 {
        self.uses
    }
    fn is_reusable(&self) -> bool {
        !self.spent.load(Ordering::SeqCst)
    }
    fn canceller(&self) -> Box<dyn Fn() -> LocalBoxFuture<'static, ()>> {
        let (cancels, spent) = (Arc::clone(&self.cancels), Arc::clone(&self.spent));
        Box::new(move || {
            spent.store(true, Ordering::SeqCst);
            cancels.fetch_add(1, Ordering::SeqCst);
            async {}.boxed_local()
        })
    }
    fn use_scratch<'a>(&'a mut self, schema: &'a str) -> LocalBoxFuture<'a, Result<(), AttemptEnd>> {
        assert!(!schema.is_empty());
        async { Ok(()) }.boxed_local()
    }
    fn run_transactional<'a>(
        &'a mut self,
        order: Order<'a>,
        _: &'a Completion,
    ) -> LocalBoxFuture<'a, AttemptEnd> {
        self.run(order, true)
    }
    fn run_output<'a>(
        &'a mut self,
        order: Order<'a>,
        _: &'a Completion,
        output: &'a Output,
    ) -> LocalBoxFuture<'a, AttemptEnd> {
        assert!(!output.name.is_empty());
        self.run(order, true)
    }
    fn run_plain<'a>(&'a mut self, order: Order<'a>) -> LocalBoxFuture<'a, AttemptEnd> {
        self.run(order, false)
    }
    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        async {}.boxed_local()
    }
}

/// Opens sessions at once, unless told otherwise.
pub struct FakeSource {
    pub runs: mpsc::UnboundedSender<Run>,
    pub pids: AtomicI32,
    pub failures: Arc<Mutex<HashMap<String, OpenFailure>>>,
    pub opened: Arc<Mutex<Vec<SessionKey>>>,
}

impl SessionSource for FakeSource {
    fn open(&self, key: SessionKey) -> LocalBoxFuture<'static, Result<Box<dyn Runner>, OpenFailure>> {
        let failure = self.failures.lock().unwrap().get(&key.owner).cloned();
        self.opened.lock().unwrap().push(key.clone());
        let session = FakeSession {
            backend: Backend {
                pid: self.pids.fetch_add(1, Ordering::SeqCst),
                start: jiff::Timestamp::UNIX_EPOCH,
            },
            owner: key.owner,
            opened: Instant::now(),
            uses: 0,
            cancels: Arc::default(),
            spent: Arc::default(),
            runs: self.runs.clone(),
        };
        async move { failure.map_or_else(|| Ok(Box::new(session) as Box<dyn Runner>), Err) }.boxed_local()
    }
}
