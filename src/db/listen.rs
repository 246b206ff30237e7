//! LISTEN, healing itself.
//!
//! The connection does nothing else. After each connect the caller is told at once, since hints were lost meanwhile; a
//! sign of life is asked for now and then, because a connection can go silent without closing.

use std::time::Duration;

use super::connect::{self, Access, Purpose};
use super::error::DbError;

const LISTEN: &str = "LISTEN yardmaster";
/// The cheapest question that also says whether we still listen.
const HEARTBEAT: &str = "SELECT count(*) FROM pg_listening_channels()";
/// How often it is asked; with [`ANSWER_WITHIN`] a silent connection is replaced within 15 s.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const MAX_BACK_OFF: Duration = Duration::from_secs(5);

/// Listens for ever and calls `hint` whenever something may be new.
pub async fn listen(config: Access, hint: impl Fn()) {
    let mut back_off = Duration::from_millis(100);
    loop {
        match once(&config, &hint, &mut back_off).await {
            Ok(()) => tracing::debug!("the listening connection ended; connecting again"),
            Err(e) => tracing::debug!("cannot listen: {e}"),
        }
        tokio::time::sleep(back_off).await;
        back_off = (back_off * 2).min(MAX_BACK_OFF);
    }
}

async fn once(config: &Access, hint: &impl Fn(), back_off: &mut Duration) -> Result<(), DbError> {
    let (client, mut hints) = connect::connect(config, Purpose::Listen).await?;
    client.batch_execute(LISTEN).await.map_err(DbError::postgres("listen"))?;
    *back_off = Duration::from_millis(100);
    hint();
    loop {
        match tokio::time::timeout(HEARTBEAT_EVERY, hints.recv()).await {
            Ok(Some(())) => hint(),
            Ok(None) => return Ok(()),
            Err(_) => {
                let heard = tokio::time::timeout(ANSWER_WITHIN, client.query_one(HEARTBEAT, &[])).await;
                match heard {
                    Ok(Ok(row)) if row.get::<_, i64>(0) > 0 => {}
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(e)) => {
                        return Err(DbError::postgres("ask the listening connection for a sign of life")(e));
                    }
                    Err(_) => {
                        return Err(DbError::Timeout {
                            context: "ask the listening connection for a sign of life",
                            seconds: ANSWER_WITHIN.as_secs(),
                        });
                    }
                }
            }
        }
    }
}
