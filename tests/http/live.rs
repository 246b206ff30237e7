//! Changes that are told, and how many may listen.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Site;
use crate::support::{Db, PATIENCE, Service};

/// An open stream of events, from its first line on.
fn listen(site: &Site, path: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(site.authority()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", site.authority()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status).unwrap();
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    until_line(&mut reader, "retry:");
    reader
}

fn until_line(reader: &mut BufReader<TcpStream>, begins: &str) {
    let mut line = String::new();
    while !line.starts_with(begins) {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended before {begins:?}");
    }
}

#[tokio::test]
async fn a_change_is_told_to_who_watches_the_job_and_the_list() {
    let db = Db::new().await;
    let service = Service::start(&db).await;
    let site = Site::of(&service).await;
    let job =
        db.submit(json!({ "task": [{ "command": "SELECT 1", "not_before": "2100-01-01T00:00:00Z" }] })).await;
    let mut of_job = listen(&site, &format!("/live?job={job}"));
    let mut of_all = listen(&site, "/live");
    db.cancel(job).await;
    until_line(&mut of_job, "event: change");
    until_line(&mut of_all, "event: change");
}

/// The number of listeners is bounded, a place becomes free when one leaves, and none of them holds up the end.
#[tokio::test]
async fn listeners_are_bounded_and_do_not_delay_the_end() {
    let db = Db::new().await;
    let mut service = Service::start(&db).await;
    let site = Site::of(&service).await;
    let listeners: Vec<_> = (0..100).map(|_| listen(&site, "/live")).collect();
    assert_eq!(site.get("/live").status, 503);
    assert_eq!(site.get("/api/v1/jobs").status, 200);
    let begun = Instant::now();
    assert_eq!(service.stop().await, 0);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(listeners);
}
