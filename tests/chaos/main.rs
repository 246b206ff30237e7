//! The crash test: two services and a PostgreSQL are killed, stopped, restarted and robbed of their connections at
//! random moments while jobs are submitted, cancelled and retried; in the end every effect must be there exactly once
//! and the catalog must agree with itself.
//!
//! `YARDMASTER_CHAOS_SEED`, `_TASKS` and `_SECONDS` override the seed (printed), the number of tasks and for how long
//! harm is done. `make chaos` runs a long one. Timing is not part of the seed: a seed repeats the faults and the work,
//! not the interleaving.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod dice;
mod faults;
mod limits;
#[path = "../support/mod.rs"]
mod support;
mod verdict;
mod work;
mod world;

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::Instant;

use dice::Dice;
use world::{LIMIT, NODE_LIMIT, OWNER, World};

fn setting(name: &str, default: u64) -> u64 {
    let variable = format!("YARDMASTER_CHAOS_{name}");
    std::env::var(&variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

fn fresh_seed() -> u64 {
    u64::from(uuid::Uuid::new_v4().as_fields().0)
}

#[tokio::test]
async fn whatever_dies_every_effect_is_there_exactly_once_and_the_catalog_agrees() {
    let (seed, tasks, seconds) =
        (setting("SEED", fresh_seed()), setting("TASKS", 1_500), setting("SECONDS", 25));
    println!(
        "YARDMASTER_CHAOS_SEED={seed} YARDMASTER_CHAOS_TASKS={tasks} YARDMASTER_CHAOS_SECONDS={seconds}"
    );
    let mut dice = Dice::new(seed);
    let mut world = World::new().await;
    for service in &mut world.services {
        service.start();
    }
    wait_for_a_leader(&world).await;

    let harm = Duration::from_secs(seconds);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let watching = tokio::spawn(limits::watch(world.url("postgres"), stopped));
    let submitting = tokio::spawn(work::submit(world.url(OWNER), dice.branch(), tasks, harm.mul_f64(0.8)));
    let faults = faults::rage(&mut world, dice.branch(), Instant::now() + harm).await;
    let jobs = submitting.await.unwrap();

    let admin = world.admin().await.expect("PostgreSQL is up again");
    work::resume_all(&admin).await;
    verdict::calm(&admin, Duration::from_secs(60)).await;
    stop.send_replace(true);
    let crowd = watching.await.unwrap();
    println!("{jobs} jobs; {faults:?}; {}", verdict::figures(&admin).await);
    println!("at most {} at once, {} on one node, in {} looks", crowd.all, crowd.per_node, crowd.looks);
    let mut found = verdict::contradictions(&admin).await;

    for service in &mut world.services {
        service.signal(Signal::SIGTERM);
    }
    for which in 0..world.services.len() {
        let code = world.services[which].ended(Duration::from_secs(20)).await;
        if code != Some(0) {
            found.push(format!("service {} ended with {code:?} after SIGTERM", world.services[which].name));
        }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while verdict::sessions(&admin).await > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let left = verdict::sessions(&admin).await;
    if left > 0 {
        found.push(format!("{left} sessions are left"));
    }
    if crowd.all > LIMIT || crowd.per_node > NODE_LIMIT {
        found.push(format!("the limits were exceeded: {}", crowd.witness));
    }
    assert!(
        found.is_empty(),
        "seed {seed}:\n{}\n\nthe last lines of the services:\n{}",
        found.join("\n"),
        world.logs()
    );
    // A test in which nothing happened proves nothing.
    assert!(crowd.all > LIMIT / 2 && crowd.looks > 100, "the limits were never tried: {crowd:?}");
    world.close().await;
}

async fn wait_for_a_leader(world: &World) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(admin) = world.admin().await {
            let ready = admin.query_one("SELECT count(*) FROM yardmaster.published", &[]).await;
            if ready.is_ok_and(|row| row.get::<_, i64>(0) > 0) {
                return;
            }
        }
        assert!(Instant::now() < deadline, "no service took office:\n{}", world.logs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
