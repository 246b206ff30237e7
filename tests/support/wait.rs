//! Waiting for conditions.

use std::time::{Duration, Instant};

/// More than anything takes here, even on a busy machine; who waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until the condition gives a value; `None` after the deadline.
pub async fn eventually<T>(deadline: Duration, mut condition: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition().await {
            return Some(value);
        }
        if Instant::now() > end {
            return None;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until the condition holds, and fails the test with `what` after [`PATIENCE`].
#[track_caller]
pub fn until<C: AsyncFnMut() -> bool>(what: &str, mut condition: C) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let held = eventually(PATIENCE, async || condition().await.then_some(())).await;
        assert!(held.is_some(), "{place}: never came true: {what}");
    }
}
