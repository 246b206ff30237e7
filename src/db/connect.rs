//! The service's own connections. They never run a task's SQL, and owners' sessions never run the service's.
//!
//! `search_path` is empty, so a name that is not qualified fails loudly; plans are kept to nested loops over
//! indexes: that is how the leader's statements are meant to run, whatever the statistics say on the day they are prepared.

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

use super::dial::{Address, Stream};
use super::error::DbError;
use super::target::{self, Target, TargetError};

const IS_STANDBY: &str = "SELECT pg_catalog.pg_is_in_recovery()";

/// How long a service connection may take to open.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of every service connection, as start-up options: `ALTER ROLE … SET` cannot override them.
/// `yardmaster.notify = off`: the service need not wake itself. (A statement that may insert requests fires the trigger
/// even when it inserts none, and a turn that wakes the next one never rests.)
/// `default_transaction_read_only` is left alone on purpose: an operator's wish to pause writes must reach us.
const OPTIONS: &str = "-c search_path= -c yardmaster.notify=off -c client_min_messages=warning -c default_transaction_isolation=read\\ committed \
    -c lock_timeout=2000 -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=10000 -c jit=off \
    -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c plan_cache_mode=force_generic_plan -c synchronous_commit=on \
    -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=9000 \
    -c client_connection_check_interval=1000";

/// What a connection is for: shown in `application_name`, and deciding its `statement_timeout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The leader's turns.
    Turns,
    /// Records and backends on a node other than home.
    Node,
    /// Renewal, recovery, revocation, steering of backends.
    Control,
    /// The leadership lock; waits without a bound.
    Lock,
    /// LISTEN.
    Listen,
    /// Migrations.
    Migrate,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Purpose::Turns => "turns",
            Purpose::Node => "node",
            Purpose::Control => "control",
            Purpose::Lock => "lock",
            Purpose::Listen => "listen",
            Purpose::Migrate => "migrate",
        }
    }

    /// `statement_timeout` in milliseconds; 0 is none.
    fn statement_timeout_ms(self) -> u32 {
        match self {
            Purpose::Turns => 15_000,
            Purpose::Control => 10_000,
            Purpose::Node => 4_000,
            Purpose::Lock | Purpose::Listen | Purpose::Migrate => 0,
        }
    }
}

/// Where a database is, and as whom the service logs in there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    login: Config,
    target: Target,
}

impl Access {
    /// The login role, if it is named.
    pub fn user(&self) -> Option<&str> {
        self.login.get_user()
    }
}

/// Names where it leads, without the password: `user@host:port/database`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = self.target.first();
        write!(f, "{}@{host}:{port}/{}", self.user().unwrap_or("?"), self.target.database())
    }
}

/// Parses a libpq URL or key=value string; a password that is not in it is taken from PGPASSWORD.
///
/// # Errors
/// [`DbError::Url`] when it cannot be parsed; the text is not repeated, since it may hold a password.
pub fn parse_url(url: &str) -> Result<Access, DbError> {
    let bad = |e: TargetError| DbError::Url(e.to_string());
    let (mut login, tls) = target::read(url).map_err(bad)?;
    add_password(&mut login);
    let target = Target::of(&login, tls).map_err(bad)?;
    login.dbname(target.database());
    Ok(Access { login, target })
}

/// Adds the password that libpq would add: that of PGPASSWORD, if there is none yet. Not for owners' sessions, which
/// have passwords of their own.
pub(super) fn add_password(config: &mut Config) {
    if config.get_password().is_none()
        && let Some(password) = std::env::var_os("PGPASSWORD").filter(|p| !p.is_empty())
    {
        config.password(password.as_encoded_bytes());
    }
}

/// Opens a service connection and drives it until it ends or is dropped; tries the addresses in order.
///
/// Notifications, if wanted, arrive on the returned channel; it ends when the connection does. Its capacity is one:
/// a notification is a hint, and one pending hint is as good as many, so the socket is always drained.
///
/// # Errors
/// [`DbError::Unreachable`] or [`DbError::Timeout`], of the last address.
pub async fn connect(access: &Access, purpose: Purpose) -> Result<(Client, mpsc::Receiver<()>), DbError> {
    let mut config = access.login.clone();
    let options = format!(
        "{} {OPTIONS} -c statement_timeout={}",
        config.get_options().unwrap_or(""),
        purpose.statement_timeout_ms()
    );
    config.options(options.trim()).application_name(format!("yardmaster {}", purpose.name()));
    let unreachable = |reason: String| DbError::Unreachable { place: access.to_string(), reason };
    let refused = |Refusal { reason, no_room }| match no_room {
        true => DbError::NoRoom { place: access.to_string(), reason },
        false => unreachable(reason),
    };
    let silent = |_| DbError::Timeout { context: "connect", seconds: CONNECT_TIMEOUT.as_secs() };
    let found = timeout(CONNECT_TIMEOUT, access.target.addresses()).await.map_err(silent)?;
    let mut trouble = unreachable("it has no address".to_owned());
    for address in found.map_err(|e| unreachable(e.to_string()))? {
        let login = log_in(&address, &config, purpose, access.target.wants_primary());
        match timeout(CONNECT_TIMEOUT, login).await.map_err(silent) {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(refusal)) => trouble = refused(refusal),
            Err(e) => trouble = e,
        }
    }
    Err(trouble)
}

/// Why one address would not do.
struct Refusal {
    reason: String,
    /// Has the server no room?
    no_room: bool,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Refusal { reason, no_room: false }
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(e: tokio_postgres::Error) -> Self {
        let no_room = e.code().is_some_and(|code| code.code().starts_with("53"));
        Refusal { reason: describe(&e), no_room }
    }
}

/// Logs in at one address.
async fn log_in(
    address: &Address,
    config: &Config,
    purpose: Purpose,
    wants_primary: bool,
) -> Result<(Client, mpsc::Receiver<()>), Refusal> {
    let stream = address.dial(CONNECT_TIMEOUT).await.map_err(|e| format!("{address}: {e}"))?;
    let (client, connection) = config.connect_raw(stream, NoTls).await?;
    let hinted = drive(connection, purpose);
    if wants_primary {
        let answer = client.query_one(IS_STANDBY, &[]).await?;
        if answer.get(0) {
            return Err(format!("{address}: a standby, but target_session_attrs=read-write").into());
        }
    }
    Ok((client, hinted))
}

fn drive(mut connection: Connection<Stream, NoTlsStream>, purpose: Purpose) -> mpsc::Receiver<()> {
    let (hints, hinted) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            match futures::future::poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notification(_))) => {
                    // Full means that a hint is pending already.
                    let _ = hints.try_send(());
                }
                Some(Ok(AsyncMessage::Notice(notice))) => {
                    tracing::debug!(severity = notice.severity(), "{}", notice.message());
                }
                Some(Ok(_)) => {}
                Some(Err(e)) => {
                    tracing::debug!(connection = purpose.name(), "connection ended: {}", describe(&e));
                    break;
                }
                None => break,
            }
        }
    });
    hinted
}

/// The whole story of a driver error in one line: the server's words, or the chain of causes.
pub fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{}: {} (SQLSTATE {})", db.severity(), db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
