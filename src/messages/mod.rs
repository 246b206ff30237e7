//! The shared vocabulary of the actors: commands are imperatives, facts are participles, questions name their answer.
//!
//! Peers hold each other as `Recipient<M>`: that says what is said, and a test can stand in. Questions go down only
//! (Monitor to Ledger and NodeLimiter, Executor to Ledger); facts come up.

pub mod control;
pub mod dispatch;
pub mod inspect;
pub mod ledger;
pub mod nodes;
pub mod slots;

pub use control::{CancelAll, Reload, Terminate};
pub use dispatch::{
    AbandonTask, CancelTask, Crashed, InterruptTask, SessionsRetried, TaskFinished, TaskLeft, Wake, WakeAt,
};
pub use inspect::{GetSnapshot, Snapshot};
pub use ledger::{
    EndBackend, Flush, LostOffice, PrepareOutput, Publish, Release, RequestCancel, Resolve, Resolved,
    RunTurn, TicketMaker, TookOffice, TurnError, UseScratch,
};
pub use nodes::{NodeHeard, NodesDeclared, NodesFound, PublishHealth, Suspect};
pub use slots::{
    AcquireSlots, AdoptSlots, GetSlots, SetLimits, SlotAnswer, SlotPermit, SlotWant, SlotsReturned,
};
