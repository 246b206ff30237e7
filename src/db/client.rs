//! Plain client connections for the command line: one at a time, no pool, errors fit for people.
//!
//! The service has connections of its own; these run with the rights of whoever typed the command.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};

use super::connect::add_password;
use super::dial::Stream;
use super::parameters;
use super::target::Target;
use super::tls::Tls;
use super::{ConnectError, ConnectFault, Place};

/// How long a command may try to connect in all, whatever the URL says (a shorter `connect_timeout` of the URL
/// holds for each host).
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Where Debian's libpq looks when no host is given; elsewhere it is `/tmp`.
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Every session of ours: times in UTC, no name of ours resolved on a path that somebody else can write to. The rest
/// is for the planner, which knows little about what comes out of security-barrier views: all our queries go by key
/// or by an index in order, so it must not read the whole history into a hash table (measured with 220,000 tasks:
/// `task list` 518 ms, so 71 ms), nor compile (300 ms).
const PREPARE_SESSION: &str = "SET TimeZone = 'UTC'; SET search_path = pg_catalog, pg_temp;
    SET jit = off; SET enable_hashjoin = off; SET enable_mergejoin = off";

const IS_STANDBY: &str = "SELECT pg_catalog.pg_is_in_recovery()";

/// An open connection, its socket driven by a task that ends with it.
pub struct Connection {
    /// For queries.
    pub client: Client,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connects to a libpq URL or `key=value` string. Must be called inside a tokio runtime.
///
/// # Errors
/// Within [`CONNECT_LIMIT`], with the place and PostgreSQL's reason; never with the password.
pub async fn connect(target: &str) -> Result<Connection, ConnectError> {
    let (config, tls) = parse(target)?;
    let place = place_of(&config);
    let attempt = tokio::time::timeout(CONNECT_LIMIT, open(&config, tls));
    match attempt.await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(e)) => Err(explain(&config, place, e).await),
        Err(_) => {
            let reason = format!("no answer within {} s", CONNECT_LIMIT.as_secs());
            Err(ConnectError::new(ConnectFault::NoAnswer, place, reason))
        }
    }
}

/// Why it did not work: the socket or TLS, or what was said on it.
enum Trouble {
    Socket(io::Error),
    Login(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(e: tokio_postgres::Error) -> Self {
        Trouble::Login(e)
    }
}

/// Tries the addresses in order; what the server says ends the search, silence and refused connections do not.
async fn open(config: &Config, tls: Tls) -> Result<Connection, Trouble> {
    let mut named = config.clone();
    if named.get_dbname().is_none() {
        named.dbname(named.get_user().map(str::to_owned).or_else(system_user).unwrap_or_default());
    }
    let target = Target::of(&named, tls).map_err(|e| Trouble::Socket(io::Error::other(e)))?;
    // Without one the limit of all hosts ends it first.
    let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_LIMIT * 2);
    let mut trouble = io::Error::from(io::ErrorKind::NotFound);
    for address in target.addresses().await.map_err(Trouble::Socket)? {
        match address.dial(limit).await {
            Ok(stream) => match log_in(config, stream, target.wants_primary()).await {
                Err(Trouble::Socket(e)) => trouble = e,
                answered => return answered,
            },
            Err(e) => trouble = e,
        }
    }
    Err(Trouble::Socket(trouble))
}

async fn log_in(config: &Config, stream: Stream, wants_primary: bool) -> Result<Connection, Trouble> {
    let (client, socket) = config.connect_raw(stream, NoTls).await?;
    let driver = tokio::spawn(async move {
        // The queries in flight learn of a broken socket by themselves, so the driver has nothing to add.
        let _ = socket.await;
    });
    let connection = Connection { client, driver };
    connection.client.batch_execute(PREPARE_SESSION).await?;
    if wants_primary && connection.client.query_one(IS_STANDBY, &[]).await?.get(0) {
        return Err(Trouble::Socket(io::Error::other("a standby, but target_session_attrs=read-write")));
    }
    Ok(connection)
}

