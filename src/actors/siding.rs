//! Where ready sessions wait for work. The Yard counts them; this holds them, and says which are past their bounds.

use std::collections::HashMap;

use actix::Message;
use tokio::time::Instant;

use super::runner::Runner;
use crate::messages::SlotPermit;
use crate::model::{SessionKey, TaskId};
use crate::settings;

/// An Executor is done with a session that can be lent again. Precedes its `TaskFinished`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionReturned {
    /// Where it is logged in, and as whom.
    pub key: SessionKey,
    /// The session.
    pub session: Box<dyn Runner>,
}

/// What an attempt held: a session and slots.
pub struct Place {
    /// Where the session is logged in, and as whom.
    pub key: SessionKey,
    /// The session, ready for another command.
    pub session: Box<dyn Runner>,
    /// The slots.
    pub permit: SlotPermit,
}

/// An Executor with others in line behind it is through with its place. Precedes its `TaskFinished`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PlaceFreed {
    /// Its task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: i32,
    /// Its place; `None` when the session is of no use to the next.
    pub place: Option<Place>,
}

struct Waiting {
    session: Box<dyn Runner>,
    since: Instant,
}

/// Sessions that wait for work, by key.
#[derive(Default)]
pub struct Siding {
    waiting: HashMap<SessionKey, Vec<Waiting>>,
    /// Nodes that lead elsewhere since then: earlier sessions are of no more use.
    moved: HashMap<String, Instant>,
}

impl Siding {
    /// May the session be lent (again)?
    pub fn may_lend(&self, key: &SessionKey, session: &dyn Runner, rules: &settings::Sessions) -> bool {
        let fresh = session.uses() == 0;
        let worn = session.uses() >= rules.max_uses || session.opened_at().elapsed() >= rules.max_age;
        !self.has_moved_since(&key.node, session.opened_at())
            && session.is_reusable()
            && (fresh || rules.reuse && !worn)
    }

    /// Takes a session in, unless it may not be lent again. Says whether it did.
    pub fn put(&mut self, key: SessionKey, session: Box<dyn Runner>, rules: &settings::Sessions) -> bool {
        if !self.may_lend(&key, session.as_ref(), rules) {
            return false;
        }
        self.waiting.entry(key).or_default().push(Waiting { session, since: Instant::now() });
        true
    }

    /// The node leads to another database from now on: closes the sessions that wait for it. Names the key of each.
    pub fn moved(&mut self, node: &str) -> Vec<SessionKey> {
        self.moved.insert(node.to_owned(), Instant::now());
        let gone = self.waiting.extract_if(|key, _| key.node == node);
        gone.flat_map(|(key, stack)| std::iter::repeat_n(key, stack.len())).collect()
    }

    /// Did the node begin to lead elsewhere after this moment?
    pub fn has_moved_since(&self, node: &str, moment: Instant) -> bool {
        self.moved.get(node).is_some_and(|moved| moment <= *moved)
    }

    /// Lends the session that waited shortest, so that superfluous ones grow old and are closed.
    pub fn take(&mut self, key: &SessionKey) -> Option<Box<dyn Runner>> {
        let stack = self.waiting.get_mut(key)?;
        let session = stack.pop().map(|w| w.session);
        if stack.is_empty() {
            self.waiting.remove(key);
        }
        session
    }

    /// Closes sessions that waited too long, grew too old or have ended by themselves. Names the key of each.
    pub fn sweep(&mut self, rules: &settings::Sessions) -> Vec<SessionKey> {
        let mut gone = Vec::new();
        self.waiting.retain(|key, stack| {
            stack.retain(|w| {
                let keep = w.session.is_reusable()
                    && w.since.elapsed() < rules.max_idle
                    && w.session.opened_at().elapsed() < rules.max_age;
                if !keep {
                    gone.push(key.clone());
                }
                keep
            });
            !stack.is_empty()
        });
        gone
    }
}
