//! Transfers: users whose shard has run dry wait here while stock is brought to them.
//!
//! One task per dry shard and process looks for a pool with stock and takes debit, credit and ack, each replicated before
//! the next; the credit grants the waiting users in the same step, so that nobody takes the units away again. The task is
//! nobody's: a caller who hangs up does not stop it (docs/FAULTS.md A17). What it leaves behind (a crash, an unreachable
//! pool) anybody may go on with: `upkeep.rs` does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::memory::Verdict;
use super::offer::Offer;
use super::pools::foreign;
use super::queue::{claim, note_granted};
use super::reading::Survey;
use super::sold_out;
use super::waiting::{Brought, Waiter};
use crate::domain::quota::claim::{ClaimAnswer, Wish};
use crate::domain::quota::marks::Parcel;
use crate::domain::quota::step::{Answer, CreditAnswer, DebitAnswer, Step};
use crate::runtime::tasks::Tasks;
use crate::service::error::ServiceError;

/// Between two looks at all pools while stock is on its way somewhere: a transfer takes a few milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Waits until stock is brought to this shard, or none is left anywhere.
pub async fn wait(offer: &Arc<Offer>, shard: usize, wish: Wish, tasks: &Tasks) -> Brought {
    let (reply, brought) = oneshot::channel();
    let start = {
        let mut room = offer.waiting[shard].lock();
        room.users.push(Waiter { wish, reply });
        !std::mem::replace(&mut room.served, true)
    };
    if start {
        tasks.spawn("bring stock to a shard", serve(offer.clone(), shard));
    }
    brought.await.unwrap_or(Brought::Failed(ServiceError::StockOnItsWay))
}

/// Serves a shard's waiting users until none is left.
async fn serve(offer: Arc<Offer>, shard: usize) {
    loop {
        {
            let mut room = offer.waiting[shard].lock();
            room.users.retain(|waiter| !waiter.reply.is_closed());
            if room.users.is_empty() {
                room.served = false;
                return;
            }
        }
        match bring(&offer, shard).await {
            Ok(true) => {}
            Ok(false) => tokio::time::sleep(LOOK_AGAIN).await,
            Err(error) => offer.waiting[shard].tell_all(&Brought::Failed(error)),
        }
    }
}

/// One round: false if there was nothing to bring yet.
async fn bring(offer: &Arc<Offer>, shard: usize) -> Result<bool, ServiceError> {
    if let Some(survey) = offer.surveys.last() {
        for donor in donors(&survey, shard) {
            if fetch(offer, donor, shard).await? {
                return Ok(true);
            }
        }
    }
    match sold_out::check(offer, LOOK_AGAIN).await {
        Verdict::SoldOut { may_return } => {
            let waiting = &offer.waiting[shard];
            waiting.tell_strangers(may_return, |user| offer.claimants.may_contain(shard, user));
            // Whoever is left has claimed before: their shard knows whether they hold a unit.
            ask_again(offer, shard, Some(may_return)).await?;
            Ok(true)
        }
        Verdict::Unknown(error) => Err(error),
        Verdict::NotSoldOut => {
            // Stock may have come home by itself: another process's parcel, or units that have cooled.
            let survey = offer.surveys.last();
            if survey.as_ref().is_some_and(|survey| has_stock_at(survey, shard)) {
                return ask_again(offer, shard, None).await;
            }
            Ok(survey.is_some_and(|survey| donors(&survey, shard).next().is_some()))
        }
    }
}

/// Asks the shard itself for the waiting users; true if any was served. `sold_out`: whoever gets nothing there is told
/// so, and whether units may return.
async fn ask_again(offer: &Offer, shard: usize, sold_out: Option<bool>) -> Result<bool, ServiceError> {
    let wishes = offer.waiting[shard].wishes();
    if wishes.is_empty() {
        return Ok(true);
    }
    let answers = claim(offer, shard, wishes.clone()).await?;
    let served = answers.iter().any(|answer| *answer != ClaimAnswer::Dry);
    offer.waiting[shard].tell(&wishes, answers, sold_out);
    Ok(served)
}

fn has_stock_at(survey: &Survey, shard: usize) -> bool {
    survey.pools.get(shard).is_some_and(|pool| pool.as_ref().is_ok_and(|pool| pool.reading.avail > 0))
}

/// The pools to ask, as the survey has it: first who has a parcel for this shard on its way, then the fullest.
fn donors(survey: &Survey, home: usize) -> impl Iterator<Item = usize> + use<> {
    let mut donors: Vec<(bool, u64, usize)> = survey
        .pools
        .iter()
        .enumerate()
        .filter(|(shard, _)| *shard != home)
        .filter_map(|(shard, pool)| Some((shard, &pool.as_ref().ok()?.reading)))
        .map(|(shard, pool)| (pool.out.iter().any(|(to, _)| usize::from(*to) == home), pool.avail, shard))
        .filter(|(sent, avail, _)| *sent || *avail > 0)
        .collect();
    donors.sort_unstable_by_key(|&(sent, avail, _)| std::cmp::Reverse((sent, avail)));
    donors.into_iter().map(|(_, _, shard)| shard)
}

/// Brings what `donor` can spare to the waiting users of `home`. False: it has none.
async fn fetch(offer: &Arc<Offer>, donor: usize, home: usize) -> Result<bool, ServiceError> {
    let wishes = offer.waiting[home].wishes();
    if wishes.is_empty() {
        return Ok(true);
    }
    let (home_shard, want) = (offer.pools[home].shard, wishes.len() as u32);
    let parcel = match offer.pools[donor].step(Step::Debit { home: home_shard, want }).await {
        Ok(stepped) => match stepped.answer {
            Answer::Debit(DebitAnswer::New(parcel) | DebitAnswer::Open(parcel)) => parcel,
            Answer::Debit(DebitAnswer::None | DebitAnswer::Closing) => return Ok(false),
            other => return Err(foreign(&other)),
        },
        // Another donor may answer; whether anything is left is the check's to say.
        Err(error) => {
            tracing::debug!(%error, donor, "a pool gives nothing now");
            return Ok(false);
        }
    };
    deliver(offer, donor, home, parcel, &wishes).await?;
    Ok(true)
}

/// Credit and ack of a parcel, with these users to serve.
pub async fn deliver(
    offer: &Arc<Offer>,
    donor: usize,
    home: usize,
    parcel: Parcel,
    wishes: &[Wish],
) -> Result<(), ServiceError> {
    let (donor_shard, home_shard) = (offer.pools[donor].shard, offer.pools[home].shard);
    let credit = Step::Credit { donor: donor_shard, parcel: parcel.clone(), wishes: wishes.to_vec() };
    let (how, answers) = match offer.pools[home].step(credit).await?.answer {
        Answer::Credit(how, answers) => (how, answers),
        other => return Err(foreign(&other)),
    };
    if how == CreditAnswer::Conflict {
        tracing::error!(
            campaign = offer.campaign.as_str(),
            donor,
            home,
            seq = parcel.seq,
            "a parcel came in with other units than one of the same number: a pool lost something; nothing is acknowledged"
        );
        return Err(ServiceError::PoolLost { shard: donor_shard, fenced: false });
    }
    metrics::counter!("headcount_transferred_units_total").increment(parcel.units.len() as u64);
    note_granted(offer, &answers);
    offer.waiting[home].tell(wishes, answers, None);
    // The parcel is in; an ack that fails is made up for by whoever comes next.
    if let Err(error) = offer.pools[donor].step(Step::Ack { home: home_shard, parcel }).await {
        tracing::debug!(%error, donor, home, "a parcel arrived and is not acknowledged yet");
    }
    Ok(())
}
