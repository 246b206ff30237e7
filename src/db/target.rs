//! Where a node is: parsed from a libpq URL or key=value string, and dialled.
//!
//! Carries no user and no password: those belong to whoever logs in, so they cannot leak from here. There is no TLS
//! yet; it would wrap the [`Stream`] that [`Address::dial`] returns, below the tap.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// An idle connection is probed after this long; the same on the server's side (start-up options).
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Time between probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// So many unanswered probes end it.
pub const KEEPALIVE_COUNT: u32 = 3;
/// Unacknowledged data ends it after this long. With the three above a cut network is noticed in 9–11 s (measured).
pub const TCP_USER_TIMEOUT: Duration = Duration::from_secs(9);

/// Where libpq looks for a socket when no host is given, on Debian and elsewhere.
const DEFAULT_SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const DEFAULT_PORT: u16 = 5432;

/// libpq's keywords that are not understood here; any other unknown word is not repeated in an error, because a badly
/// quoted string shows pieces of its password as "keywords".
const FOREIGN_KEYWORDS: [&str; 14] = [
    "passfile",
    "service",
    "client_encoding",
    "fallback_application_name",
    "replication",
    "gssencmode",
    "krbsrvname",
    "requirepeer",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslcompression",
    "require_auth",
];

/// A connection string that cannot be used. Never shows the string, which may hold a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not understood.
    #[error(
        "invalid connection string: {reason}; write postgresql://user@host:port/database or key=value pairs"
    )]
    Syntax {
        /// What is wrong with it.
        reason: String,
    },
    /// It demands TLS.
    #[error(
        "TLS is not supported yet: sslmode must be \"disable\" or \"prefer\" (the default), which connects without"
    )]
    Tls,
    /// No database and no user to name it after.
    #[error("the connection string names no database: add it, as in postgresql://host/database")]
    NoDatabase,
    /// Hosts and ports do not match.
    #[error(
        "the connection string has {hosts} hosts, {hostaddrs} hostaddrs and {ports} ports: give one port, or one for each"
    )]
    Counts {
        /// How many hosts.
        hosts: usize,
        /// How many numeric addresses.
        hostaddrs: usize,
        /// How many ports.
        ports: usize,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Endpoint {
    Unix(PathBuf),
    Name(String),
    Numeric(IpAddr),
}

/// A node's database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    endpoints: Vec<(Endpoint, u16)>,
    database: String,
    options: Option<String>,
    read_write: bool,
}

/// One socket to try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An address and port.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "socket {}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Target {
    /// Parses a URL or key=value string as tokio-postgres does, hosts in the order in which they are tried. User and
    /// password in it are dropped, but a missing database is named after the user, as libpq does.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let config: Config = text.parse().map_err(|e| syntax_error(&e))?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(TargetError::Tls);
        }
        Ok(Self {
            endpoints: endpoints(&config)?,
            database: config.get_dbname().or(config.get_user()).ok_or(TargetError::NoDatabase)?.to_owned(),
            options: config.get_options().map(str::to_owned),
            read_write: config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite,
        })
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The start-up options given by whoever wrote the string.
    pub fn options(&self) -> Option<&str> {
        self.options.as_deref()
    }

    /// Must a standby be passed over (`target_session_attrs=read-write`)?
    pub fn wants_primary(&self) -> bool {
        self.read_write
    }

    /// Finds the sockets to try, in order; names are resolved now, since they may point elsewhere after a failover.
    ///
    /// # Errors
    /// When there is none: what the resolver said of the last name.
    pub async fn addresses(&self) -> io::Result<Vec<Address>> {
        let mut found = Vec::new();
        let mut trouble = None;
        for (endpoint, port) in &self.endpoints {
            match endpoint {
                Endpoint::Unix(dir) => found.push(Address::Unix(dir.join(format!(".s.PGSQL.{port}")))),
                Endpoint::Numeric(ip) => found.push(Address::Tcp(SocketAddr::new(*ip, *port))),
                Endpoint::Name(name) => match lookup_host((name.as_str(), *port)).await {
                    Ok(addresses) => found.extend(addresses.map(Address::Tcp)),
                    Err(e) => {
                        trouble = Some(io::Error::new(e.kind(), format!("host \"{name}\" not found: {e}")))
                    }
                },
            }
        }
        match trouble {
            Some(trouble) if found.is_empty() => Err(trouble),
            _ => Ok(found),
        }
    }
}

