//! One attempt, one session, one outcome, then gone.
//!
//! An Executor is made from a claimed task and its slots, so what was not claimed and admitted cannot be started. It
//! runs the command, hears CancelTask and InterruptTask while it does, and reports once: TaskFinished when the outcome
//! is certain. When the session cannot tell (the connection was lost), the record decides: it asks the Ledger to
//! resolve the attempt, and keeps its slots until then. Recovery uses the same path: an Executor without a session
//! starts in doubt.

mod preparing;

use std::time::Duration;

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Recipient, WrapFuture};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::guards::OutcomeGuard;
use super::runner::Runner;
use super::siding::{Place, PlaceFreed, SessionReturned};
use crate::db::{AttemptEnd, AttemptName, Completion, Order, Output};
use crate::messages::{
    AbandonTask, CancelTask, Crashed, EndBackend, Flush, InterruptTask, PrepareOutput, Resolve, Resolved,
    SlotPermit, TaskFinished, TaskLeft, UseScratch,
};
use crate::model::{Backend, ClaimedTask, Outcome, SessionKey};
use crate::sql::{self, Inspection};

/// How long a backend that was left behind outside a transaction may go on when its task has no timeout of its own.
/// Index builds and vacuums of a large table take hours; a day bounds what nobody watches.
pub const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Between two requests to end a backend that does not end.
const END_AGAIN: Duration = Duration::from_secs(2);
/// How long a leaving service waits for the answer about an attempt in doubt, before it leaves that to its successor.
const LET_GO_AFTER: Duration = Duration::from_secs(3);
/// SQLSTATE of what we refuse to run: feature_not_supported, which no retry can mend.
const REFUSED: &str = "0A000";

/// Whom an Executor talks to.
#[derive(Clone)]
pub struct Peers {
    /// Hears the outcome.
    pub finished: Recipient<TaskFinished>,
    /// Hears that an attempt was left to whoever holds office next.
    pub left: Recipient<TaskLeft>,
    /// Hears of a panic.
    pub crashed: Recipient<Crashed>,
    /// Takes the session back.
    pub returned: Recipient<SessionReturned>,
    /// Takes session and slots back for the next in line.
    pub freed: Recipient<PlaceFreed>,
    /// Resolves what is in doubt.
    pub resolve: Recipient<Resolve>,
    /// Ends backends.
    pub end: Recipient<EndBackend>,
    /// Records the use of scratch schemas.
    pub scratch: Recipient<UseScratch>,
    /// Makes the folders of output files.
    pub output: Recipient<PrepareOutput>,
    /// Makes claims durable.
    pub flush: Recipient<Flush>,
}

/// What an Executor starts from.
pub struct Assignment {
    /// The claimed task.
    pub task: ClaimedTask,
    /// Where it is logged in, and as whom.
    pub key: SessionKey,
    /// The session; `None` for an attempt that nobody runs any more, whose outcome is to be found out.
    pub session: Option<Box<dyn Runner>>,
    /// What the completion record says.
    pub completion: Completion,
    /// Its slots.
    pub permit: SlotPermit,
    /// Do others stand in line behind it, for the same session and slots?
    pub followed: bool,
    /// How long a statement has to end after a cancel request, before its backend is ended.
    pub grace: Duration,
}

/// What reached the Executor while its command ran; stronger ones win.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Nudge {
    None,
    Cancel,
    Interrupt,
    Abandon,
}

/// Runs one attempt.
pub struct Executor {
    assignment: Option<Assignment>,
    peers: Peers,
    nudge: watch::Sender<Nudge>,
}

impl Executor {
    /// Makes an Executor; start it.
    pub fn new(assignment: Assignment, peers: Peers) -> Executor {
        Executor { assignment: Some(assignment), peers, nudge: watch::Sender::new(Nudge::None) }
    }

    fn strengthen(&self, nudge: Nudge) {
        self.nudge.send_if_modified(|current| {
            let stronger = nudge > *current;
            *current = (*current).max(nudge);
            stronger
        });
    }
}

impl Actor for Executor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(assignment) = self.assignment.take() else { return };
        let (peers, nudges) = (self.peers.clone(), self.nudge.subscribe());
        // Spawned on the context: it ends with the actor, and a panic in it ends the actor, whose guard then speaks.
        ctx.spawn(attempt(assignment, peers, nudges).into_actor(self).map(|(), _, ctx| ctx.stop()));
    }
}

impl Handler<CancelTask> for Executor {
    type Result = ();

    fn handle(&mut self, _: CancelTask, _: &mut Self::Context) {
        self.strengthen(Nudge::Cancel);
    }
}

impl Handler<InterruptTask> for Executor {
    type Result = ();

