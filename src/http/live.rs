//! `/live`: tells pages that what they show has changed, by server-sent events.
//!
//! One loop per process looks at the catalog for all browsers, and only while somebody watches: a hash per topic, which
//! changes when something of it does. A page that hears of a change fetches itself again. The number of listeners is
//! bounded, and a listener that is slow misses nothing but repetitions.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, web};
use futures::stream;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::error::Problem;
use super::state::State;
use crate::db::gauge;

/// More pages than these are told to come again later.
const MOST_LISTENERS: usize = 100;
/// How often the catalog is looked at while somebody watches.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pages are told to look again so often even if the hash stays: a failure between two looks changes no counter.
const ANYWAY_EVERY: Duration = Duration::from_secs(5);
/// A comment that keeps proxies from closing the stream, and finds out that the browser has gone.
const BREATHE_EVERY: Duration = Duration::from_secs(15);
/// When the browser is to connect again after the stream ended, in milliseconds.
const RETRY: &str = "retry: 2000\n\n";

/// What a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Topic {
    Yard,
    Job(i64),
}

/// Who watches what.
pub(super) struct Hub {
    topics: Mutex<HashMap<Topic, watch::Sender<u64>>>,
    seats: std::sync::Arc<Semaphore>,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub { topics: Mutex::default(), seats: std::sync::Arc::new(Semaphore::new(MOST_LISTENERS)) }
    }
}

impl Hub {
    fn watch(&self, topic: Topic) -> watch::Receiver<u64> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.entry(topic).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// The topics that somebody watches; the others are forgotten.
    fn watched(&self) -> Vec<Topic> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.retain(|_, sender| sender.receiver_count() > 0);
        topics.keys().copied().collect()
    }

    fn tell(&self, topic: Topic) {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = topics.get(&topic) {
            sender.send_modify(|version| *version += 1);
        }
    }
}

/// Looks for changes until the page is closed.
pub(super) async fn look(state: web::Data<State>) {
    let mut closing = state.closing();
    let mut seen: HashMap<Topic, (String, Instant)> = HashMap::new();
    loop {
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let watched = state.hub.watched();
        seen.retain(|topic, _| watched.contains(topic));
        if watched.is_empty() {
            continue;
        }
        // Without a catalog nothing changes; the pages stay as they are.
        for (topic, pulse) in pulses(&state, &watched).await {
            let known = seen.get(&topic);
            if known.is_none_or(|(last, at)| *last != pulse || at.elapsed() >= ANYWAY_EVERY) {
                let first = known.is_none();
                seen.insert(topic, (pulse, Instant::now()));
                if !first {
                    state.hub.tell(topic);
                }
            }
        }
    }
}

async fn pulses(state: &State, watched: &[Topic]) -> Vec<(Topic, String)> {
    let jobs: Vec<i64> = watched
        .iter()
        .filter_map(|topic| match topic {
            Topic::Job(job) => Some(*job),
            Topic::Yard => None,
        })
        .collect();
    let yard = watched.contains(&Topic::Yard);
    let looked = state.readers.ask(async |client| {
        let mut pulses = Vec::new();
        if yard {
            pulses.push((Topic::Yard, gauge::pulse_of_all(client).await?));
        }
        if !jobs.is_empty() {
            let of_jobs = gauge::pulse(client, &jobs).await?;
            pulses.extend(of_jobs.into_iter().map(|(job, pulse)| (Topic::Job(job), pulse)));
        }
        Ok(pulses)
    });
    looked.await.inspect_err(|e| tracing::debug!("no pulse: {e}")).unwrap_or_default()
}

/// What is to be watched: a job, or everything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiveQuery {
    job: Option<i64>,
}

struct Listener {
    changes: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    begun: bool,
    _seat: OwnedSemaphorePermit,
}

/// The stream of a page.
pub(super) async fn stream(
    state: web::Data<State>,
    query: web::Query<LiveQuery>,
) -> Result<HttpResponse, Problem> {
    let seat = state.hub.seats.clone().try_acquire_owned().map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{MOST_LISTENERS} pages listen already"))
    })?;
    let changes = state.hub.watch(query.job.map_or(Topic::Yard, Topic::Job));
    let listener = Listener { changes, closing: state.closing(), begun: false, _seat: seat };
    let events = stream::unfold(listener, async |mut listener| {
        if !std::mem::replace(&mut listener.begun, true) {
            return Some((Ok::<_, actix_web::Error>(Bytes::from_static(RETRY.as_bytes())), listener));
        }
        let text = tokio::select! {
            _ = listener.closing.wait_for(|closing| *closing) => return None,
            changed = listener.changes.changed() => {
                changed.ok()?;
                format!("event: change\ndata: {}\n\n", *listener.changes.borrow_and_update())
            }
            () = tokio::time::sleep(BREATHE_EVERY) => ": still here\n\n".to_owned(),
        };
        Some((Ok(Bytes::from(text)), listener))
    });
    Ok(HttpResponse::Ok().content_type("text/event-stream").streaming(Box::pin(events)))
}
