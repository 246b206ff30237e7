//! Mistakes on the way to the database: each has its own message, none shows a password, all come within seconds.

use std::time::{Duration, Instant};

use crate::cluster::{cluster, free_port};
use crate::yard::{PASSWORD, Told, Yard, yardmaster};

#[tokio::test]
async fn each_mistake_has_a_message_of_its_own_and_never_the_password() {
    let yard = Yard::bare().await;
    let port = cluster().port;
    let nobody = free_port();
    let cases = [
        (format!("postgres://locked:wrong-{PASSWORD}@127.0.0.1:{port}/postgres"), "the password is wrong"),
        (format!("postgres://locked:{PASSWORD}@no-such-host.invalid/postgres"), "the host name is unknown"),
        (format!("postgres://locked:{PASSWORD}@127.0.0.1:{nobody}/postgres"), "nothing is listening there"),
        (format!("postgres://refused:{PASSWORD}@127.0.0.1:{port}/postgres"), "pg_hba.conf does not admit"),
        (format!("host=/nonexistent user=locked password={PASSWORD}"), "nothing is listening there"),
        (format!("postgres://locked@127.0.0.1:{port}/postgres"), "asks for a password"),
        (format!("postgres://nobody:{PASSWORD}@127.0.0.1:{port}/postgres"), "refuses this role"),
        (format!("postgres://alice:{PASSWORD}@127.0.0.1:{port}/nowhere"), "no such database"),
    ];
    for (url, words) in cases {
        let start = Instant::now();
        let told = Told::of(yardmaster(&["status"]).env("DATABASE_URL", &url).output().unwrap()).exits(3);
        assert!(start.elapsed() < Duration::from_secs(30), "{told:?}");
        assert!(told.err.contains(words), "{told:?}");
        assert!(told.err.contains("\nhint: "), "{told:?}");
        for place in ["port ", "as user \"", "database \""] {
            assert!(told.err.contains(place), "{told:?}");
        }
    }
    drop(yard);
}

#[tokio::test]
async fn a_url_without_a_password_takes_that_of_the_environment() {
    let yard = Yard::bare().await;
    let url = format!("postgres://locked@127.0.0.1:{}/{}", cluster().port, yard.database);
    let told = yardmaster(&["job", "list", "--database", &url]).env("PGPASSWORD", PASSWORD).output().unwrap();
    let told = Told::of(told).exits(3);
    assert!(told.err.contains("no Yardmaster catalog"), "{told:?}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_five_seconds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://alice:{PASSWORD}@{}/yard", listener.local_addr().unwrap());
    let start = Instant::now();
    let told = Told::of(yardmaster(&["job", "list", "--database", &url]).output().unwrap()).exits(3);
    assert!(told.err.contains("the server does not answer: no answer within 5 s"), "{told:?}");
    assert!(start.elapsed() < Duration::from_secs(40));
}

#[tokio::test]
async fn no_database_and_an_unreadable_url_are_usage_errors() {
    // An empty data folder, since a private server of somebody's in the usual one would do.
    let nothing = tempfile::tempdir().unwrap();
    let told = yardmaster(&["status"]).env("YARDMASTER__DATA_DIR", nothing.path()).output().unwrap();
    let told = Told::of(told).exits(2);
    assert!(told.err.starts_with("error: no database is named"), "{told:?}");
    assert!(told.err.contains("give --database URL"), "{told:?}");
    let url = format!("password={PASSWORD} {PASSWORD}");
    let told = Told::of(yardmaster(&["status", "--database", &url]).output().unwrap()).exits(2);
    assert!(told.err.contains("the database URL cannot be read"), "{told:?}");
}

#[tokio::test]
async fn a_database_without_catalog_or_rights_says_what_to_do() {
    let yard = Yard::bare().await;
    let told = yard.run(&["job", "list"]).exits(3);
    assert!(told.err.contains("no Yardmaster catalog"), "{told:?}");
    assert!(told.err.contains("hint: run `yardmaster migrate`"), "{told:?}");
    let yard = Yard::new().await;
    let told = Told::of(yard.command_as("mallory", &["job", "list"]).output().unwrap()).exits(3);
    assert!(told.err.contains("GRANT yardmaster_user"), "{told:?}");
}
