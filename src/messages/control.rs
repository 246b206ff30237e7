//! What people and the service manager ask of the whole process.

use actix::Message;

use crate::settings::Settings;

/// Start nothing new, give running tasks their grace, then interrupt them and leave. A second one skips the grace.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct Terminate;

/// Cancel every job of which this process runs a task, wait until they are cancelled, and leave.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
#[rtype(result = "()")]
pub struct CancelAll;

/// New settings, already read and validated: those that may change take effect at once.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Reload(pub Box<Settings>);
