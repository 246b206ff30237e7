//! [`Session`]: one connection, logged in as an owner, that runs attempts one after another.
//!
//! Only the owner's own login keeps hostile SQL inside the owner's rights, so a session is never shared between
//! owners and never used for the service's work. What it replies is believed for its own task only.
//!
//! A transactional attempt is sent in one go, reset included, and costs one round trip (phases: see
//! [`super::verdict`]). BEGIN travels in the command's own message: if it is not executed (a cancel may hit it),
//! neither is the command, which would otherwise commit by itself, without a record.
//!
//! Invariant: `sound` is false from the first byte sent until an attempt ended without any doubt; so a run whose
//! future was dropped, like every odd ending, leaves a session that is not reused.

mod copying;
mod scratch;

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use futures::join;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Connection, tls::NoTlsStream};

use super::attempt::{AttemptEnd, Completion, Order};
use super::cancel::{Canceller, Gate};
use super::dial::{Address, Stream};
use super::login::{self, OpenError};
use super::node::Site;
use super::replies::{Heard, SharedReplies, TransactionStatus, lock};
use super::tap::Tap;
use super::verdict::{self, Circumstances, TRANSACTIONAL_PHASES};
use crate::model::Backend;

/// Deferred constraints speak before the record is written; no cursor is left that would run at COMMIT; timeouts that
/// the command set for itself do not hit our part; and the commit is flushed whatever the command set.
const SETTLE: &str = "SET CONSTRAINTS ALL IMMEDIATE; CLOSE ALL; SET LOCAL statement_timeout = 0; \
     SET LOCAL lock_timeout = 0; SET LOCAL synchronous_commit = on";
/// What wrote nothing needs no record, hence no call.
const COMPLETE: &str = "SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned() IS NULL THEN false \
     ELSE yardmaster.complete($1, $2, $3, $4, $5, $6, $7) END";
/// What DISCARD ALL does, but for DISCARD PLANS: plans are nobody's secret, and to make those of `complete`, of foreign
/// keys and of the owner's own triggers anew for each task costs more than most tasks do (0.15 ms for `complete` alone).
const RESET: &str = "RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; DEALLOCATE ALL; UNLISTEN *; \
     SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES";

/// How long the reset may take (0.1 ms usually; thousands of temporary tables take longer). Then the session is
/// given up.
const RESET_LIMIT: Duration = Duration::from_secs(5);
/// How long setting the name of a plain attempt may take.
const SET_LIMIT: Duration = Duration::from_secs(5);

/// The server version (as `server_version_num`) that brought `transaction_timeout`, which older ones refuse as a
/// start-up option.
const TRANSACTION_TIMEOUT_SINCE: i32 = 170_000;

/// Runs the connection; aborting it closes the socket.
#[derive(Debug)]
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    pub(super) fn spawn(connection: Connection<Tap<Stream>, NoTlsStream>) -> Self {
        Self(tokio::spawn(async move {
            // Why it ended was noted by the tap, and every request under way learns that it did.
            let _ = connection.await;
        }))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the server said of a session when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its server process.
    pub backend: Backend,
    /// When the server was started.
    pub server_started: jiff::Timestamp,
    /// The owner's oid: a role dropped and made again has another.
    pub owner_oid: u32,
    /// Is the owner a superuser?
    pub superuser: bool,
    /// As in `server_version_num`.
    pub server_version: i32,
}

/// One connection logged in as an owner. Dropping it closes the socket at once.
pub struct Session {
    client: Client,
    driver: Driver,
    replies: SharedReplies,
    address: Address,
    owner: String,
    identity: Identity,
    max_message_bytes: usize,
    opened_at: Instant,
    uses: u32,
    gate: Arc<Gate>,
    sound: bool,
    site: Option<Arc<Site>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("address", &self.address)
            .field("identity", &self.identity)
            .field("uses", &self.uses)
            .field("sound", &self.sound)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(
        client: Client,
        driver: Driver,
        replies: SharedReplies,
        address: Address,
        owner: &str,
        identity: Identity,
        max_message_bytes: usize,
    ) -> Self {
        Self {
            client,
            driver,
            replies,
            address,
            owner: owner.to_owned(),
            identity,
            max_message_bytes,
            opened_at: Instant::now(),
            uses: 0,
            gate: Arc::default(),
            sound: true,
            site: None,
        }
    }

