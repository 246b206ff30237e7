//! Spells a connection over a Unix socket as a URL.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `postgresql://user@%2Fsocket%2Fdir:port/database`, which libpq and tokio-postgres both read.
pub(super) fn over_socket(socket_dir: &Path, port: u16, user: &str, database: &str) -> String {
    format!(
        "postgresql://{}@{}:{port}/{}",
        percent_encoded(user.as_bytes()),
        percent_encoded(socket_dir.as_os_str().as_bytes()),
        percent_encoded(database.as_bytes())
    )
}

/// Encodes every byte that is not unreserved (RFC 3986, section 2.3).
fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte))
            }
            // Writing to a String cannot fail.
            _ => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokio_postgres_reads_back_what_we_spell() {
        let url = over_socket(Path::new("/tmp/a b/s"), 5432, "o'neil@home", "da/ta?base");
        let config: tokio_postgres::Config = url.parse().unwrap();
        assert_eq!(config.get_user(), Some("o'neil@home"));
        assert_eq!(config.get_dbname(), Some("da/ta?base"));
        assert_eq!(config.get_ports(), [5432]);
        assert_eq!(config.get_hosts(), [tokio_postgres::config::Host::Unix("/tmp/a b/s".into())]);
    }
}
