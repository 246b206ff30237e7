//! Leadership: who may decide.
//!
//! ```text
//!   standby ── lock granted ──▶ take office (epoch + 1, token) ──▶ recover ──▶ turns
//!      ▲                                                               │
//!      └────────────── lock lost · fenced · no renewal for 6 s ◀───────┘
//!   a standby ends the lock's connection when the renewal has not moved for 12 s
//! ```
//! The *lock* (EXCLUSIVE on the view `leadership`, in an idle transaction on a connection of its own) only makes the
//! hand-over quick; no task owner can take it. The *epoch* is the authority: each turn begins with the fence, which
//! refuses it when the epoch is over. The *renewal* is a row of its own, so that no stuck commit can depose a leader.

use std::time::Duration;

use tokio_postgres::Client;
use uuid::Uuid;

use super::super::error::DbError;
use crate::model::Epoch;

/// The right to decide: an epoch and the random token of the process that took it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Office {
    /// The epoch.
    pub epoch: Epoch,
    /// The process's token; tells two leaders of one epoch apart after a failover of home.
    pub token: Uuid,
    /// Grows each time the office is resumed on new connections: a turn that is still on its way on an old one is
    /// refused, so what is read after resuming stays true.
    pub term: i32,
}

impl Office {
    /// Is it the same epoch of the same process, whatever its connections?
    pub fn continues(&self, other: &Office) -> bool {
        self.epoch == other.epoch && self.token == other.token
    }
}

/// How often the leader renews (SPEC 7 and FACTS: every 2 s).
pub const RENEW_EVERY: Duration = Duration::from_secs(2);
/// A leader that could not renew for so long claims nothing more.
pub const DOUBT_AFTER: Duration = Duration::from_secs(6);

/// A leader whose renewal has not moved for so long is silent: by then it has stopped by itself, if it still can, and a
/// successor decides within 15 s of its last sign of life (SPEC 7).
pub const SILENT_AFTER: Duration = Duration::from_secs(12);
/// How often a standby looks for a sign of life.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// First in each transaction of the leader (`$1` epoch, `$2` token, `$3` term): refuses it when the office is over.
pub(super) const FENCE: &str = "SELECT yardmaster.fence($1, $2, $3)";

/// Waits for the lock without a bound; an open transaction that holds only this pins neither xid nor xmin.
const LOCK: &str = "LOCK TABLE yardmaster.leadership IN EXCLUSIVE MODE";

const TAKE: &str = "
WITH taken AS (
    UPDATE yardmaster.leader SET epoch = epoch + 1, token = $1, instance = $2, term = 0, since = now() RETURNING epoch
)
UPDATE yardmaster.leader_renewal r SET epoch = t.epoch, renewed_at = clock_timestamp() FROM taken t RETURNING r.epoch";

/// Waits for a turn that holds the row FOR SHARE; one that comes later is refused.
const RESUME: &str =
    "UPDATE yardmaster.leader SET term = term + 1 WHERE epoch = $1 AND token = $2 RETURNING term";

const RENEW: &str = "
UPDATE yardmaster.leader_renewal SET renewed_at = clock_timestamp()
 WHERE epoch = $1 AND EXISTS (SELECT FROM yardmaster.leader l WHERE l.epoch = $1 AND l.token = $2)";

/// Nothing may end the lock's transaction; from 17 on a role or database may bound transactions as a whole.
const UNBOUNDED: &str = "
SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; SET statement_timeout = 0;
SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout';
BEGIN";

/// Called by standbys only; locks nothing.
const SIGN_OF_LIFE: &str = "SELECT r.epoch, r.renewed_at FROM yardmaster.leader_renewal r";

/// Ends the connection that holds the lock, unless the leader gave a sign of life after all.
const UNSEAT: &str = "
SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l
 WHERE l.locktype = 'relation' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
   AND l.relation = 'yardmaster.leadership'::regclass AND l.mode = 'ExclusiveLock' AND l.granted
   AND EXISTS (SELECT FROM yardmaster.leader_renewal r WHERE r.epoch = $1 AND r.renewed_at = $2)";

/// The statements of this family, for the test that prepares them all.
pub const STATEMENTS: &[(&str, &str)] = &[
    ("LOCK", LOCK),
    ("TAKE", TAKE),
    ("RESUME", RESUME),
    ("RENEW", RENEW),
    ("SIGN_OF_LIFE", SIGN_OF_LIFE),
    ("UNSEAT", UNSEAT),
];

/// Waits until this connection holds the lock. The connection must do nothing else from then on.
///
/// # Errors
/// When the connection ends, or the catalog is not there.
pub async fn lock(client: &Client) -> Result<(), DbError> {
    client.batch_execute(UNBOUNDED).await.map_err(DbError::postgres("prepare the leadership lock"))?;
    client.batch_execute(LOCK).await.map_err(DbError::postgres("wait for the leadership lock"))
}

/// Takes office: every earlier epoch is over from the commit on.
///
/// # Errors
/// When the statement fails; no office is held then.
pub async fn take_office(client: &Client, instance: &str) -> Result<Office, DbError> {
    let token = Uuid::new_v4();
    let row = client.query_one(TAKE, &[&token, &instance]).await.map_err(DbError::postgres("take office"))?;
    Ok(Office { epoch: Epoch(row.get(0)), token, term: 0 })
}

/// Resumes an office on new connections; `None` when it is over.
///
/// # Errors
/// When the statement fails, also because a turn on an old connection does not end in time: nothing is known then.
pub async fn resume(client: &Client, office: Office) -> Result<Option<Office>, DbError> {
    let row = client
        .query_opt(RESUME, &[&office.epoch.0, &office.token])
        .await
        .map_err(DbError::postgres("resume the office"))?;
    Ok(row.map(|row| Office { term: row.get(0), ..office }))
}

/// Renews the office; false when it is over.
///
/// # Errors
/// When the statement fails: nothing is known then.
pub async fn renew(client: &Client, office: Office) -> Result<bool, DbError> {
    let n = client
        .execute(RENEW, &[&office.epoch.0, &office.token])
        .await
        .map_err(DbError::postgres("renew the office"))?;
    Ok(n == 1)
}

/// Watches the leader from a standby, and takes the lock away from one that has fallen silent: stopped, or cut off from
/// home while its connection still stands. Time is ours, so clocks need not agree. Returns only when it cannot watch.
pub async fn watch(client: &Client) -> DbError {
    let mut last: Option<(i64, jiff::Timestamp)> = None;
    let mut heard = tokio::time::Instant::now();
    loop {
        match client.query_one(SIGN_OF_LIFE, &[]).await {
            Ok(row) => {
                let sign = (row.get(0), row.get(1));
                if last != Some(sign) {
                    (last, heard) = (Some(sign), tokio::time::Instant::now());
                } else if heard.elapsed() >= SILENT_AFTER {
                    tracing::warn!(
                        epoch = sign.0,
                        "the leader has been silent for {SILENT_AFTER:?}; taking over"
                    );
                    if let Err(e) = client.query_one(UNSEAT, &[&sign.0, &sign.1]).await {
                        return DbError::postgres("end a silent leader")(e);
                    }
                    heard = tokio::time::Instant::now();
                }
            }
            Err(e) => return DbError::postgres("look for a sign of life of the leader")(e),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
