//! What is said to the [`Yard`](super::Yard) and what it answers: plain values.

use std::time::Duration;

use crate::model::retry::RetryPolicy;
use crate::model::{
    ClaimedTask, Crossing, JobId, LaneId, LiveAttempt, Outcome, SessionKey, TaskId, Turn, TurnReply,
};

/// The reloadable numbers that the Yard decides by.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// The global limit; windows are as large as this, so that a round can be filled from one lane.
    pub max_task_executors: u32,
    /// Connections that may be opening at once for one node and owner.
    pub max_pending_sessions: u32,
    /// The policy that tasks override.
    pub retry: RetryPolicy,
    /// Interruptions before a task is given up.
    pub max_interruptions: u32,
    /// How many short tasks may be claimed for one session at once; 1: no more than it runs.
    pub prefetch: u32,
}

/// One possible start, in order of dispatch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Want {
    /// The lane to start from.
    pub lane: LaneId,
    /// The session it needs.
    pub key: SessionKey,
    /// The nodes whose slots it takes.
    pub nodes: Vec<String>,
    /// Is a session ready (or is the task to fail for want of one)? Otherwise the want only asks whether slots would
    /// be free, to know whether opening a session is worth while.
    pub ready: bool,
}

/// What stands behind an offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The index of the want.
    pub want: usize,
    /// The session's key.
    pub key: SessionKey,
    /// The server refuses this owner: there is no session, and what is claimed fails with SQLSTATE and message.
    pub refusal: Option<(String, String)>,
}

impl Seat {
    /// Is it without a session?
    pub fn sessionless(&self) -> bool {
        self.refusal.is_some()
    }
}

/// The answer to a want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The slots are held.
    Granted,
    /// They would be free.
    Fits,
    /// They are not: a node is full.
    Full,
    /// They are not, and nobody's are: as many tasks run as may run in all.
    AllFull,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Something may be new in the catalog.
    Woken,
    /// This process decides; what the catalog holds alive. `resumed` when the epoch is still ours.
    TookOffice {
        /// Is the epoch the one held before?
        resumed: bool,
        /// The live attempts of the catalog.
        live: Vec<LiveAttempt>,
    },
    /// Another process decides.
    LostOffice,
    /// The wants of the round were answered, in their order.
    SlotsAnswered(Vec<Answer>),
    /// The turn was taken.
    TurnTaken(Box<TurnReply>),
    /// The turn came to nothing. In doubt it may have happened, and a `TookOffice` or `LostOffice` follows.
    TurnFailed {
        /// Is it unknown whether it happened?
        in_doubt: bool,
    },
    /// An attempt ended. `chance` (0 to 1) is for the jitter of a retry.
    Finished {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: i32,
        /// How it ended.
        outcome: Outcome,
        /// How long it ran, if this process saw it begin.
        ran: Option<Duration>,
        /// Randomness for the jitter.
        chance: f64,
    },
    /// An attempt was left to whoever holds office next; the catalog holds it alive.
    Left {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: i32,
    },
    /// A task in front of a line is through with its session and slots, which are good for the next. Its `Finished`
    /// follows.
    PlaceFreed(TaskId),
    /// A task in front of a line leaves no session to the next.
    PlaceLost(TaskId),
    /// The tick that was asked for.
    Ticked,
    /// A session became ready: opened, or returned by an Executor.
    SessionReady(SessionKey),
    /// An opening ended well; a `SessionReady` accompanies it.
    SessionOpened(SessionKey),
    /// The server refused the login for a reason that concerns this owner alone.
    SessionRefused {
        /// Where and as whom.
        key: SessionKey,
        /// The server's SQLSTATE.
        sqlstate: String,
        /// What to write on the tasks.
        message: String,
    },
    /// No session could be opened for a reason that will pass; a `SessionsRetried` follows.
    SessionFailed(SessionKey),
    /// The back-off of a key is over.
    SessionsRetried(SessionKey),
    /// A node was probed and is well, or down: nothing is started there then.
    NodeHeard {
        /// The node.
        node: String,
        /// Is it well?
        well: bool,
    },
    /// An idle session was closed.
    SessionGone(SessionKey),
    /// New rules, or limits changed.
    Reloaded(Rules),
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    CancelAll,
    /// The grace after Terminate is over.
    GraceOver,
}

/// What to do about it.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Ask for slots for these wants.
    AskSlots {
        /// In order of dispatch.
        wants: Vec<Want>,
        /// The place of the first one among all wants of the round; those before it keep what they were granted.
        first: usize,
        /// Do tasks wait for slots that are not asked for now, because they are known to be taken?
        others_wait: bool,
        /// All lanes of several nodes that wait for slots, asked for or not.
        crossings: Vec<Crossing>,
    },
    /// Take this turn. Offer `i` has the slots of want `seats[i].want`, and its backend is to be filled in with that of
    /// a ready session of its key, unless it is `sessionless`.
    TakeTurn {
        /// The turn.
        turn: Turn,
        /// Behind each offer.
        seats: Vec<Seat>,
    },
    /// Start the claimed task with the session and slots of this offer.
    Start {
        /// The offer's index.
        offer: usize,
        /// The task.
        task: ClaimedTask,
        /// Do others stand in line behind it, so that its session and slots are not simply returned?
        followed: bool,
    },
    /// Start the next task of a line with the session and slots of the one before.
    StartNext {
        /// The task before.
        after: TaskId,
        /// The next.
        task: ClaimedTask,
    },
    /// Nobody stands in line behind this task: its slots are free, and its session is ready (say so).
    ReturnPlace {
        /// The task that was the last.
        after: TaskId,
    },
    /// Feed `Ticked` after a [`TICK`](super::TICK).
    TickSoon,
    /// Nothing was claimed for this offer: its session is ready again, its slots are free.
    ReturnSeat {
        /// The offer's index.
        offer: usize,
    },
    /// It is unknown whether something was claimed for the offers: close their sessions.
    BurnSeats,
    /// Find out what became of an attempt that nobody runs here, holding its slots meanwhile.
    Adopt(Box<LiveAttempt>),
    /// Open a session.
    OpenSession(SessionKey),
    /// Ask a running attempt to end: its task is cancelling.
    Cancel(TaskId),
    /// End a running attempt as an interruption.
    Interrupt(TaskId),
    /// Forget a running attempt: another leader decides about it.
    Abandon(TaskId),
    /// Ask for the cancellation of these jobs.
    RequestCancel(Vec<JobId>),
    /// Wake up when the next delayed task is due.
    WakeAt(Option<Duration>),
    /// Start the grace period of a shutdown.
    StartGrace,
    /// Everything is settled: give up the office and leave.
    Stop {
        /// Did every job that was to be cancelled end?
        clean: bool,
    },
}
