//! Bounded waiting: a test waits for a condition, never for a time.

use std::future::Future;
use std::time::{Duration, Instant};

/// What never takes this long but in a broken broker.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within [`PATIENCE`]; `what` says what was waited for.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The future's output.
///
/// # Panics
/// When it does not come within [`PATIENCE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain: {what}"),
    }
}
