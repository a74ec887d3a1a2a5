//! How nodes are reached, and who they say they are.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::runtime::tasks::Tasks;

/// Which of a node's connections a call takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Fast,
    Bulk,
    /// Calls that end in WAIT.
    Confirm,
    /// Steps of pools. They end in WAIT.
    Pool,
    /// Who owns which slots; nothing a caller waits for.
    Poll,
}

/// How nodes are reached. One value serves all nodes of a store.
pub struct NodeSettings {
    pub user: Option<String>,
    pub password: Option<String>,
    pub tls: Option<Arc<rustls::ClientConfig>>,
    pub connect_timeout: Duration,
    /// Calls under way at once, for each role.
    pub calls: usize,
    pub tasks: Tasks,
    /// Told when a node is reached again, or was restarted.
    pub changes: watch::Sender<u64>,
}

/// Who a server says it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its id in the cluster; None: it is not part of one.
    pub cluster_id: Option<String>,
    /// Another one after each restart.
    pub run_id: String,
}
