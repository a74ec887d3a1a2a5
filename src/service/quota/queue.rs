//! Claims of one pool travel together: one step with many wishes, one WAIT for all.
//!
//! A batch leaves at once when none is under way; what arrives meanwhile makes the next one, so batches grow with the load
//! and nobody waits for others to come. One that is slow (a WAIT may take 0.1 s, docs/FAULTS.md F18) is not waited for by
//! the next one. The batch is a task of its own: a caller who hangs up takes nobody along.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::offer::Offer;
use super::pools::foreign;
use super::wishes::{Reply, Waiter};
use crate::domain::quota::claim::{ClaimAnswer, Wish};
use crate::domain::quota::step::{Answer, Step};
use crate::runtime::tasks::Tasks;
use crate::service::error::ServiceError;
use crate::store::error::StoreError;

/// Wishes in one step. More block the server for longer than a WAIT takes (docs/FAULTS.md F19: 64 take about 0.6 ms).
pub const BATCH_MAX: usize = 64;
/// Batches of a pool under way at one time, the slow ones included.
const BATCHES_UNDER_WAY: u32 = 4;
/// A round trip with its replication takes a millisecond or two; a batch that takes longer than this is slow.
const SLOW: Duration = Duration::from_millis(20);
/// Wishes that may wait for one pool: some seconds' worth of what a pool can serve.
const QUEUE_MAX: usize = 50_000;

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
        let start = queue.under_way == queue.slow && queue.under_way < BATCHES_UNDER_WAY;
        queue.under_way += u32::from(start);
        start
    };
    if start {
        tasks.spawn("claims of a pool", serve(offer.clone(), shard, tasks.clone()));
    }
    let dropped = || Err(ServiceError::Unavailable(StoreError::Unavailable("the batch was dropped".into())));
    answered.await.unwrap_or_else(|_| dropped())
}

/// Serves a pool's queue until it is empty. Boxed, because it starts another one of its own kind.
fn serve(offer: Arc<Offer>, shard: usize, tasks: Tasks) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(drain(offer, shard, tasks))
}

async fn drain(offer: Arc<Offer>, shard: usize, tasks: Tasks) {
    loop {
        let batch: Vec<Waiter> = {
            let mut queue = offer.queues[shard].lock();
            let count = queue.wishes.len().min(BATCH_MAX);
            if count == 0 {
                queue.under_way -= 1;
                return;
            }
            queue.wishes.drain(..count).collect()
        };
        metrics::histogram!("headcount_claim_batch_wishes").record(batch.len() as f64);
        let mut sending = std::pin::pin!(send(&offer, shard, batch));
        if timeout(SLOW, &mut sending).await.is_ok() {
            continue;
        }
        let replaced = {
            let mut queue = offer.queues[shard].lock();
            queue.slow += 1;
            let replaced = queue.under_way < BATCHES_UNDER_WAY && !queue.wishes.is_empty();
            queue.under_way += u32::from(replaced);
            replaced
        };
        if replaced {
            tasks.spawn("claims behind a slow batch", serve(offer.clone(), shard, tasks.clone()));
        }
        sending.await;
        offer.queues[shard].lock().slow -= 1;
    }
}

async fn send(offer: &Offer, shard: usize, batch: Vec<Waiter>) {
    let (wishes, replies): (Vec<Wish>, Vec<oneshot::Sender<Reply>>) = batch.into_iter().unzip();
    let answers = claim(offer, shard, wishes).await;
    // A caller that went away does not need the answer; its claim stands and is found by asking again.
    match answers {
        Ok(answers) => replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(Ok(answer)))),
        Err(error) => replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone())))),
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
