//! Claims of one pool travel together: one step with many wishes, one WAIT for all. A batch leaves when the one before is
//! back, or is slow (a WAIT may take 0.1 s, docs/FAULTS.md F18).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::offer::Offer;
use super::pools::foreign;
use super::wishes::{Reply, Waiter};
use crate::domain::quota::claim::{ClaimAnswer, Wish};
use crate::domain::quota::step::{Answer, Step};
use crate::runtime::tasks::Tasks;
use crate::service::error::ServiceError;
use crate::store::error::StoreError;

/// Asks the pool of this shard for a unit, together with whoever else asks now.
pub async fn ask(offer: &Arc<Offer>, shard: usize, wish: Wish, tasks: &Tasks) -> Reply {
    let (reply, answered) = oneshot::channel();
    let sender = offer.clone();
    let send = move |batch| send(sender.clone(), shard, batch);
    if !offer.queues[shard].add((wish, reply), (tasks, "claims of a pool"), send) {
        let text = "too many claims wait for one shard".to_owned();
        return Err(ServiceError::Unavailable(StoreError::Overloaded(text)));
    }
    let dropped = || Err(ServiceError::Unavailable(StoreError::Unavailable("the batch was dropped".into())));
    answered.await.unwrap_or_else(|_| dropped())
}

async fn send(offer: Arc<Offer>, shard: usize, batch: Vec<Waiter>) {
    metrics::histogram!("headcount_claim_batch_wishes").record(batch.len() as f64);
    let (wishes, replies): (Vec<Wish>, Vec<oneshot::Sender<Reply>>) = batch.into_iter().unzip();
    let answers = claim(&offer, shard, wishes).await;
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
    offer.granted.fetch_add(granted, Ordering::Relaxed);
}
