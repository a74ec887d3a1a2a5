//! The listeners' tasks, and their common end.

use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::server::{ServerConfig, serve};
use crate::runtime::tasks::Tasks;

/// All listeners of a process.
pub struct Listeners {
    serving: Tasks,
    stop: CancellationToken,
    /// For what a listener spawns: connections.
    tasks: Tasks,
}

impl Listeners {
    pub fn new(tasks: Tasks) -> Self {
        Self { serving: Tasks::new(), stop: CancellationToken::new(), tasks }
    }

    pub fn start(&self, name: &'static str, listener: TcpListener, router: Router, config: ServerConfig) {
        let (tasks, stop) = (self.tasks.clone(), self.stop.clone());
        self.serving.spawn("serve", async move { serve(name, listener, router, config, &tasks, stop).await });
    }

    /// Accepts nothing more, and lets requests under way end. False: some did not end in time and are cut off.
    pub async fn close(&self, within: Duration) -> bool {
        self.stop.cancel();
        self.serving.finish(within).await
    }
}