/// Reads the target, adding what libpq would add: the password of PGPASSWORD, the socket folder when no host is given.
fn parse(target: &str) -> Result<(Config, Tls), ConnectError> {
    let bad = |reason| ConnectError::new(ConnectFault::BadUrl, Place::default(), reason);
    let (rest, parameters) = parameters::split(target);
    let tls = Tls::read(&parameters).map_err(bad)?;
    let mut config: Config = rest.parse().map_err(|e: tokio_postgres::Error| {
        // Other texts of the parser can quote a piece of the target, hence of the password.
        let reason = std::error::Error::source(&e)
            .map(ToString::to_string)
            .filter(|text| text.starts_with("invalid value for option"))
            .unwrap_or_else(|| "it is neither a URL nor a list of key=value pairs".to_owned());
        ConnectError::new(ConnectFault::BadUrl, Place::default(), reason)
    })?;
    if config.get_hosts().iter().any(|h| matches!(h, Host::Tcp(name) if name.contains('@'))) {
        let reason = "its host name contains \"@\"".to_owned();
        return Err(ConnectError::new(ConnectFault::BadUrl, Place::default(), reason));
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        match SOCKET_FOLDERS.iter().find(|folder| Path::new(folder).join(".s.PGSQL.5432").exists()) {
            Some(folder) => config.host_path(folder),
            None => config.host_path(SOCKET_FOLDERS[0]),
        };
    }
    add_password(&mut config);
    if config.get_application_name().is_none() {
        config.application_name("yardmaster cli");
    }
    config.ssl_mode(SslMode::Disable);
    Ok((config, tls))
}

/// Says where a target leads, without its password; nothing if it cannot be read.
pub fn place(target: &str) -> Option<Place> {
    parse(target).ok().map(|(config, _)| place_of(&config))
}

fn place_of(config: &Config) -> Place {
    let user = config.get_user().map(str::to_owned).or_else(system_user).unwrap_or_default();
    let port = match config.get_ports() {
        [] => "5432".to_owned(),
        ports => ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => format!("host \"{name}\""),
            Host::Unix(folder) => format!("socket folder {}", folder.display()),
        })
        .collect();
    let host = if hosts.is_empty() {
        config.get_hostaddrs().iter().map(|a| format!("address {a}")).collect::<Vec<_>>().join(", ")
    } else {
        hosts.join(", ")
    };
    let database = config.get_dbname().map_or_else(|| user.clone(), str::to_owned);
    Place { host, port, user, database }
}

fn system_user() -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|u| u.name)
}

/// Finds out which of the usual mistakes it was.
async fn explain(config: &Config, place: Place, trouble: Trouble) -> ConnectError {
    let e = match trouble {
        Trouble::Socket(e) => return of_socket(config, place, &e).await,
        Trouble::Login(e) => e,
    };
    if let Some(refusal) = e.as_db_error() {
        let fault = ConnectFault::of_refusal(refusal.code().code(), refusal.message());
        return ConnectError::new(fault, place, refusal.message().to_owned());
    }
    let source = std::error::Error::source(&e);
    let reason = source.map_or_else(|| e.to_string(), ToString::to_string);
    if reason == "password missing" {
        return ConnectError::new(ConnectFault::PasswordMissing, place, reason);
    }
    match source.and_then(|s| s.downcast_ref::<io::Error>()).map(io::Error::kind) {
        Some(kind) => ConnectError::new(ConnectFault::of_io(kind), place, reason),
        None => ConnectError::new(ConnectFault::Protocol, place, reason),
    }
}

async fn of_socket(config: &Config, place: Place, e: &io::Error) -> ConnectError {
    for host in config.get_hosts() {
        if let Host::Tcp(name) = host
            && config.get_hostaddrs().is_empty()
            && let Some(why) = resolve(name).await
        {
            return ConnectError::new(ConnectFault::UnknownHost, place, why);
        }
    }
    let fault = if e.to_string().contains("TLS") { ConnectFault::Tls } else { ConnectFault::of_io(e.kind()) };
    ConnectError::new(fault, place, e.to_string())
}

/// Why a host name has no address, if it has none.
async fn resolve(name: &str) -> Option<String> {
    match tokio::time::timeout(CONNECT_LIMIT, tokio::net::lookup_host((name, 0))).await {
        Ok(Ok(_)) => None,
        Ok(Err(e)) => Some(e.to_string()),
        Err(_) => Some("the name server does not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_never_shows_in_the_complaint_about_a_url() {
        for url in ["password=hush hushhush", "postgres://u:hush@hush@db:x/", "hush"] {
            let text = parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(!text.contains("hush"), "{text}");
        }
    }

    #[test]
    fn the_place_names_host_port_user_and_database() {
        let (config, _) = parse("postgres://alice:hush@db.example:5433/yard").unwrap();
        let text = place_of(&config).to_string();
        assert_eq!(text, "host \"db.example\" port 5433 as user \"alice\", database \"yard\"");
    }
}
