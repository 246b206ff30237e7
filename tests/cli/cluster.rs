//! A throw-away PostgreSQL for these tests: one cluster for the whole run, one database with the catalog for each
//! test. It runs as user postgres when the tests run as root, since PostgreSQL refuses root.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const BIN_DIRS: [&str; 5] = [
    "/usr/lib/postgresql/18/bin",
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/14/bin",
];

/// Admits everybody but the role `locked` (by password) and the role `refused` (not by TCP).
const HBA: &str = "local all locked scram-sha-256\nhost all locked all scram-sha-256\n\
                   host all refused all reject\nlocal all all trust\nhost all all 127.0.0.1/32 trust\n";

/// Starts the server, says so, and when standard input ends (because the tests ended, however) stops and removes it.
const KEEPER: &str = r#"
    set -e
    "$BIN/initdb" -U postgres -A trust -E UTF8 --no-sync -D "$FOLDER/data" >"$FOLDER/log" 2>&1
    printf '%s' "$HBA" >"$FOLDER/data/pg_hba.conf"
    "$BIN/pg_ctl" start -w -t 60 -D "$FOLDER/data" -l "$FOLDER/log" >>"$FOLDER/log" 2>&1 \
        -o "-F -c listen_addresses=127.0.0.1 -c port=$PORT -c unix_socket_directories=$FOLDER" || cat "$FOLDER/log" >&2
    echo started
    read -r _ || true
    "$BIN/pg_ctl" stop -m immediate -D "$FOLDER/data" >>"$FOLDER/log" 2>&1 || true
    rm -rf "$FOLDER/data" "$FOLDER/log"
    rmdir "$FOLDER" 2>/dev/null || true
"#;

pub struct Cluster {
    /// Where the socket is.
    pub folder: PathBuf,
    /// On 127.0.0.1, and in the name of the socket.
    pub port: u16,
    /// Ends with us, because it reads from a pipe that we hold.
    _keeper: Child,
}

impl Cluster {
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("host={} port={} user={user} dbname={database}", self.folder.display(), self.port)
    }
}

pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("ym-cli-").tempdir().unwrap().keep();
        let port = free_port();
        let bin = BIN_DIRS
            .iter()
            .find(|dir| Path::new(dir).join("initdb").exists())
            .expect("PostgreSQL is installed");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER]).current_dir(&folder);
        command.env("BIN", bin).env("FOLDER", &folder).env("HBA", HBA).env("PORT", port.to_string());
        if nix::unistd::geteuid().is_root() {
            let account =
                nix::unistd::User::from_name("postgres").unwrap().expect("the account postgres exists");
            nix::unistd::chown(&folder, Some(account.uid), Some(account.gid)).unwrap();
            command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        }
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
        Cluster { folder, port, _keeper: keeper }
    })
}

/// A port on which nothing listens.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
