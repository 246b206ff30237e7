//! Criterion benchmarks of the pure model: what the Monitor's thread does between two queries.
//!
//! `cargo bench --bench model`. The dispatch cycles drive the real Yard in the simulated world of `tests/model`, whose own
//! cost (it looks at each of its tasks in each turn) is in the figure.

#[allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    reason = "shared with tests/model, which uses all of it"
)]
#[path = "../tests/model/yard/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use world::World;
use yardmaster::model::slots::SlotTable;
use yardmaster::model::{Lane, LaneId, Limits, Outcome, SessionKey, graph, rollup};

fn lane(id: i32, owner: &str, node: &str) -> Lane {
    let session = SessionKey { node: node.to_owned(), owner: owner.to_owned(), owner_oid: 1 };
    Lane { id: LaneId(id), session, nodes: vec![node.to_owned()] }
}

/// A yard in which each of `crowd` lanes has a running task on its full node and one more that waits, and one lane is idle.
fn yard(crowd: i32) -> World {
    let lanes = (1..=crowd + 1).map(|id| lane(id, &format!("owner{id}"), &format!("node{id}"))).collect();
    let limits =
        Limits { max_task_executors: 5_000, max_task_executors_per_node: 1, per_node: BTreeMap::new() };
    let mut world = World::new(lanes, limits, 5_000);
    world.take_office();
    for lane in 0..crowd.unsigned_abs() as usize {
        world.submit(lane, 0, &[]);
        world.submit(lane, 0, &[]);
    }
    world.calm();
    world
}

/// From submission to settlement of one task: look, slots, session, claim, start, end.
fn dispatch(c: &mut Criterion) {
    let mut group = c.benchmark_group("one task, submitted to settled, beside full nodes");
    for crowd in [0, 100, 1_000] {
        let mut world = yard(crowd);
        group.bench_function(BenchmarkId::from_parameter(crowd), |b| {
            b.iter(|| {
                let task = world.submit(crowd.unsigned_abs() as usize, 0, &[]);
                world.calm();
                world.finish(task, Outcome::Done { message: String::new(), recorded: true });
                world.calm();
                world.tasks.remove(&task);
            });
        });
    }
    group.finish();
}

fn slots(c: &mut Criterion) {
    let nodes: Vec<String> = (0..100).map(|n| format!("node{n}")).collect();
    let limits =
        Limits { max_task_executors: 1_000, max_task_executors_per_node: 8, per_node: BTreeMap::new() };
    for n in [1, 3, 100] {
        let mut table = SlotTable::new(limits.clone());
        c.bench_function(&format!("take and give back the slots of {n} nodes"), |b| {
            b.iter(|| {
                if let Ok(grant) = table.try_take(black_box(&nodes[..n])) {
                    table.give_back(grant);
                }
            });
        });
    }
}

/// 50 layers of 50 tasks, each of which waits for the whole layer before: 122,500 edges.
fn layers() -> Vec<(i64, i64)> {
    let before = |task: i64| (task / 50 * 50 - 50)..(task / 50 * 50);
    (50..2_500).flat_map(|task| before(task).map(move |dependency| (task, dependency))).collect()
}

fn graphs(c: &mut Criterion) {
    let edges = layers();
    c.bench_function("search 122,500 edges for cycles", |b| b.iter(|| graph::cycles(black_box(&edges))));
    c.bench_function("state of a job from its counters", |b| {
        b.iter(|| rollup::job_status(black_box(false), 1_000_000, black_box(999_999), 0, true));
    });
    c.bench_function("1,000 dependants of one task become ready", |b| {
        b.iter_batched_ref(
            || {
                let mut world = yard(0);
                let parent = world.submit(0, 0, &[]);
                (0..1_000).for_each(|_| {
                    world.submit(0, 0, &[parent]);
                });
                world.calm();
                (world, parent)
            },
            |(world, parent)| {
                world.finish(*parent, Outcome::Done { message: String::new(), recorded: true });
                world.calm();
            },
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, dispatch, slots, graphs);
criterion_main!(benches);
