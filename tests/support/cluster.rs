//! The private PostgreSQL of a test binary.
//!
//! It is started once, by `yardmaster::cluster`, on a thread that never ends, so nothing of it is dropped at the end
//! of the process. A shell that reads from a pipe of ours notices that end, even by a kill, stops the server and
//! removes its folder.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};

use tokio_postgres::{Client, NoTls};
use yardmaster::cluster::{Binaries, Cluster, ClusterOptions};
use yardmaster::db::{connect, migrate};

/// The database with the catalog that each test's database is a copy of.
pub const TEMPLATE: &str = "yard_template";

/// Roles of every test. `yard_service` holds the rights the manual asks for, and for the migration of the template
/// CREATEROLE and CREATE on the database, which it loses afterwards.
const ROLES: &str = "
CREATE ROLE yard_service LOGIN CREATEROLE IN ROLE pg_read_all_stats, pg_signal_backend;
CREATE DATABASE yard_template;
GRANT CREATE ON DATABASE yard_template TO yard_service;";
const PEOPLE: &str = "
ALTER ROLE yard_service NOCREATEROLE;
REVOKE CREATE ON DATABASE yard_template FROM yard_service;
CREATE ROLE alice LOGIN IN ROLE yardmaster_user;
CREATE ROLE bob LOGIN IN ROLE yardmaster_user;
CREATE ROLE carol LOGIN;";

/// Ends the server, whichever runs on the folder by then, and removes the folder when the tests end.
const WATCHDOG: &str = r#"
    read -r _
    pid=$(head -n 1 "$1/postgres/postmaster.pid" 2>/dev/null)
    if [ -n "$pid" ]; then
        kill -QUIT "$pid" 2>/dev/null
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            case "$(cat "/proc/$pid/stat" 2>/dev/null)" in ''|*') Z '*) break;; esac
            sleep 0.2
        done
    fi
    rm -rf "$1"
"#;

/// Where the server is.
#[derive(Debug)]
pub struct Private {
    /// The data folder.
    pub folder: PathBuf,
    /// The folder of the socket.
    pub socket: PathBuf,
    /// The folder of the server's programs.
    pub bin_dir: PathBuf,
    /// The postmaster that was started first.
    pub pid: u32,
    port: u16,
}

impl Private {
    /// The number in the socket's name.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection string, for tokio-postgres and libpq alike.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("host={} port={} user={user} dbname={database}", self.socket.display(), self.port)
    }

    /// A connection, driven by the calling runtime.
    pub async fn connect(&self, user: &str, database: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(user, database), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// The server, started at the first call.
pub fn cluster() -> &'static Private {
    static CLUSTER: OnceLock<Private> = OnceLock::new();
    CLUSTER.get_or_init(started)
}

/// Two more that all tests of the binary share, for databases of nodes: `0` or `1`.
pub fn another(which: usize) -> &'static Private {
    static OTHERS: [OnceLock<Private>; 2] = [OnceLock::new(), OnceLock::new()];
    OTHERS[which].get_or_init(started)
}

fn started() -> Private {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (cluster, private) = start(&[("max_connections", "500")]).await;
            tell.send(private).unwrap();
            std::future::pending::<()>().await;
            drop(cluster);
        });
    });
    told.recv().expect("the private PostgreSQL starts")
}

/// A server of one's own, for tests that stop it, with settings of its own. It ends when the `Cluster` is dropped.
pub async fn own(settings: &[(&str, &str)]) -> (Cluster, &'static Private) {
    let (cluster, private) = start(settings).await;
    // A few hundred bytes a test, so that a `Db` is the same on either server.
    (cluster, Box::leak(Box::new(private)))
}

async fn start(settings: &[(&str, &str)]) -> (Cluster, Private) {
    let binaries = Binaries::find().unwrap();
    let folder = tempfile::Builder::new().prefix("ym-test-").tempdir().unwrap().keep();
    let mut options = ClusterOptions { fsync: false, ..ClusterOptions::new(&folder) };
    options.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let cluster = Cluster::start(&binaries, options).await.unwrap();
    let private = Private {
        folder,
        socket: cluster.socket_dir().to_owned(),
        bin_dir: binaries.bin_dir,
        pid: cluster.pid(),
        port: cluster.port(),
    };
    watch(&private);
    prepare(&private).await;
    (cluster, private)
}

fn watch(private: &Private) {
    let mut shell = Command::new("sh");
    shell.args(["-c", WATCHDOG, "sh"]).arg(&private.folder);
    // In a group of its own, so that Ctrl-C in the terminal does not end it before its work.
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // Not waited for: it ends after us, when its input does.
    #[allow(clippy::zombie_processes)]
    let watchdog = shell.spawn().unwrap();
    std::mem::forget(watchdog.stdin);
}

async fn prepare(private: &Private) {
    let admin = private.connect("postgres", "postgres").await;
    for statement in ROLES.split_inclusive(';').filter(|s| !s.trim().is_empty()) {
        admin.batch_execute(statement).await.unwrap();
    }
    let config = connect::parse_url(&private.url("yard_service", TEMPLATE)).unwrap();
    migrate::migrate(&config).await.unwrap();
    admin.batch_execute(PEOPLE).await.unwrap();
}
