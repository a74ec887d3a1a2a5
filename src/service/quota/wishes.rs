//! Wishes that wait for a pool of this campaign.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::domain::quota::claim::{ClaimAnswer, Wish};
use crate::runtime::batches::{Batches, Pace};
use crate::service::error::ServiceError;

pub type Reply = Result<ClaimAnswer, ServiceError>;
pub type Waiter = (Wish, oneshot::Sender<Reply>);
pub type ClaimQueue = Batches<Waiter>;

pub const PACE: Pace = Pace {
    // More block the server for longer than a WAIT takes (docs/FAULTS.md F19: 64 take about 0.6 ms).
    batch_max: 64,
    // Some seconds' worth of what a pool can serve.
    waiting_max: 50_000,
    // A round trip with its replication takes a millisecond or two.
    slow: Duration::from_millis(20),
    under_way_max: 4,
};
