//! TLS: each `sslmode`, certificates of servers and clients, and that sessions observe what goes through it.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use yardmaster::db::connect::{Purpose, connect, parse_url};
use yardmaster::db::{OpenError, Session, Target, open};

use crate::cluster::{LIMIT, MESSAGE_BYTES, Yard, cluster, committed, failed};

/// A connection string by way of TCP; `DIR` stands for the folder of the certificates.
fn url(host: &str, database: &str, tls: &str) -> String {
    let c = cluster();
    let tls = tls.replace("DIR", &c.dir.display().to_string());
    format!("host={host} port={} dbname={database} {tls}", c.port)
}

async fn try_open(host: &str, yard: &Yard, owner: &str, tls: &str) -> Result<Session, OpenError> {
    let target = Target::parse(&url(host, &yard.database, tls)).unwrap();
    open(&target, owner, None, LIMIT, MESSAGE_BYTES).await
}

async fn is_encrypted(yard: &Yard, session: &Session) -> bool {
    let pid = session.backend().pid;
    yard.value(&format!("SELECT ssl FROM pg_stat_ssl WHERE pid = {pid}")).await == "t"
}

#[tokio::test]
async fn each_mode_demands_what_libpq_demands() {
    let yard = Yard::new().await;
    for (host, tls, encrypted) in [
        ("127.0.0.1", "sslmode=disable", false),
        ("127.0.0.1", "", true),
        ("127.0.0.1", "sslmode=require", true),
        ("127.0.0.1", "sslmode=verify-ca sslrootcert=DIR/ca.crt", true),
        ("localhost", "sslmode=verify-full sslrootcert=DIR/ca.crt", true),
        // A server's own certificate will do for an authority.
        ("localhost", "sslmode=verify-full sslrootcert=DIR/server.crt", true),
    ] {
        let mut session = try_open(host, &yard, &yard.owner, tls).await.unwrap();
        assert_eq!(is_encrypted(&yard, &session).await, encrypted, "{tls}");
        committed(yard.run(&mut session, "SELECT 1").await);
    }
    for (host, tls, why) in [
        ("127.0.0.1", "sslmode=verify-full sslrootcert=DIR/ca.crt", "not valid for name"),
        ("localhost", "sslmode=verify-full sslrootcert=DIR/other.crt", "TLS: "),
        ("127.0.0.1", "sslmode=require sslrootcert=DIR/other.crt", "TLS: "),
        ("127.0.0.1", "sslmode=verify-ca sslrootcert=DIR/none.crt", "none.crt"),
    ] {
        match try_open(host, &yard, &yard.owner, tls).await {
            Err(OpenError::Unreachable { message }) => assert!(message.contains(why), "{tls}: {message}"),
            other => panic!("{tls}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_client_certificate_is_a_credential() {
    let yard = Yard::new().await;
    let tls = "sslmode=verify-ca sslrootcert=DIR/ca.crt sslcert=DIR/client.crt sslkey=DIR/client.key";
    let session = try_open("127.0.0.1", &yard, "certified_owner", tls).await.unwrap();
    assert!(is_encrypted(&yard, &session).await);
    let refused = try_open("127.0.0.1", &yard, "certified_owner", "sslmode=require").await;
    assert!(matches!(&refused, Err(OpenError::Refused { .. })), "{refused:?}");
}

#[tokio::test]
async fn what_goes_through_tls_is_observed_bounded_and_cancelled_as_ever() {
    let yard = Yard::new().await;
    let mut session = try_open("127.0.0.1", &yard, &yard.owner, "sslmode=require").await.unwrap();
    let said =
        committed(yard.run(&mut session, "DO $$BEGIN RAISE NOTICE 'heard'; END$$; CREATE TABLE t ()").await);
    assert_eq!(
        said,
        "NOTICE: heard\nCONTEXT: PL/pgSQL function inline_code_block line 1 at RAISE\nDO\nCREATE TABLE"
    );
    let (canceller, pid) = (session.canceller(), session.backend().pid);
    let cancel = async {
        yard.until(&format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep')"
        ))
        .await;
        canceller.cancel().await.unwrap()
    };
    let (end, sent) = tokio::join!(yard.run(&mut session, "SELECT pg_sleep(60)"), cancel);
    assert!(sent);
    failed(end, "57014");
}

#[tokio::test]
async fn the_services_own_connections_speak_tls_too() {
    let yard = Yard::new().await;
    let tls = "user=postgres sslmode=verify-full sslrootcert=DIR/ca.crt";
    let access = parse_url(&url("localhost", &yard.database, tls)).unwrap();
    let (client, _) = connect(&access, Purpose::Control).await.unwrap();
    let asked = client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await;
    assert!(asked.unwrap().get::<_, bool>(0));
    let access = parse_url(&url("127.0.0.1", &yard.database, tls)).unwrap();
    let refused = connect(&access, Purpose::Control).await.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("not valid for name"), "{refused}");
}

#[tokio::test]
async fn a_server_without_tls_will_do_unless_it_is_demanded() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 8];
            let _ = socket.read_exact(&mut request).await;
            let _ = socket.write_all(b"N").await;
            let _ = socket.read(&mut [0; 64]).await;
        }
    });
    for (mode, refused) in [("require", true), ("prefer", false)] {
        let target = Target::parse(&format!("host=127.0.0.1 port={port} dbname=d sslmode={mode}")).unwrap();
        let error = open(&target, "alice", None, LIMIT, MESSAGE_BYTES).await.unwrap_err().to_string();
        assert_eq!(
            error.contains("the server does not speak TLS, which sslmode demands"),
            refused,
            "{error}"
        );
    }
}