    fn handle(&mut self, _: InterruptTask, _: &mut Self::Context) {
        self.strengthen(Nudge::Interrupt);
    }
}

impl Handler<AbandonTask> for Executor {
    type Result = ();

    fn handle(&mut self, _: AbandonTask, _: &mut Self::Context) {
        self.strengthen(Nudge::Abandon);
    }
}

/// How a run ended, before doubt is resolved.
pub(super) enum Ended {
    Certain(Outcome),
    /// `own` says why we ended it ourselves, if we did.
    Doubt {
        fatal: Option<(String, String)>,
        message: String,
        own: Option<Own>,
    },
}

/// Why we ended a run ourselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Cancel,
    Interrupt,
    Timeout(Duration),
}

async fn attempt(mut assignment: Assignment, peers: Peers, mut nudges: watch::Receiver<Nudge>) {
    let (task, attempt) = (assignment.task.task, assignment.task.attempt);
    let backend = assignment.task.backend;
    let guard = OutcomeGuard::new(task, attempt, assignment.permit, peers.crashed.clone());
    let mut session = assignment.session.take();
    let server_started = session.as_ref().map(|s| s.server_started());
    let run = Run {
        task: &assignment.task,
        node: &assignment.key.node,
        completion: &assignment.completion,
        grace: assignment.grace,
        peers: &peers,
    };

    let ended = match &mut session {
        Some(session) => run.command(session.as_mut(), &mut nudges).await,
        None => Ended::Doubt {
            fatal: None,
            message: "the service that ran the attempt was lost".to_owned(),
            own: None,
        },
    };
    let mut reusable = None;
    if let Some(session) = session {
        if matches!(ended, Ended::Certain(_)) && session.is_reusable() {
            reusable = Some(session);
        } else {
            if assignment.followed {
                // They need not wait until this one's end is certain.
                peers.freed.do_send(PlaceFreed { task, attempt, place: None });
            }
            session.close().await;
        }
    }
    let outcome = match ended {
        Ended::Certain(outcome) => Some(outcome),
        Ended::Doubt { fatal, message, own } => tokio::select! {
            outcome = run.resolve(fatal, message, own, server_started) => outcome,
            () = run.let_go(&mut nudges, backend) => None,
        },
    };
    let key = assignment.key;
    match reusable {
        Some(session) if assignment.followed => {
            let place = guard.hand_over().map(|permit| Place { key, session, permit });
            peers.freed.do_send(PlaceFreed { task, attempt, place });
        }
        // The slots go back before anybody hears of the end, so that the next round finds them free.
        reusable => {
            guard.disarm();
            if let Some(session) = reusable {
                peers.returned.do_send(SessionReturned { key, session });
            }
        }
    }
    match outcome {
        Some(outcome) => peers.finished.do_send(TaskFinished { task, attempt, outcome, backend }),
        None => peers.left.do_send(TaskLeft { task, attempt }),
    }
}

/// How a command is run.
#[derive(Clone, Copy)]
pub(super) enum How<'a> {
    /// In a transaction that ends with its completion record.
    Inside,
    /// Outside one: the command itself, or what comes before and after it.
    Outside(&'a str),
    /// In such a transaction, its COPY data to a file.
    ToFile(&'a Output),
}

/// An attempt at work, with what it needs.
pub(super) struct Run<'a> {
    pub(super) task: &'a ClaimedTask,
    node: &'a str,
    completion: &'a Completion,
    grace: Duration,
    pub(super) peers: &'a Peers,
}

