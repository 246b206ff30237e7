//! The faults: one after the other at random moments, each survived before the next.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::dice::Dice;
use crate::world::World;

/// Does harm until the time is over; then both services and the server are up again.
pub async fn rage(world: &mut World, mut dice: Dice, over: tokio::time::Instant) -> Vec<(&'static str, u32)> {
    let mut done: Vec<(&'static str, u32)> = Vec::new();
    while tokio::time::Instant::now() < over {
        tokio::time::sleep(Duration::from_millis(50 + dice.below(500))).await;
        let which = usize::try_from(dice.below(2)).unwrap();
        let name = match dice.below(100) {
            0..30 => kill_service(world, which, &mut dice).await,
            30..50 => end_backend(world, "application_name ~ '^yardmaster [0-9]'").await,
            50..65 => end_backend(world, "application_name ~ '^yardmaster [a-z]'").await,
            65..73 => end_backend(world, "usename IN ('alice', 'yard_service')").await,
            73..82 => stop_service(world, which, &mut dice).await,
            82..94 => pause_service(world, which, &mut dice).await,
            _ => {
                world.crash_postgres().await;
                "PostgreSQL crashed"
            }
        };
        match done.iter_mut().find(|(n, _)| *n == name) {
            Some((_, times)) => *times += 1,
            None => done.push((name, 1)),
        }
    }
    for service in &mut world.services {
        service.start();
    }
    done
}

async fn kill_service(world: &mut World, which: usize, dice: &mut Dice) -> &'static str {
    let service = &mut world.services[which];
    service.kill();
    if dice.percent(50) {
        tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
    }
    service.start();
    "service killed"
}

async fn stop_service(world: &mut World, which: usize, dice: &mut Dice) -> &'static str {
    let service = &mut world.services[which];
    service.signal(Signal::SIGTERM);
    if dice.percent(30) {
        service.signal(Signal::SIGTERM);
    }
    // Grace, the end of sessions and the release of the office; more while PostgreSQL is away.
    let code = service.ended(Duration::from_secs(20)).await;
    let name = service.name;
    assert_eq!(code, Some(0), "SIGTERM did not end service {name} in order\n{}", world.logs());
    world.services[which].start();
    "service terminated"
}

async fn pause_service(world: &mut World, which: usize, dice: &mut Dice) -> &'static str {
    world.services[which].signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(200 + dice.below(3_000))).await;
    world.services[which].signal(Signal::SIGCONT);
    "service paused"
}

/// Ends one backend, chosen by chance.
async fn end_backend(world: &World, which: &str) -> &'static str {
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {which} AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
    );
    if let Some(admin) = world.admin().await {
        // The server may go away meanwhile: then it ended them all.
        let _ = admin.batch_execute(&end).await;
    }
    "backend ended"
}
