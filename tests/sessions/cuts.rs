//! The network cut after any byte of the server's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::{LIMIT, Yard, cluster, committed, new_attempt};
use yardmaster::db::{AttemptEnd, Target, open};

/// Forwards one connection; what the server says only until `budget` bytes are used up, then both sides are closed.
async fn proxy(listener: TcpListener, budget: Arc<AtomicUsize>) {
    let (mut near, _) = listener.accept().await.unwrap();
    let mut far = TcpStream::connect(("127.0.0.1", cluster().port)).await.unwrap();
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            n = near.read(&mut up) => match n {
                Ok(n) if n > 0 => far.write_all(&up[..n]).await.unwrap(),
                _ => return,
            },
            n = far.read(&mut down) => match n {
                Ok(n) if n > 0 => {
                    let left = budget.load(Ordering::Relaxed);
                    let passed = n.min(left);
                    budget.store(left - passed, Ordering::Relaxed);
                    if near.write_all(&down[..passed]).await.is_err() || passed < n {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

#[tokio::test]
async fn a_cut_after_any_byte_is_never_a_wrong_answer() {
    let yard = Yard::new().await;
    committed(yard.run(&mut yard.open().await, "CREATE TABLE t (i bigint)").await);
    let (mut doubts, mut certain) = (0, 0);
    for bytes in (0..700).step_by(5) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let budget = Arc::new(AtomicUsize::new(usize::MAX));
        let proxied = tokio::spawn(proxy(listener, Arc::clone(&budget)));
        let target =
            Target::parse(&format!("postgresql://127.0.0.1:{port}/{}?sslmode=disable", yard.database))
                .unwrap();
        let mut s = open(&target, &yard.owner, None, LIMIT, 4096).await.unwrap();

        budget.store(bytes, Ordering::Relaxed);
        let (name, pid) = (new_attempt(), s.backend().pid);
        let command = format!("INSERT INTO t VALUES ({})", name.task);
        let end = tokio::time::timeout(LIMIT, yard.run_as(&mut s, name, &command)).await.unwrap();
        let reusable = s.is_reusable();
        drop(s);
        proxied.await.unwrap();
        yard.until(&format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})")).await;
        let found = yard
            .value(&format!(
                "SELECT (SELECT count(*) FROM t WHERE i = {0}) || ' ' || (SELECT count(*) FROM yardmaster.record WHERE task_id = {0})",
                name.task
            ))
            .await;
        match end {
            AttemptEnd::Committed { recorded: true, .. } => {
                assert_eq!(found, "1 1", "after {bytes} bytes");
                certain += 1;
            }
            AttemptEnd::Doubt { .. } => {
                assert!(
                    !reusable && ["0 0", "1 1"].contains(&found.as_str()),
                    "after {bytes} bytes: {found}"
                );
                assert_eq!(certain, 0, "more bytes cannot make it less certain");
                doubts += 1;
            }
            other => panic!("after {bytes} bytes: {other:?}"),
        }
    }
    assert!(doubts > 20 && certain > 5, "{doubts} doubts, {certain} certain");
}
