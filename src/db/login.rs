//! Opens a session: dials, logs in as the owner, and learns who answered.
//!
//! What a session needs goes as start-up options: they win over `ALTER ROLE … SET`, and `RESET ALL` returns to them.
//! A login that fails is sorted by whom it concerns: the owner ([`OpenError::Refused`]), the server's load
//! ([`OpenError::TooMany`]) or the node ([`OpenError::Unreachable`]).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::dial::{Address, KEEPALIVE_COUNT, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, TCP_USER_TIMEOUT};
use super::replies::{SharedReplies, lock};
use super::session::{Driver, Identity, Session};
use super::tap::Tap;
use super::target::Target;
use crate::model::{Backend, Report};

/// Settings that no owner may have changed for the session we open. Not here on purpose: `search_path` and
/// `default_transaction_read_only`, which are the role's and the server's to choose.
///
/// - `idle_in_transaction_session_timeout`: an attempt is sent whole, so it is idle in its transaction only while this
///   process is stopped; a minute then frees its locks.
/// - `client_connection_check_interval`: a killed service ends its statements.
/// - `exit_on_error`: would turn each failure into the loss of the connection.
/// - `role`: `ALTER ROLE … SET role` would make somebody else of the owner.
const OPTIONS: [(&str, &str); 14] = [
    ("role", "none"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "60000"),
    ("idle_session_timeout", "0"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("standard_conforming_strings", "on"),
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("exit_on_error", "off"),
    ("client_connection_check_interval", "1000"),
    ("application_name", "yardmaster"),
];

/// Reads the session's own identity. Uses no search path, no operator of the user's, no named statement.
const WHO: &str = "SELECT a.pid, a.backend_start, pg_catalog.pg_postmaster_start_time(), a.usesysid, \
     CAST(SESSION_USER AS pg_catalog.text), CAST(CURRENT_USER AS pg_catalog.text), \
     pg_catalog.current_setting('is_superuser'), \
     CAST(pg_catalog.current_setting('server_version_num') AS pg_catalog.int4), pg_catalog.pg_is_in_recovery() \
     FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()";

/// Reads whether the session's role could log in now.
const MAY_STAY: &str = "SELECT CAST(r.rolname AS pg_catalog.text), r.rolcanlogin, \
     pg_catalog.has_database_privilege(r.oid, a.datid, 'CONNECT') \
     FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) a.usesysid \
     WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()";

/// Why no session could be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The server does not let this owner in: concerns the owner's tasks only.
    #[error("login refused: {message} (SQLSTATE {sqlstate})")]
    Refused {
        /// Five characters.
        sqlstate: String,
        /// What the server said, or what is missing.
        message: String,
    },
    /// The server has no room now: not a failure, try later.
    #[error("no room for another session: {message} (SQLSTATE {sqlstate})")]
    TooMany {
        /// Five characters, class 53.
        sqlstate: String,
        /// What the server said.
        message: String,
        /// Is it the role's own CONNECTION LIMIT? Then it concerns this owner only.
        role_limit: bool,
    },
    /// Nobody answered, or the server is not ready: concerns the node.
    #[error("cannot reach the server: {message}")]
    Unreachable {
        /// Each address tried, and what happened.
        message: String,
    },
}

/// Opens a session logged in as `owner`, trying the target's addresses in order. Each gets `connect_timeout`, for its
/// socket and the login together. Tasks' messages will be bounded by `max_message_bytes`.
///
/// # Errors
/// See [`OpenError`]. An answer that concerns the owner or the load ends the search; silence does not.
pub async fn open(
    target: &Target,
    owner: &str,
    password: Option<&str>,
    connect_timeout: Duration,
    max_message_bytes: usize,
) -> Result<Session, OpenError> {
    let config = config(target, owner, password);
    let addresses = match timeout(connect_timeout, target.addresses()).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(e)) => return Err(OpenError::Unreachable { message: e.to_string() }),
        Err(_) => {
            return Err(OpenError::Unreachable {
                message: format!("no name resolved within {connect_timeout:?}"),
            });
        }
    };
    let mut troubles = Vec::new();
    for address in addresses {
        let login =
            log_in(&address, &config, connect_timeout, max_message_bytes, owner, target.wants_primary());
        match timeout(connect_timeout, login).await {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(OpenError::Unreachable { message })) => troubles.push(format!("{address}: {message}")),
            Ok(Err(answer)) => return Err(answer),
            Err(_) => troubles.push(format!("{address}: no login within {connect_timeout:?}")),
        }
    }
    Err(OpenError::Unreachable { message: troubles.join("; ") })
}

fn config(target: &Target, owner: &str, password: Option<&str>) -> Config {
    let mut config = Config::new();
    config
        .user(owner)
        .dbname(target.database())
        .options(options(target.options()))
        .ssl_mode(SslMode::Disable);
    if let Some(password) = password {
        config.password(password);
    }
    config
}

/// The start-up options: those of the connection string, then ours, which win.
fn options(given: Option<&str>) -> String {
    let mut all = given.map(|given| format!("{given} ")).unwrap_or_default();
    let tcp = [
        ("tcp_keepalives_idle", KEEPALIVE_IDLE.as_secs().to_string()),
        ("tcp_keepalives_interval", KEEPALIVE_INTERVAL.as_secs().to_string()),
        ("tcp_keepalives_count", KEEPALIVE_COUNT.to_string()),
        ("tcp_user_timeout", TCP_USER_TIMEOUT.as_millis().to_string()),
    ];
    let ours = OPTIONS.into_iter().chain(tcp.iter().map(|(name, value)| (*name, value.as_str())));
    for (name, value) in ours {
        let _ = write!(all, "-c {name}={} ", value.replace(' ', "\\ "));
    }
    all
}

