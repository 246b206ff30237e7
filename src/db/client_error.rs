//! Why a connection could not be made, told apart so that each has its own words and its own hint.

use std::fmt;
use std::io::ErrorKind;

/// Where somebody tried to connect, as whom. Holds no password.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// `host "db"` or `socket folder /run/postgresql`; several separated by commas.
    pub host: String,
    /// The port, or ports.
    pub port: String,
    /// The login role.
    pub user: String,
    /// The database.
    pub database: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { host, port, user, database } = self;
        write!(f, "{host} port {port} as user \"{user}\", database \"{database}\"")
    }
}

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFault {
    /// The URL cannot be read.
    BadUrl,
    /// TLS is demanded, and what the server has does not do.
    Tls,
    /// The host's name has no address.
    UnknownHost,
    /// The host, or the socket folder, is there, but nothing listens.
    NothingListening,
    /// The socket may not be opened by this user.
    SocketDenied,
    /// Nothing came back in time.
    NoAnswer,
    /// Some other fault of the network.
    Network,
    /// The server wants a password and none was given.
    PasswordMissing,
    /// The password is wrong (28P01).
    WrongPassword,
    /// `pg_hba.conf` has no line for this, or one that rejects it (28000).
    HbaRefused,
    /// The role does not exist, may not log in, or is not who the system says (28000).
    LoginRefused,
    /// No such database (3D000).
    NoDatabase,
    /// All connections are taken (53300).
    TooMany,
    /// Starting up, shutting down or recovering (57P03).
    NotReady,
    /// Another refusal of the server.
    Refused,
    /// What answers is not a PostgreSQL server that we understand.
    Protocol,
}

impl ConnectFault {
    /// Classifies a refusal of the server by its SQLSTATE, and within 28000 by its text, where PostgreSQL has no
    /// finer code (a translated text is then merely less precise).
    pub fn of_refusal(sqlstate: &str, message: &str) -> Self {
        match sqlstate {
            "28P01" => Self::WrongPassword,
            "28000" if message.contains("pg_hba.conf") => Self::HbaRefused,
            "28000" => Self::LoginRefused,
            "3D000" => Self::NoDatabase,
            "53300" => Self::TooMany,
            "57P03" => Self::NotReady,
            _ => Self::Refused,
        }
    }

    /// Classifies a fault of the socket.
    pub fn of_io(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => Self::NothingListening,
            ErrorKind::PermissionDenied => Self::SocketDenied,
            ErrorKind::TimedOut => Self::NoAnswer,
            _ => Self::Network,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::BadUrl => "the database URL cannot be read",
            Self::Tls => "TLS could not be agreed upon",
            Self::UnknownHost => "the host name is unknown",
            Self::NothingListening => "nothing is listening there",
            Self::SocketDenied => "the socket may not be opened by this user",
            Self::NoAnswer => "the server does not answer",
            Self::Network => "the connection could not be made",
            Self::PasswordMissing => "the server asks for a password and none was given",
            Self::WrongPassword => "the password is wrong",
            Self::HbaRefused => "the server's pg_hba.conf does not admit this connection",
            Self::LoginRefused => "the server refuses this role",
            Self::NoDatabase => "there is no such database",
            Self::TooMany => "all connections of the server are taken",
            Self::NotReady => "the server is not ready",
            Self::Refused => "the server refuses the connection",
            Self::Protocol => "the answer is not one of a PostgreSQL server",
        }
    }

    /// What to do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Self::BadUrl => {
                "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with @ : / of the password as %40 %3A %2F"
            }
            Self::Tls => "check sslmode, sslrootcert, and the names in the server's certificate",
            Self::UnknownHost => "check the spelling of the host in --database, DATABASE_URL or PGHOST",
            Self::NothingListening => {
                "start PostgreSQL there, or check host and port (its listen_addresses, for another machine)"
            }
            Self::SocketDenied => "run the command as a user who may read the socket folder",
            Self::NoAnswer | Self::Network => "check the address and the firewalls on the way",
            Self::PasswordMissing => "put it into PGPASSWORD or the URL",
            Self::WrongPassword => "correct the password in PGPASSWORD or the URL",
            Self::HbaRefused => {
                "add a line for this host, user and database to pg_hba.conf and reload PostgreSQL"
            }
            Self::LoginRefused => "name another user, or CREATE ROLE … LOGIN",
            Self::NoDatabase => "check the database's name, or CREATE DATABASE",
            Self::TooMany => "try again later, or raise max_connections",
            Self::NotReady => "try again in a moment",
            Self::Refused => "see the server's log",
            Self::Protocol => "check that host and port are those of PostgreSQL",
        }
    }
}

/// A connection that could not be made: where, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConnectError {
    /// The kind of failure.
    pub fault: ConnectFault,
    /// Where.
    pub place: Box<Place>,
    /// The reason in the words of PostgreSQL or of the system.
    pub reason: String,
}

impl ConnectError {
    pub(crate) fn new(fault: ConnectFault, place: Place, reason: String) -> Self {
        Self { fault, place: Box::new(place), reason }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.fault.words();
        if *self.place == Place::default() {
            write!(f, "{words}: {}", self.reason)
        } else {
            write!(f, "cannot connect to PostgreSQL at {}: {words}: {}", self.place, self.reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_usual_mistakes_have_four_messages_and_hints() {
        let faults = [
            ConnectFault::of_refusal("28P01", "password authentication failed for user \"a\""),
            ConnectFault::of_refusal("28000", "no pg_hba.conf entry for host \"::1\""),
            ConnectFault::of_io(ErrorKind::ConnectionRefused),
            ConnectFault::UnknownHost,
        ];
        for (i, a) in faults.iter().enumerate() {
            for b in &faults[..i] {
                assert_ne!(a.words(), b.words());
                assert_ne!(a.hint(), b.hint());
            }
        }
    }
}