impl Run<'_> {
    /// Runs the command as its kind demands.
    async fn command(&self, session: &mut dyn Runner, nudges: &mut watch::Receiver<Nudge>) -> Ended {
        let kind = match (sql::inspect_lenient(&self.task.command), &self.task.output) {
            (Ok(kind), None) => kind,
            (Err(sql::Refusal::ClientCopy { .. }), Some(name)) if sql::copies_out(&self.task.command) => {
                return self.copy_out(session, name, nudges).await;
            }
            (Ok(_), Some(name)) => {
                return failed(
                    REFUSED,
                    format!(
                        "ERROR: the task has the output file \"{name}\", but its command is no COPY … TO STDOUT\nHINT: Make it COPY (SELECT …) TO STDOUT, alone."
                    ),
                );
            }
            (Err(refusal), _) => {
                let (sqlstate, message) = refusal_of(&refusal);
                return failed(sqlstate, message);
            }
        };
        let kind = match (self.task.transactional, kind) {
            (_, Inspection::Empty) => {
                return Ended::Certain(Outcome::Done { message: String::new(), recorded: true });
            }
            (Some(true), _) => Inspection::Transactional,
            (Some(false), _) => Inspection::NonTransactional,
            (None, kind) => kind,
        };
        // One for the attempt, however often the command is sent.
        let deadline = self.task.timeout.map(|t| (Instant::now() + t, t));
        match kind {
            Inspection::Empty | Inspection::Transactional => {
                self.watched(session, How::Inside, deadline, nudges).await
            }
            Inspection::NonTransactional => self.outside(session, deadline, nudges).await,
            Inspection::RetryOutside => match self.watched(session, How::Inside, deadline, nudges).await {
                // A session that was sent a cancel request runs nothing more: the attempt was to end.
                Ended::Certain(Outcome::Failed { sqlstate, .. })
                    if belongs_outside(&sqlstate) && session.is_reusable() =>
                {
                    self.outside(session, deadline, nudges).await
                }
                ended => ended,
            },
        }
    }

    /// Runs the command and watches for nudges and the timeout meanwhile.
    pub(super) async fn watched(
        &self,
        session: &mut dyn Runner,
        how: How<'_>,
        deadline: Option<(Instant, Duration)>,
        nudges: &mut watch::Receiver<Nudge>,
    ) -> Ended {
        let canceller = session.canceller();
        let backend = session.backend();
        let command = match how {
            How::Outside(command) => command,
            How::Inside | How::ToFile(_) => &self.task.command,
        };
        let order = Order { name: AttemptName::from(self.task), command };
        let mut own: Option<Own> = None;
        let mut cancelling = None;
        let mut end_at: Option<Instant> = None;
        let mut heard = Nudge::None;

        if self.task.scratch
            && let Err(end) = self.use_scratch(session).await
        {
            return match end {
                AttemptEnd::Failed { sqlstate, message } => failed(&sqlstate, message),
                AttemptEnd::NotSent { message } => {
                    Ended::Certain(Outcome::Interrupted { revoked: false, message })
                }
                AttemptEnd::Committed { .. } | AttemptEnd::Succeeded { .. } | AttemptEnd::Doubt { .. } => {
                    Ended::Doubt { fatal: None, message: String::new(), own: None }
                }
            };
        }
        let mut run = match how {
            How::Inside => session.run_transactional(order, self.completion),
            How::Outside(_) => session.run_plain(order),
            How::ToFile(output) => session.run_output(order, self.completion, output),
        };
        let end = loop {
            tokio::select! {
                biased;
                end = &mut run => break end,
                changed = nudges.wait_for(|n| *n > heard) => {
                    let Ok(nudge) = changed.map(|n| *n) else { continue };
                    heard = nudge;
                    match nudge {
                        Nudge::None => {}
                        Nudge::Cancel => {
                            own.get_or_insert(Own::Cancel);
                            cancelling = Some(canceller());
                            end_at = Some(Instant::now() + self.grace);
                        }
                        Nudge::Interrupt => {
                            own = own.filter(|o| *o == Own::Cancel).or(Some(Own::Interrupt));
                            cancelling = Some(canceller());
                            end_at = Some(Instant::now() + Duration::from_millis(500));
                        }
                        // The socket closes with the session; the server notices and ends the backend.
                        Nudge::Abandon => break AttemptEnd::Doubt { fatal: None, message: String::new() },
                    }
                }
                () = sleep_until(deadline.map_or_else(Instant::now, |d| d.0)), if deadline.is_some() && own.is_none() => {
                    own = deadline.map(|d| Own::Timeout(d.1));
                    cancelling = Some(canceller());
                    end_at = Some(Instant::now() + self.grace);
                }
                () = async { if let Some(c) = &mut cancelling { c.await } }, if cancelling.is_some() => cancelling = None,
                () = sleep_until(end_at.unwrap_or_else(Instant::now)), if end_at.is_some() => {
                    self.end(backend);
                    end_at = Some(Instant::now() + END_AGAIN);
                }
            }
        };
        drop(run);
        match end {
            AttemptEnd::Committed { message, .. } => {
                Ended::Certain(Outcome::Done { message, recorded: true })
            }
            AttemptEnd::Succeeded { message } => Ended::Certain(Outcome::Done { message, recorded: false }),
            AttemptEnd::Failed { sqlstate, message } => match own {
                Some(Own::Interrupt) if sqlstate == "57014" || belongs_outside(&sqlstate) => {
                    Ended::Certain(Outcome::Interrupted {
                        revoked: false,
                        message: "the service was stopped".to_owned(),
                    })
                }
                Some(Own::Timeout(limit)) if sqlstate == "57014" => {
                    failed(&sqlstate, timed_out(&message, limit))
                }
                Some(_) | None => Ended::Certain(Outcome::Failed { sqlstate, message, revoked: false }),
            },
            AttemptEnd::NotSent { message } => {
                Ended::Certain(Outcome::Interrupted { revoked: false, message })
            }
            AttemptEnd::Doubt { fatal, message } => Ended::Doubt { fatal, message, own },
        }
    }

    fn end(&self, backend: Backend) {
        let (node, site) = (self.node.to_owned(), self.task.site);
        self.peers.end.do_send(EndBackend { backend, node, site });
    }

    /// Asks the catalog what became of the attempt. `None`: another leader decides.
    async fn resolve(
        &self,
        fatal: Option<(String, String)>,
        message: String,
        own: Option<Own>,
        session_server: Option<jiff::Timestamp>,
    ) -> Option<Outcome> {
        let patience = match (self.may_have_run_outside(), own) {
            (true, None) => self.task.timeout.unwrap_or(PATIENCE),
            (true, Some(_)) | (false, _) => Duration::ZERO,
        };
        // Without an answer the Ledger is gone, and the process is ending.
        let (task, node) = (self.task.clone(), self.node.to_owned());
        let resolved = self.peers.resolve.send(Resolve { task, node, patience }).await.ok()?;
        Some(match resolved {
            Resolved::Committed => Outcome::Done { message, recorded: true },
            Resolved::Revoked { server_started } => {
                let same_server = session_server.is_some() && server_started == session_server;
                match (own, fatal) {
                    (Some(Own::Timeout(limit)), _) => Outcome::Failed {
                        sqlstate: "57014".to_owned(),
                        message: timed_out(&message, limit),
                        revoked: true,
                    },
                    // Somebody ended this one backend while the server stayed up: a failure, not an interruption.
                    (None, Some((sqlstate, _))) if same_server => {
                        Outcome::Failed { sqlstate, message, revoked: true }
                    }
                    (Some(Own::Cancel | Own::Interrupt) | None, _) => {
                        Outcome::Interrupted { revoked: true, message }
                    }
                }
            }
            Resolved::Unknown => return None,
        })
    }

    /// Hears nudges while the attempt's end is being found out. Cancel ends its backend, which the resolution then
    /// sees; when the service leaves, the attempt is left as it is: the next start finds out.
    async fn let_go(&self, nudges: &mut watch::Receiver<Nudge>, backend: Option<Backend>) {
        let mut heard = Nudge::None;
        loop {
            // An error means that the Executor itself is gone, and this future with it.
            let Ok(nudge) = nudges.wait_for(|n| *n > heard).await.map(|n| *n) else { return };
            heard = nudge;
            match (nudge, backend) {
                (Nudge::Abandon, _) => return,
                // Usually the backend is ended already and the answer is near: then it is recorded as interrupted.
                (Nudge::Interrupt, _) => {
                    tokio::time::sleep(LET_GO_AFTER).await;
                    return;
                }
                (Nudge::Cancel, Some(backend)) => self.end(backend),
                (Nudge::Cancel | Nudge::None, _) => {}
            }
        }
    }

    /// May the command have run outside a transaction?
    fn may_have_run_outside(&self) -> bool {
        match (self.task.transactional, sql::inspect_lenient(&self.task.command)) {
            (Some(transactional), _) => !transactional,
            (None, Ok(Inspection::NonTransactional | Inspection::RetryOutside)) => true,
            (None, Ok(Inspection::Transactional | Inspection::Empty) | Err(_)) => false,
        }
    }
}