async fn log_in(
    address: &Address,
    config: &Config,
    limit: Duration,
    max_message_bytes: usize,
    owner: &str,
    wants_primary: bool,
) -> Result<Session, OpenError> {
    let stream = address.dial(limit).await.map_err(|e| OpenError::Unreachable { message: e.to_string() })?;
    let replies = SharedReplies::default();
    let answered = |e: tokio_postgres::Error| sort(&e, lock(&replies).error.take(), owner);
    let (client, connection) =
        config.connect_raw(Tap::new(stream, Arc::clone(&replies)), NoTls).await.map_err(&answered)?;
    let driver = Driver::spawn(connection);
    let (identity, standby) = who(&client, owner).await.map_err(|e| match e {
        WhoError::Asked(e) => answered(e),
        WhoError::Other(name) => OpenError::Refused {
            sqlstate: "28000".into(),
            message: format!(
                "the login as \"{owner}\" arrived as \"{name}\": a pooler or the role's settings change the user; \
                 connect to the server directly"
            ),
        },
    })?;
    if wants_primary && standby {
        return Err(OpenError::Unreachable {
            message: "a standby, but target_session_attrs=read-write".into(),
        });
    }
    Ok(Session::new(client, driver, replies, address.clone(), owner, identity, max_message_bytes))
}

enum WhoError {
    Asked(tokio_postgres::Error),
    Other(String),
}

impl From<tokio_postgres::Error> for WhoError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Asked(error)
    }
}

async fn who(client: &Client, owner: &str) -> Result<(Identity, bool), WhoError> {
    let rows = client.query_typed(WHO, &[]).await?;
    let row = rows.first().ok_or_else(|| WhoError::Other("nobody".into()))?;
    for column in [4, 5] {
        let name: &str = row.try_get(column)?;
        if name != owner {
            return Err(WhoError::Other(name.to_owned()));
        }
    }
    let identity = Identity {
        backend: Backend { pid: row.try_get(0)?, start: row.try_get(1)? },
        server_started: row.try_get(2)?,
        owner_oid: row.try_get(3)?,
        superuser: row.try_get::<_, &str>(6)? == "on",
        server_version: row.try_get(7)?,
    };
    Ok((identity, row.try_get(8)?))
}

/// Asks again about the session's own role: it may have been dropped, renamed or locked out since it logged in.
///
/// # Errors
/// [`OpenError::Refused`] if this owner could not log in now (as far as the catalog tells: a changed password does not
/// show); [`OpenError::Unreachable`] if there is no answer.
pub(super) async fn recheck(client: &Client, replies: &SharedReplies, owner: &str) -> Result<(), OpenError> {
    let rows =
        client.query_typed(MAY_STAY, &[]).await.map_err(|e| sort(&e, lock(replies).error.take(), owner))?;
    let found = rows.first().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
    let refused = |message| Err(OpenError::Refused { sqlstate: "28000".into(), message });
    match found.transpose().map_err(|e: tokio_postgres::Error| sort(&e, None, owner))? {
        None => refused(format!("role \"{owner}\" does not exist any more")),
        Some((name, _, _)) if name != owner => refused(format!("role \"{owner}\" is called \"{name}\" now")),
        Some((_, false, _)) => refused(format!("role \"{owner}\" is not permitted to log in any more")),
        Some((_, _, false)) => {
            refused(format!("role \"{owner}\" has no CONNECT privilege on the database any more"))
        }
        Some((String { .. }, true, true)) => Ok(()),
    }
}

/// Whom does a failed login concern? `said` is the server's own error, if it came to that.
fn sort(error: &tokio_postgres::Error, said: Option<Report>, owner: &str) -> OpenError {
    let Some(said) = said else {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        return match cause.as_deref() {
            Some("password missing") => OpenError::Refused {
                sqlstate: "28P01".into(),
                message: format!(
                    "the server asks for a password of role \"{owner}\", and none is configured"
                ),
            },
            Some(cause) => OpenError::Unreachable { message: format!("{error}: {cause}") },
            None => OpenError::Unreachable { message: error.to_string() },
        };
    };
    let (sqlstate, message) = (said.sqlstate, said.text);
    match sqlstate.as_str() {
        // Three limits share 53300; the C function that checks the role's tells it apart in any language.
        _ if sqlstate.starts_with("53") => OpenError::TooMany {
            sqlstate,
            message,
            role_limit: said.routine.as_deref() == Some("InitializeSessionUserId"),
        },
        "57P04" => OpenError::Refused { sqlstate, message },
        _ if ["57", "58", "08", "XX"].iter().any(|class| sqlstate.starts_with(class)) => {
            OpenError::Unreachable { message: format!("{message} (SQLSTATE {sqlstate})") }
        }
        _ => OpenError::Refused { sqlstate, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_keep_the_given_ones_and_escape_blanks() {
        let all = options(Some("-c search_path=x"));
        assert!(all.starts_with("-c search_path=x -c role=none -c statement_timeout=0 "), "{all}");
        assert!(all.contains(" -c default_transaction_isolation=read\\ committed "), "{all}");
        assert!(all.ends_with("-c tcp_keepalives_count=3 -c tcp_user_timeout=9000 "), "{all}");
    }
}
