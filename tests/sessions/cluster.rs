//! A private PostgreSQL for this test binary, and one database and owner per test.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use uuid::Uuid;
use yardmaster::db::{self, AttemptEnd, AttemptName, Completion, Order, Session, Target, TicketKeys};
use yardmaster::model::{Epoch, JobId, TaskId};

pub const LIMIT: Duration = Duration::from_secs(20);
pub const MESSAGE_BYTES: usize = 64 * 1024;

pub struct Cluster {
    pub dir: PathBuf,
    pub port: u16,
}

/// Starts it once; a shell stops and removes it when this process ends, however it ends.
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let bin = binaries();
        let dir = tempfile::Builder::new().prefix("yard-sessions-").tempdir().unwrap().keep();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let user = nix::unistd::User::from_name("postgres").unwrap();
        let root = nix::unistd::Uid::effective().is_root();
        if let (true, Some(user)) = (root, &user) {
            nix::unistd::chown(&dir, Some(user.uid), Some(user.gid)).unwrap();
        }
        let become_postgres = |command: &mut Command| {
            if let (true, Some(user)) = (root, &user) {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            command.current_dir("/");
        };
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N", "-D"]).arg(dir.join("data"));
        become_postgres(&mut initdb);
        let made = initdb.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(dir.join("data/pg_ident.conf"), "yard yard-client certified_owner\n").unwrap();
        certificates(&dir);
        for name in ["server.crt", "server.key", "ca.crt"] {
            std::fs::copy(dir.join(name), dir.join("data").join(name)).unwrap();
            if let (true, Some(user)) = (root, &user) {
                nix::unistd::chown(&dir.join("data").join(name), Some(user.uid), Some(user.gid)).unwrap();
            }
        }
        let hba = "local all all trust\nhostssl all certified_owner 127.0.0.1/32 cert map=yard\nhost all certified_owner 127.0.0.1/32 reject\nhost all +passworded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        std::fs::write(dir.join("data/pg_hba.conf"), hba).unwrap();

        let script = "\"$1/postgres\" -D \"$2/data\" -k \"$2\" -p $3 -c listen_addresses=127.0.0.1 -c fsync=off \
             -c ssl=on -c ssl_ca_file=ca.crt -c max_connections=200 -c shared_buffers=64MB -c max_prepared_transactions=5 >\"$2/log\" 2>&1 & \
             server=$!; cat >/dev/null; kill -QUIT $server; wait $server; rm -rf \"$2\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(&bin).arg(&dir).arg(port.to_string());
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        become_postgres(&mut shell);
        // Not waited for: it outlives this process by a moment, and ends because its input does.
        #[allow(clippy::zombie_processes)]
        let child = shell.spawn().unwrap();
        std::mem::forget(child.stdin);
        let cluster = Cluster { dir, port };
        std::thread::scope(|scope| {
            scope.spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(prepare(&cluster)));
        });
        cluster
    })
}

/// An authority, a server's certificate for `localhost`, a client's, and another authority that signed nothing.
fn certificates(dir: &Path) {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output();
        let made = made.expect("openssl is needed to make certificates: install the package openssl");
        assert!(made.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&made.stderr));
    };
    for ca in ["ca", "other"] {
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {ca}.key -out {ca}.crt -subj /CN={ca} -days 2"
        ));
    }
    std::fs::write(dir.join("server.ext"), "subjectAltName=DNS:localhost\n").unwrap();
    std::fs::write(dir.join("client.ext"), "subjectAltName=DNS:client\n").unwrap();
    for (name, cn) in [("server", "localhost"), ("client", "yard-client")] {
        openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr -subj /CN={cn}"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days 2 -extfile {name}.ext"
        ));
    }
}

fn binaries() -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        installed.map(|e| e.path().join("bin")).filter(|p| p.join("initdb").exists()).collect();
    found.sort();
    found.pop().expect("PostgreSQL's server binaries are needed: install the package postgresql")
}

