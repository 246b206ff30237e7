//! Where a node is: parsed from a libpq URL or key=value string.
//!
//! Carries no user and no password: those belong to whoever logs in, so they cannot leak from here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::lookup_host;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::dial::{Address, Socket};
use super::parameters;
use super::tls::Tls;

/// Where Debian's libpq looks for a socket when no host is given.
const DEFAULT_SOCKET_DIR: &str = "/var/run/postgresql";
const DEFAULT_PORT: u16 = 5432;

/// libpq's keywords that are not understood here; any other unknown word is not repeated in an error, because a badly
/// quoted string shows pieces of its password as "keywords".
const FOREIGN_KEYWORDS: [&str; 11] = [
    "passfile",
    "service",
    "client_encoding",
    "fallback_application_name",
    "replication",
    "gssencmode",
    "krbsrvname",
    "requirepeer",
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
    /// What it says of TLS cannot be.
    #[error("invalid connection string: {reason}")]
    Tls {
        /// What is wrong with it.
        reason: String,
    },
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
    tls: Arc<Tls>,
}

impl Target {
    /// Parses a URL or key=value string as tokio-postgres does, hosts in the order in which they are tried. User and
    /// password in it are dropped, but a missing database is named after the user, as libpq does.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (config, tls) = read(text)?;
        Self::of(&config, tls)
    }

    /// Where a connection string that is read already leads.
    pub(super) fn of(config: &Config, tls: Tls) -> Result<Self, TargetError> {
        Ok(Self {
            tls: Arc::new(tls),
            endpoints: endpoints(config)?,
            database: config.get_dbname().or(config.get_user()).ok_or(TargetError::NoDatabase)?.to_owned(),
            options: config.get_options().map(str::to_owned),
            read_write: config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite,
        })
    }

    /// Where the same role finds the same database on another server, as key=value pairs; so are its password and TLS.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn elsewhere(text: &str, host: &str, port: u16) -> Result<String, TargetError> {
        let (_, tls) = parameters::split(text);
        let (config, _) = read(text)?;
        let database = Self::parse(text)?.database;
        let mut pairs = vec![
            ("host".to_owned(), host.to_owned()),
            ("port".to_owned(), port.to_string()),
            ("dbname".to_owned(), database),
        ];
        pairs.extend(config.get_user().map(|user| ("user".to_owned(), user.to_owned())));
        let password = config.get_password().and_then(|p| std::str::from_utf8(p).ok());
        pairs.extend(password.map(|password| ("password".to_owned(), password.to_owned())));
        pairs.extend(config.get_options().map(|options| ("options".to_owned(), options.to_owned())));
        pairs.extend(tls);
        let quoted = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
        let all: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}='{}'", quoted(value))).collect();
        Ok(all.join(" "))
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The first host, as a password file would name it, and its port.
    pub fn host_and_port(&self) -> (String, u16) {
        match self.endpoints.first() {
            // libpq looks a socket up as localhost.
            Some((Endpoint::Unix(_), port)) => ("localhost".to_owned(), *port),
            Some((Endpoint::Numeric(ip), port)) => (ip.to_string(), *port),
            Some((Endpoint::Name(name), port)) => (name.clone(), *port),
            None => ("localhost".to_owned(), 5432),
        }
    }

    /// The first host, or socket folder, and its port, for people.
    pub(super) fn first(&self) -> (String, u16) {
        match self.endpoints.first() {
            Some((Endpoint::Unix(dir), port)) => (dir.display().to_string(), *port),
            Some((Endpoint::Numeric(ip), port)) => (ip.to_string(), *port),
            Some((Endpoint::Name(name), port)) => (name.clone(), *port),
            None => ("localhost".to_owned(), DEFAULT_PORT),
        }
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
            let address =
                |socket, host: &str| Address { socket, host: host.to_owned(), tls: Arc::clone(&self.tls) };
            match endpoint {
                Endpoint::Unix(dir) => {
                    found.push(address(Socket::Unix(dir.join(format!(".s.PGSQL.{port}"))), "localhost"));
                }
                Endpoint::Numeric(ip) => {
                    found.push(address(Socket::Tcp(SocketAddr::new(*ip, *port)), &ip.to_string()));
                }
                Endpoint::Name(name) => match lookup_host((name.as_str(), *port)).await {
                    Ok(addresses) => found.extend(addresses.map(|at| address(Socket::Tcp(at), name))),
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
        ([], []) => vec![Endpoint::Unix(PathBuf::from(DEFAULT_SOCKET_DIR))],
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

/// Reads a connection string, TLS apart.
pub(super) fn read(text: &str) -> Result<(Config, Tls), TargetError> {
    let (rest, parameters) = parameters::split(text);
    let tls = Tls::read(&parameters).map_err(|reason| TargetError::Tls { reason })?;
    let mut config: Config = rest.parse().map_err(|e| syntax_error(&e))?;
    config.ssl_mode(SslMode::Disable);
    Ok((config, tls))
}

fn syntax_error(error: &tokio_postgres::Error) -> TargetError {
    let said = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let quoted = said.split('`').nth(1).unwrap_or_default();
    let reason = if said.starts_with("invalid value for option") {
        said // names one of the library's own words, never the value
    } else if FOREIGN_KEYWORDS.contains(&quoted) {
        format!("\"{quoted}\" is not supported")
    } else {
        "not of either form".to_owned()
    };
    TargetError::Syntax { reason }
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
    fn elsewhere_is_the_same_but_for_host_and_port() {
        for text in [
            "postgresql://u:a'b%5Cc@h:1,h2:2/d?sslmode=require",
            "host=h hostaddr=127.0.0.1 port=1 user=u password='a\\'b\\\\c' dbname=d sslmode=require",
        ] {
            let other = Target::elsewhere(text, "/run/x y", 7).unwrap();
            assert_eq!(
                other,
                r"host='/run/x y' port='7' dbname='d' user='u' password='a\'b\\c' sslmode='require'"
            );
            let (config, _) = read(&other).unwrap();
            assert_eq!(config.get_password(), Some(r"a'b\c".as_bytes()));
            assert_eq!(parse(&other).endpoints, [(Endpoint::Unix("/run/x y".into()), 7)]);
        }
    }

    #[test]
    fn secrets_show_neither_in_debug_nor_in_errors() {
        assert!(!format!("{:?}", parse("postgresql://u:s3cret@h/d")).contains("s3cret"));
        for bad in [
            "host=h password=my s3cret=x",
            "host=h password=my s3cret",
            "postgresql://u:s3cret@h/d?s3cret=1",
            "postgresql://u:s3cret@h:nan/d",
            "postgresql://u:s3cret@h/d?sslmode=s3cret",
            "postgresql://u:s3cret@h/d?passfile=x",
            "postgresql://u:s3cret@/?port=1,2",
        ] {
            let error = Target::parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn each_mistake_is_named() {
        assert!(matches!(Target::parse("host=h dbname=d sslmode=verify-full"), Err(TargetError::Tls { .. })));
        assert_eq!(Target::parse("host=h"), Err(TargetError::NoDatabase));
        let error = Target::parse("host=h dbname=d port=1,2").unwrap_err();
        assert_eq!(error, TargetError::Counts { hosts: 1, hostaddrs: 0, ports: 2 });
        let text = Target::parse("host=h dbname=d port=no").unwrap_err().to_string();
        assert!(text.contains("invalid value for option `port`"), "{text}");
        let text = Target::parse("host=h dbname=d passfile=no").unwrap_err().to_string();
        assert!(text.contains("\"passfile\" is not supported"), "{text}");
    }
}
