//! Tasks that somebody awaits: every background task is started here, hears the same stop signal, and is waited for.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts, counts and ends tasks. Clones share one set.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task. A loop must end soon after `stop_signal` is cancelled; a panic in it is logged, not lost.
    pub fn spawn<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        #[allow(clippy::disallowed_methods, reason = "the one place that spawns")]
        let running = tokio::spawn(self.tracker.track_future(task));
        if cfg!(debug_assertions) {
            tracing::trace!(task = name, id = %running.id(), "task started");
        }
    }

    /// Cancelled when the process is to stop.
    pub fn stop_signal(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Tells every task to stop and waits for them. False: some were still running when the time was over.
    pub async fn finish(&self, within: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(within, self.tracker.wait()).await.is_ok()
    }
}
