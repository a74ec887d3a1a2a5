//! Starts what the tests need, on free loopback ports, and cleans up whatever happens.

use std::time::Duration;

/// How long a test waits for what must happen: far longer than it takes on a busy machine, since it is only spent when
/// something is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// Waits until a condition holds; panics with what was waited for if it does not.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(POLL).await;
    }
}
