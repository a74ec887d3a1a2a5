//! Claims of one pool travel together: one step with many wishes, one WAIT for all.
//!
//! A batch leaves at once when less than two are under way; what arrives meanwhile makes the next one, so batches grow
//! with the load and nobody waits for others to come. Two, because a connection whose WAIT is slow must not hold up the
//! other one (docs/FAULTS.md F18). The batch is a task of its own: a caller who hangs up takes nobody along.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::offer::Offer;
use super::pools::foreign;
use crate::domain::quota::claim::{ClaimAnswer, Wish};
use crate::domain::quota::step::{Answer, Step};
use crate::runtime::tasks::Tasks;
use crate::service::error::ServiceError;
use crate::store::error::StoreError;

/// Wishes in one step. More block the server for longer than a WAIT takes (docs/FAULTS.md F19: 64 take about 0.6 ms).
pub const BATCH_MAX: usize = 64;
const BATCHES_UNDER_WAY: u32 = 2;
/// Wishes that may wait for one pool: some seconds' worth of what a pool can serve.
const QUEUE_MAX: usize = 50_000;

type Reply = Result<ClaimAnswer, ServiceError>;

/// Wishes that wait for a pool.
#[derive(Default)]
pub struct ClaimQueue(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    wishes: VecDeque<(Wish, oneshot::Sender<Reply>)>,
    under_way: u32,
}

impl ClaimQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        // Nothing under this lock panics but a failed allocation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the pool of this shard for a unit, together with whoever else asks now.
pub async fn ask(offer: &Arc<Offer>, shard: usize, wish: Wish, tasks: &Tasks) -> Reply {
    let (reply, answered) = oneshot::channel();
    let start = {
        let mut queue = offer.queues[shard].lock();
        if queue.wishes.len() >= QUEUE_MAX {
            let text = format!("{QUEUE_MAX} claims wait for one shard");
            return Err(ServiceError::Unavailable(StoreError::Overloaded(text)));
        }
        queue.wishes.push_back((wish, reply));
        let start = queue.under_way < BATCHES_UNDER_WAY;
        queue.under_way += u32::from(start);
        start
    };
    if start {
        tasks.spawn("claims of a pool", serve(offer.clone(), shard));
    }
    let dropped = || Err(ServiceError::Unavailable(StoreError::Unavailable("the batch was dropped".into())));
    answered.await.unwrap_or_else(|_| dropped())
}

async fn serve(offer: Arc<Offer>, shard: usize) {
    loop {
        let batch: Vec<(Wish, oneshot::Sender<Reply>)> = {
            let mut queue = offer.queues[shard].lock();
            let count = queue.wishes.len().min(BATCH_MAX);
            if count == 0 {
                queue.under_way -= 1;
                return;
            }
            queue.wishes.drain(..count).collect()
        };
        let (wishes, replies): (Vec<Wish>, Vec<oneshot::Sender<Reply>>) = batch.into_iter().unzip();
        metrics::histogram!("headcount_claim_batch_wishes").record(wishes.len() as f64);
        let answers = claim(&offer, shard, wishes).await;
        // A caller that went away does not need the answer; its claim stands and is found by asking again.
        match answers {
            Ok(answers) => replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(Ok(answer)))),
            Err(error) => replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone())))),
        }
    }
}

/// One step with these wishes: an answer each.
pub async fn claim(offer: &Offer, shard: usize, wishes: Vec<Wish>) -> Result<Vec<ClaimAnswer>, ServiceError> {
    let count = wishes.len();
    match offer.pools[shard].step(Step::Claim { wishes }).await?.answer {
        Answer::Claims(answers) if answers.len() == count => {
            note_granted(offer, &answers);
            Ok(answers)
        }
        other => Err(foreign(&other)),
    }
}

pub fn note_granted(offer: &Offer, answers: &[ClaimAnswer]) {
    let granted = answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Granted(_))).count() as u64;
    offer.granted.fetch_add(granted, std::sync::atomic::Ordering::Relaxed);
}
