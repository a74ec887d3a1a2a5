//! Wishes that wait for a pool of this campaign.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::domain::quota::claim::{ClaimAnswer, Wish};
use crate::service::error::ServiceError;

pub type Reply = Result<ClaimAnswer, ServiceError>;
pub type Waiter = (Wish, oneshot::Sender<Reply>);

/// Wishes that wait for a pool.
#[derive(Default)]
pub struct ClaimQueue(Mutex<Queue>);

#[derive(Default)]
pub struct Queue {
    pub wishes: VecDeque<Waiter>,
    pub under_way: u32,
    /// Of these, batches that nobody waits for any more.
    pub slow: u32,
}

impl ClaimQueue {
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        // Nothing under this lock panics but a failed allocation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