    /// Says that it is logged in to this database of a node, and not at home.
    pub fn at(self, site: Option<Arc<Site>>) -> Self {
        Self { site, ..self }
    }

    /// The node's database; `None` for home.
    pub fn site(&self) -> Option<&Site> {
        self.site.as_deref()
    }

    /// What the server said of it when it was opened.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its server process.
    pub fn backend(&self) -> Backend {
        self.identity.backend
    }

    /// When the server was started.
    pub fn server_started(&self) -> jiff::Timestamp {
        self.identity.server_started
    }

    /// When it was opened.
    pub fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// How many attempts it was used for.
    pub fn uses(&self) -> u32 {
        self.uses
    }

    /// May it be lent again? Not after a cancel, COPY, an odd error, a failed reset or any doubt.
    pub fn is_reusable(&self) -> bool {
        self.sound && !self.gate.is_spent() && !self.client.is_closed()
    }

    /// Asks the server whether the owner could still log in: sessions outlive the right to open one. For whoever lends
    /// it again.
    ///
    /// # Errors
    /// Why not, or that there was no answer within `limit`; then the session is not reusable.
    pub async fn recheck(&mut self, limit: Duration) -> Result<(), OpenError> {
        let sound = std::mem::replace(&mut self.sound, false);
        let answer = timeout(limit, login::recheck(&self.client, &self.replies, &self.owner)).await;
        answer.unwrap_or_else(|_| {
            Err(OpenError::Unreachable { message: format!("no answer within {limit:?}") })
        })?;
        self.sound = sound;
        Ok(())
    }