async fn prepare(cluster: &Cluster) {
    let deadline = std::time::Duration::from_secs(60);
    let admin = tokio::time::timeout(deadline, async {
        loop {
            if let Some(admin) = try_admin(cluster, "postgres").await {
                return admin;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let admin = admin.await.expect("the private PostgreSQL did not start");
    let roles = "CREATE ROLE yardmaster_owner; CREATE ROLE yardmaster_user; CREATE ROLE yardmaster_monitor; \
                 CREATE ROLE yardmaster_admin; CREATE ROLE passworded; CREATE ROLE certified_owner LOGIN";
    admin.batch_execute(roles).await.unwrap();
    admin.batch_execute("CREATE DATABASE yard").await.unwrap();
    let yard = try_admin(cluster, "yard").await.unwrap();
    yard.batch_execute("CREATE SCHEMA yardmaster AUTHORIZATION yardmaster_owner; SET ROLE yardmaster_owner")
        .await
        .unwrap();
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> = std::fs::read_dir(migrations).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "sql")) {
        yard.batch_execute(&std::fs::read_to_string(file).unwrap()).await.unwrap();
    }
}

async fn try_admin(cluster: &Cluster, database: &str) -> Option<Client> {
    let text =
        format!("host={} port={} user=postgres dbname={database}", cluster.dir.display(), cluster.port);
    let (client, connection) = tokio_postgres::connect(&text, NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// A database of its own with the catalog, and an owner who may create tables in it.
pub struct Yard {
    pub database: String,
    pub owner: String,
    pub admin: Client,
    pub keys: TicketKeys,
}

static NEXT: AtomicI64 = AtomicI64::new(1);

pub fn unique() -> i64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Yard {
    pub async fn new() -> Self {
        let cluster = cluster();
        let n = unique();
        let (database, owner) = (format!("d{n}"), format!("alice{n}"));
        let server = try_admin(cluster, "postgres").await.unwrap();
        // Serialised: a template database may have no other visitor while it is copied.
        static COPY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let guard = COPY.lock().await;
        loop {
            match server.batch_execute(&format!("CREATE DATABASE {database} TEMPLATE yard")).await {
                Ok(()) => break,
                Err(e) if e.code().is_some_and(|c| c.code() == "55006") => {
                    tokio::time::sleep(Duration::from_millis(50)).await
                }
                Err(e) => panic!("{e:?}"),
            }
        }
        drop(guard);
        server.batch_execute(&format!("CREATE ROLE {owner} LOGIN")).await.unwrap();
        let admin = try_admin(cluster, &database).await.unwrap();
        admin.batch_execute(&format!("GRANT CREATE ON SCHEMA public TO {owner}")).await.unwrap();
        let row = admin.query_one("SELECT inner_key, outer_key FROM yardmaster.secret", &[]).await.unwrap();
        let keys = TicketKeys::new(row.get(0), row.get(1)).unwrap();
        Self { database, owner, admin, keys }
    }

    pub fn target(&self) -> Target {
        target(&self.database)
    }

    /// Another connection of the superuser.
    pub async fn open_admin(&self) -> Client {
        try_admin(cluster(), &self.database).await.unwrap()
    }

    pub async fn open(&self) -> Session {
        db::open(&self.target(), &self.owner, None, LIMIT, MESSAGE_BYTES).await.unwrap()
    }

    pub fn completion(&self, name: &AttemptName) -> Completion {
        Completion { epoch: Epoch(7), token: Uuid::from_u128(9), ticket: self.keys.ticket(name, &self.owner) }
    }

    /// Runs a command as a new task's first attempt.
    pub async fn run(&self, session: &mut Session, command: &str) -> AttemptEnd {
        let name = new_attempt();
        self.run_as(session, name, command).await
    }

    pub async fn run_as(&self, session: &mut Session, name: AttemptName, command: &str) -> AttemptEnd {
        session.run_transactional(&Order { name, command }, &self.completion(&name)).await
    }

    /// The one value of a query, as text.
    pub async fn value(&self, query: &str) -> String {
        let rows = self.admin.simple_query(query).await.unwrap();
        rows.iter()
            .find_map(|m| match m {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("").to_owned()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Waits until a query gives `t`.
    pub async fn until(&self, query: &str) {
        let wait = async {
            while self.value(query).await != "t" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("still not: {query}"));
    }
}

pub fn target(database: &str) -> Target {
    let cluster = cluster();
    Target::parse(&format!("host={} port={} dbname={database}", cluster.dir.display(), cluster.port)).unwrap()
}

pub fn new_attempt() -> AttemptName {
    let n = unique();
    AttemptName { job: JobId(n), task: TaskId(n), attempt: 1, task_key: Uuid::new_v4(), series: 1 }
}

pub fn plain(command: &str) -> Order<'_> {
    Order { name: new_attempt(), command }
}

#[track_caller]
pub fn committed(end: AttemptEnd) -> String {
    match end {
        AttemptEnd::Committed { message, .. } => message,
        other => panic!("not committed: {other:?}"),
    }
}

#[track_caller]
pub fn failed(end: AttemptEnd, state: &str) -> String {
    match end {
        AttemptEnd::Failed { sqlstate, message } if sqlstate == state => message,
        other => panic!("not failed with {state}: {other:?}"),
    }
}