fn endpoints(config: &Config) -> Result<Vec<(Endpoint, u16)>, TargetError> {
    let (hosts, hostaddrs, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let counts =
        || TargetError::Counts { hosts: hosts.len(), hostaddrs: hostaddrs.len(), ports: ports.len() };
    let all: Vec<Endpoint> = match (hosts, hostaddrs) {
        ([], []) => {
            let dir = DEFAULT_SOCKET_DIRS.into_iter().find(|dir| Path::new(dir).is_dir());
            vec![Endpoint::Unix(PathBuf::from(dir.unwrap_or(DEFAULT_SOCKET_DIRS[0])))]
        }
        (hosts, []) => hosts.iter().map(endpoint).collect(),
        (hosts, numeric) if hosts.is_empty() || hosts.len() == numeric.len() => {
            numeric.iter().copied().map(Endpoint::Numeric).collect()
        }
        _ => return Err(counts()),
    };
    let ports = match ports {
        [] => vec![DEFAULT_PORT; all.len()],
        [one] => vec![*one; all.len()],
        many if many.len() == all.len() => many.to_vec(),
        _ => return Err(counts()),
    };
    Ok(all.into_iter().zip(ports).collect())
}

fn endpoint(host: &Host) -> Endpoint {
    match host {
        Host::Unix(dir) => Endpoint::Unix(dir.clone()),
        Host::Tcp(name) => name.parse().map_or_else(|_| Endpoint::Name(name.clone()), Endpoint::Numeric),
    }
}

fn syntax_error(error: &tokio_postgres::Error) -> TargetError {
    let said = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let quoted = said.split('`').nth(1).unwrap_or_default();
    let reason = if quoted == "sslmode" || (said.starts_with("unknown") && quoted.starts_with("ssl")) {
        return TargetError::Tls;
    } else if said.starts_with("invalid value for option") {
        said // names one of the library's own words, never the value
    } else if FOREIGN_KEYWORDS.contains(&quoted) {
        format!("\"{quoted}\" is not supported")
    } else {
        "not of either form".to_owned()
    };
    TargetError::Syntax { reason }
}

impl Address {
    /// Connects, with keepalive and user timeout set on TCP.
    ///
    /// # Errors
    /// What the system said, or that it took longer than `limit`.
    pub async fn dial(&self, limit: Duration) -> io::Result<Stream> {
        let dialled = async {
            match self {
                Self::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
                Self::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    let socket = SockRef::from(&stream);
                    #[cfg(target_os = "linux")]
                    socket.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT))?;
                    socket.set_tcp_keepalive(
                        &TcpKeepalive::new()
                            .with_time(KEEPALIVE_IDLE)
                            .with_interval(KEEPALIVE_INTERVAL)
                            .with_retries(KEEPALIVE_COUNT),
                    )?;
                    Ok(Stream::Tcp(stream))
                }
            }
        };
        tokio::time::timeout(limit, dialled).await.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")))
        })
    }
}

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// On this machine.
    Unix(UnixStream),
    /// Anywhere.
    Tcp(TcpStream),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_write(cx, bytes),
            Self::Tcp(s) => Pin::new(s).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_flush(cx),
            Self::Tcp(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Target {
        Target::parse(text).unwrap()
    }

    #[test]
    fn urls_and_pairs_give_endpoints_in_order() {
        let t = parse(
            "postgresql://svc:s3cret@a:1,[::1]:2,b/db?options=-c%20search_path%3Dx&target_session_attrs=read-write",
        );
        assert_eq!(
            t.endpoints,
            [
                (Endpoint::Name("a".into()), 1),
                (Endpoint::Numeric("::1".parse().unwrap()), 2),
                (Endpoint::Name("b".into()), 5432)
            ]
        );
        assert_eq!((t.database(), t.options(), t.wants_primary()), ("db", Some("-c search_path=x"), true));
        let t = parse("host=/run/pg port=7 user=alice password='s3cret'");
        assert_eq!(
            (t.endpoints, t.database.as_str()),
            (vec![(Endpoint::Unix("/run/pg".into()), 7)], "alice")
        );
        assert!(matches!(parse("dbname=x").endpoints.as_slice(), [(Endpoint::Unix(_), 5432)]));
    }

    #[test]
    fn secrets_show_neither_in_debug_nor_in_errors() {
        assert!(!format!("{:?}", parse("postgresql://u:s3cret@h/d")).contains("s3cret"));
        for bad in [
            "host=h password=my s3cret=x",
            "host=h password=my s3cret",
            "postgresql://u:s3cret@h/d?s3cret=1",
            "postgresql://u:s3cret@h:nan/d",
            "postgresql://u:s3cret@h/d?sslrootcert=x",
            "postgresql://u:s3cret@h/d?passfile=x",
            "postgresql://u:s3cret@/?port=1,2",
        ] {
            let error = Target::parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn each_mistake_is_named() {
        for mode in ["require", "verify-full"] {
            assert_eq!(Target::parse(&format!("host=h dbname=d sslmode={mode}")), Err(TargetError::Tls));
        }
        assert_eq!(Target::parse("host=h"), Err(TargetError::NoDatabase));
        let error = Target::parse("host=h dbname=d port=1,2").unwrap_err();
        assert_eq!(error, TargetError::Counts { hosts: 1, hostaddrs: 0, ports: 2 });
        let text = Target::parse("host=h dbname=d port=no").unwrap_err().to_string();
        assert!(text.contains("invalid value for option `port`"), "{text}");
        let text = Target::parse("host=h dbname=d passfile=no").unwrap_err().to_string();
        assert!(text.contains("\"passfile\" is not supported"), "{text}");
    }
}
