//! The Waker: hints, the poll and due times become Wakes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Context, Handler};
use tokio::time::Instant;
use yardmaster::actors::waker::{POLL_EVERY, Waker};
use yardmaster::messages::{Wake, WakeAt};

/// Notes when it was woken.
struct Probe(Arc<Mutex<Vec<Instant>>>);

impl Actor for Probe {
    type Context = Context<Self>;
}

impl Handler<Wake> for Probe {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        self.0.lock().unwrap().push(Instant::now());
    }
}

#[actix::test]
async fn a_later_due_time_replaces_an_earlier_one() {
    tokio::time::pause();
    let wakes: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let probe = Probe(Arc::clone(&wakes)).start();
    let waker = Waker::new(probe.recipient(), None).start();
    waker.do_send(WakeAt(Some(Duration::from_millis(100))));
    waker.send(WakeAt(Some(Duration::from_millis(300)))).await.unwrap();
    let start = Instant::now();
    tokio::time::sleep(POLL_EVERY - Duration::from_millis(100)).await;
    let heard: Vec<Duration> = wakes.lock().unwrap().iter().map(|at| *at - start).collect();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!((300..320).contains(&heard[0].as_millis()), "{heard:?}");
}

#[actix::test]
async fn the_poll_wakes_each_second_when_nobody_says_anything() {
    tokio::time::pause();
    let wakes: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let probe = Probe(Arc::clone(&wakes)).start();
    let _waker = Waker::new(probe.recipient(), None).start();
    tokio::time::sleep(POLL_EVERY * 5 + Duration::from_millis(500)).await;
    assert_eq!(wakes.lock().unwrap().len(), 5);
}

#[actix::test]
async fn a_storm_of_hints_is_coalesced() {
    tokio::time::pause();
    let wakes: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let probe = Probe(Arc::clone(&wakes)).start();
    let listener = Box::new(|hint: Box<dyn Fn()>| {
        let listening: futures::future::LocalBoxFuture<'static, ()> = Box::pin(async move {
            (0..10_000).for_each(|_| hint());
            std::future::pending().await
        });
        listening
    });
    let _waker = Waker::new(probe.recipient(), Some(listener)).start();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let heard = wakes.lock().unwrap().len();
    assert!((1..=64).contains(&heard), "{heard} wakes for 10,000 hints");
}