/// Says the server that the command cannot run in a transaction block? Both are raised before or without lasting
/// effect, and the transaction was rolled back.
fn belongs_outside(sqlstate: &str) -> bool {
    matches!(sqlstate, "2D000" | "25001")
}

/// SQLSTATE and text for a command that is not run.
pub(super) fn refusal_of(refusal: &sql::Refusal) -> (&'static str, String) {
    let sqlstate = match refusal {
        sql::Refusal::Syntax { .. } | sql::Refusal::NulCharacter { .. } => "42601",
        sql::Refusal::TransactionControl { .. }
        | sql::Refusal::ClientCopy { .. }
        | sql::Refusal::MixedNonTransactional { .. } => REFUSED,
    };
    let hint = refusal.remedy().map(|r| format!("\nHINT: {r}")).unwrap_or_default();
    (sqlstate, format!("ERROR: {refusal}{hint}"))
}

pub(super) fn failed(sqlstate: &str, message: String) -> Ended {
    Ended::Certain(Outcome::Failed { sqlstate: sqlstate.to_owned(), message, revoked: false })
}

fn timed_out(message: &str, limit: Duration) -> String {
    let gap = if message.is_empty() { "" } else { "\n" };
    format!("{message}{gap}the attempt took longer than its timeout of {}", humantime::format_duration(limit))
}