    /// What cancels the run under way or, between runs, the next one.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(&self.gate, self.client.cancel_token(), &self.address)
    }

    /// Says good-bye to the server and closes, within `limit`. Dropping closes without a word.
    pub async fn close(self, limit: Duration) {
        let Self { client, mut driver, .. } = self;
        drop(client);
        let _ = timeout(limit, &mut driver.0).await;
    }

    /// Runs a command in one transaction that ends with its completion record. Bounded by the caller alone: dropping
    /// the future leaves the command running until the session is dropped too.
    pub async fn run_transactional(&mut self, order: &Order<'_>, completion: &Completion) -> AttemptEnd {
        if let Some(end) = self.refuse(order) {
            return end;
        }
        let mut text = String::with_capacity(order.command.len() + 256);
        text.push_str("BEGIN; ");
        let settings = self.write_settings("SET LOCAL", order, &mut text);
        let prefix_chars = text.len(); // all ASCII
        text.push_str(order.command);

        self.begin_run(1 + settings, TRANSACTIONAL_PHASES);
        let client = &self.client;
        // Polled in this order, and each sends when first polled.
        let work = async {
            join!(
                client.batch_execute(&text),
                client.batch_execute(SETTLE),
                complete(client, order, completion),
                client.batch_execute("COMMIT"),
            )
            .2
        };
        let (recorded, clean) = self.then_reset(work).await;
        self.end_run(clean, prefix_chars, order, |heard, around| {
            verdict::of_transactional(heard, &Circumstances { recorded, ..around })
        })
    }

    /// Runs a command outside a transaction of ours. Bounded by the caller alone, as above.
    pub async fn run_plain(&mut self, order: &Order<'_>) -> AttemptEnd {
        if let Some(end) = self.refuse(order) {
            return end;
        }
        self.sound = false;
        let mut settings = String::new();
        self.write_settings("SET", order, &mut settings);
        // A message of its own, since what runs here refuses to share one. Awaited, so that the command is not sent
        // if a cancel hits this instead.
        match timeout(SET_LIMIT, self.client.batch_execute(&settings)).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => {
                let said = lock(&self.replies).error.take().map_or_else(|| e.to_string(), |said| said.text);
                return AttemptEnd::NotSent { message: format!("cannot name the session: {said}") };
            }
            Err(_) => return AttemptEnd::NotSent { message: format!("no answer within {SET_LIMIT:?}") },
        }
        self.begin_run(0, 1);
        let (_, clean) = self.then_reset(self.client.batch_execute(order.command)).await;
        self.end_run(clean, 0, order, |heard, around| verdict::of_plain(heard, &around))
    }

    fn refuse(&self, order: &Order<'_>) -> Option<AttemptEnd> {
        if self.gate.is_spent() {
            return Some(AttemptEnd::NotSent { message: "cancelled before the command was sent".into() });
        }
        if !self.sound || self.client.is_closed() {
            let replies = lock(&self.replies);
            let why = replies.fatal.as_ref().map(|fatal| fatal.text.as_str()).or(replies.end.as_deref());
            let message =
                format!("the session had ended before: {}", why.unwrap_or("an attempt was given up in it"));
            return Some(AttemptEnd::NotSent { message });
        }
        let (sqlstate, message) = order.unsendable()?;
        Some(AttemptEnd::Failed { sqlstate: sqlstate.into(), message })
    }

    /// Appends our own settings; returns how many statements they are.
    fn write_settings(&self, set: &str, order: &Order<'_>, sql: &mut String) -> usize {
        order.name.write_settings(set, sql);
        if self.identity.server_version < TRANSACTION_TIMEOUT_SINCE {
            return 2;
        }
        sql.push_str(set);
        sql.push_str(" transaction_timeout = 0; ");
        3
    }

    fn begin_run(&mut self, skip_tags: usize, spoken_phases: usize) {
        self.sound = false;
        lock(&self.replies).begin_attempt(self.max_message_bytes, skip_tags, spoken_phases);
    }

    /// Sends what `work` sends, then the reset; waits for both. Also returns whether the reset succeeded.
    async fn then_reset<T>(&self, work: impl Future<Output = T>) -> (T, bool) {
        let work = std::pin::pin!(work);
        let reset = std::pin::pin!(self.client.batch_execute(RESET));
        match select(work, reset).await {
            Either::Left((done, reset)) => (done, matches!(timeout(RESET_LIMIT, reset).await, Ok(Ok(())))),
            Either::Right((reset, work)) => (work.await, reset.is_ok()),
        }
    }

    fn end_run(
        &mut self,
        clean: bool,
        prefix_chars: usize,
        order: &Order<'_>,
        judge: impl FnOnce(Heard, Circumstances<'_>) -> AttemptEnd,
    ) -> AttemptEnd {
        self.uses += 1;
        self.gate.end_run();
        let mut replies = lock(&self.replies);
        let around = Circumstances {
            command: order.command,
            prefix_chars,
            recorded: None,
            fatal: replies.fatal.clone(),
            copy_in: replies.copy_in,
            end: replies.end.clone(),
        };
        let Some(heard) = replies.end_attempt() else {
            debug_assert!(false, "begin_run comes before end_run");
            return AttemptEnd::Doubt { fatal: None, message: "nothing was heard".into() };
        };
        drop(replies);
        let copied = heard.copied_out || around.copy_in;
        // A reset inside a transaction that the command left open is none.
        let idle = heard.phases.iter().rev().find_map(|phase| phase.status) == Some(TransactionStatus::Idle);
        let end = judge(heard, around);
        self.sound = clean && idle && !copied && leaves_no_doubt(&end);
        end
    }
}

async fn complete(client: &Client, order: &Order<'_>, completion: &Completion) -> Option<bool> {
    let name = &order.name;
    let rows = client
        .query_typed(
            COMPLETE,
            &[
                (&name.task.0, Type::INT8),
                (&name.task_key, Type::UUID),
                (&name.series, Type::INT4),
                (&name.attempt, Type::INT4),
                (&completion.epoch.0, Type::INT8),
                (&completion.token, Type::UUID),
                (&completion.ticket, Type::BYTEA),
            ],
        )
        .await;
    // Errors are in the replies, where the verdict reads them.
    rows.ok()?.first()?.try_get(0).ok()
}

/// Is the session as good as before? After an ordinary error it is; not when somebody interfered (57: a cancel of
/// somebody else's may have a late twin) or the server or its system is in trouble (53, 58, XX).
fn leaves_no_doubt(end: &AttemptEnd) -> bool {
    match end {
        AttemptEnd::Committed { .. } | AttemptEnd::Succeeded { .. } => true,
        AttemptEnd::Failed { sqlstate, .. } => {
            !["53", "57", "58", "XX"].iter().any(|class| sqlstate.starts_with(class))
        }
        AttemptEnd::NotSent { .. } | AttemptEnd::Doubt { .. } => false,
    }
}
