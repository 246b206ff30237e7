//! `/metrics`, for Prometheus.
//!
//! Figures of the catalog are looked up at a scrape, but never so often that looking takes more than a twentieth of the
//! time; what happened in this process comes from its [`meters`].

use std::time::{Duration, Instant};

use actix_web::{HttpResponse, web};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::error::Problem;
use super::state::State;
use crate::db::gauge::{self, Figures, NodeSlots};
use crate::db::inspect::service::{self, Leader};
use crate::messages::Snapshot;
use crate::meters::meters;

/// A look that took one second is good for so many.
const REST: u32 = 20;

/// What the catalog was last seen to hold.
#[derive(Clone)]
pub(super) struct Look {
    figures: Figures,
    nodes: Vec<NodeSlots>,
    leader: Leader,
    at: Instant,
    took: Duration,
}

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge>;
type Fractions = Gauge<f64, std::sync::atomic::AtomicU64>;

/// The figures. Without a database those of this process alone, with `yardmaster_home_up 0`.
pub(super) async fn metrics(state: web::Data<State>) -> Result<HttpResponse, Problem> {
    let look = look(&state).await;
    let snapshot = state.snapshot().await;
    let mut registry = Registry::with_prefix("yardmaster");
    of_process(&mut registry, look.is_some(), snapshot.as_ref());
    if let Some(look) = &look {
        of_catalog(&mut registry, look);
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|e| Problem::internal(&e))?;
    Ok(HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(text))
}

/// The last look if it is fresh enough, else a new one; nothing if the catalog does not answer.
async fn look(state: &State) -> Option<Look> {
    let mut last = state.look.lock().await;
    if let Some(look) = last.as_ref().filter(|look| look.at.elapsed() < look.took * REST) {
        return Some(look.clone());
    }
    let begun = Instant::now();
    let looked = state.readers.ask(async |client| {
        Ok((gauge::figures(client).await?, gauge::nodes(client).await?, service::leader(client).await?))
    });
    *last = match looked.await {
        Ok((figures, nodes, leader)) => {
            Some(Look { figures, nodes, leader, at: Instant::now(), took: begun.elapsed() })
        }
        Err(e) => {
            tracing::debug!("no figures: {e}");
            None
        }
    };
    last.clone()
}

fn of_process(registry: &mut Registry, home_up: bool, snapshot: Option<&Snapshot>) {
    let meters = meters();
    registry.register_with_unit(
        "task_start_delay",
        "From the moment a task could run (submission, not_before, last dependency) to its first claim, in this process",
        Unit::Seconds,
        meters.start_delay.clone(),
    );
    registry.register_with_unit(
        "attempt_duration",
        "From claim to outcome, of attempts that ran in this process",
        Unit::Seconds,
        meters.duration.clone(),
    );
    registry.register(
        "home_outages",
        "Times that the home database was lost or could not be reached",
        meters.outages.clone(),
    );
    let gauge = |registry: &mut Registry, name: &str, help: &str, value: i64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge(registry, "home_up", "Does the catalog answer?", i64::from(home_up));
    if let Some(snapshot) = snapshot {
        gauge(registry, "leading", "Does this process decide?", i64::from(snapshot.epoch.is_some()));
        gauge(
            registry,
            "attempts_running",
            "Attempts alive in this process",
            of_usize(snapshot.running.len()),
        );
        gauge(
            registry,
            "attempts_unsettled",
            "Outcomes that the catalog does not know yet",
            of_usize(snapshot.unsettled),
        );
        gauge(
            registry,
            "sessions_idle",
            "Sessions of owners that wait for work",
            of_usize(snapshot.idle_sessions),
        );
    }
}

fn of_catalog(registry: &mut Registry, look: &Look) {
    let mut family = |name: &str, help: &str, values: Vec<(Labels, i64)>| {
        let family = Gauges::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value);
        }
        registry.register(name, help, family);
    };
    let status = |(status, n): (&str, i64)| (vec![("status", status.to_owned())], n);
    family(
        "tasks",
        "Tasks of the jobs that are kept; failed: error, unscheduled or cancelled; runnable: counted up to 100000",
        look.figures.tasks.into_iter().map(status).collect(),
    );
    family(
        "jobs",
        "Jobs that are kept",
        vec![status(("open", look.figures.open_jobs)), status(("ended", look.figures.ended_jobs))],
    );
    let node =
        |n: &NodeSlots| vec![("node", if n.node.is_empty() { "all".to_owned() } else { n.node.clone() })];
    family(
        "slots_used",
        "Slots in use; node all: max_task_executors",
        look.nodes.iter().map(|n| (node(n), n.used)).collect(),
    );
    family(
        "slots_limit",
        "Slots that may be in use",
        look.nodes.iter().map(|n| (node(n), n.limit)).collect(),
    );
    family(
        "node_up",
        "Is the node active?",
        look.nodes.iter().filter(|n| n.declared).map(|n| (node(n), i64::from(n.state == "active"))).collect(),
    );
    family(
        "leader",
        "Who leads the catalog: 1 while its renewal is recent",
        vec![(vec![("instance", look.leader.instance.clone())], i64::from(look.leader.alive))],
    );
    registry.register("leader_epoch", "The newest term", {
        let epoch = Gauge::<i64>::default();
        epoch.set(look.leader.epoch);
        epoch
    });
    let oldest = Fractions::default();
    oldest.set(look.figures.oldest_runnable.unwrap_or(0.0));
    registry.register_with_unit(
        "oldest_runnable_age",
        "How long the runnable task with the smallest id could have run; 0 if there is none",
        Unit::Seconds,
        oldest,
    );
}

fn of_usize(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
