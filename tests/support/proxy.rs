//! A network between the service and PostgreSQL that can be made to misbehave, for chosen connections.
//!
//! It is a Unix socket in a folder of its own that forwards to the server's. Which connection is which is read from the
//! `application_name` of its first message: `yardmaster listen`, `yardmaster lock` and so on; owners' sessions have theirs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::cluster::Private;
use super::db::Db;

/// How a connection is treated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Weather {
    /// All passes.
    Fair,
    /// What the server says arrives so much later.
    Slow(Duration),
    /// Nothing arrives, and nothing is closed; when it ends, what was held back goes on.
    Silent,
    /// The connection is closed after so many more bytes of the server.
    CutAfter(u64),
}

/// Rules by the beginning of an application name; the last that fits holds.
type Rules = Vec<(String, Weather)>;

/// The network.
pub struct Proxy {
    folder: TempDir,
    rules: Arc<watch::Sender<Rules>>,
    /// How many connections were made through it.
    pub connections: Arc<Mutex<u32>>,
}

impl Proxy {
    /// A fair network in front of the server of `db`.
    pub fn before(db: &Db) -> Proxy {
        Proxy::of(db.cluster)
    }

    /// A fair network in front of this server.
    pub fn of(server: &Private) -> Proxy {
        let folder = tempfile::Builder::new().prefix("ym-proxy-").tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let server = server.socket.join(format!(".s.PGSQL.{}", server.port()));
        let rules = Arc::new(watch::Sender::new(Rules::new()));
        let connections = Arc::new(Mutex::new(0));
        let (for_all, count) = (Arc::clone(&rules), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                tokio::spawn(carry(client, server.clone(), for_all.subscribe()));
            }
        });
        Proxy { folder, rules, connections }
    }

    /// A connection string through it.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("host={} port=5432 user={user} dbname={database}", self.folder.path().display())
    }

    /// Changes the weather for connections whose name begins so, present and future ones.
    pub fn set(&self, name: &str, weather: Weather) {
        self.rules.send_modify(|rules| {
            rules.retain(|(n, _)| n != name);
            rules.push((name.to_owned(), weather));
        });
    }
}

/// Carries one connection until either side ends it.
async fn carry(mut client: UnixStream, server: PathBuf, rules: watch::Receiver<Rules>) -> Option<()> {
    let mut server = UnixStream::connect(server).await.ok()?;
    let mut first = vec![0; 8192];
    let length = client.read(&mut first).await.ok()?;
    let name = application_name(&first[..length]);
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.split();
    let weather = |rules: &watch::Receiver<Rules>| {
        let fits = |(n, w): &(String, Weather)| name.starts_with(n.as_str()).then_some(*w);
        rules.borrow().iter().rev().find_map(fits).unwrap_or(Weather::Fair)
    };
    let clear = async |rules: &mut watch::Receiver<Rules>| {
        while weather(rules) == Weather::Silent {
            rules.changed().await.ok()?;
        }
        Some(())
    };
    let mut rules_up = rules.clone();
    let up = async {
        clear(&mut rules_up).await?;
        to_server.write_all(&first[..length]).await.ok()?;
        let mut buffer = vec![0; 65536];
        loop {
            let n = from_client.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
            clear(&mut rules_up).await?;
            to_server.write_all(&buffer[..n]).await.ok()?;
        }
    };
    let mut rules_down = rules.clone();
    let down = async {
        let mut buffer = vec![0; 65536];
        let mut passed = 0;
        loop {
            let n = from_server.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
            clear(&mut rules_down).await?;
            let mut part = &buffer[..n];
            match weather(&rules_down) {
                Weather::Slow(time) => tokio::time::sleep(time).await,
                Weather::CutAfter(bytes) if passed + n as u64 > bytes => {
                    part = &part[..usize::try_from(bytes.saturating_sub(passed)).ok()?];
                    to_client.write_all(part).await.ok()?;
                    return None;
                }
                Weather::CutAfter(_) => passed += n as u64,
                Weather::Fair | Weather::Silent => {}
            }
            to_client.write_all(part).await.ok()?;
        }
    };
    let ended: Option<()> = tokio::select! { e = up => e, e = down => e };
    ended
}

fn application_name(startup: &[u8]) -> String {
    let words: Vec<&[u8]> = startup.split(|b| *b == 0).collect();
    let at = words.iter().position(|w| *w == b"application_name");
    at.and_then(|i| words.get(i + 1)).map(|w| String::from_utf8_lossy(w).into_owned()).unwrap_or_default()
}
