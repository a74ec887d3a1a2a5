//! The port of pools.

use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::EmbeddedStore;
use super::format;
use super::pool_cells::PoolState;
use crate::domain::id::CampaignId;
use crate::domain::quota::claim::UserKey;
use crate::domain::quota::inventory::Inventory;
use crate::domain::quota::marks::{Floor, STEP_MAX};
use crate::domain::quota::mend::Mend;
use crate::domain::quota::pool::Pool;
use crate::domain::quota::step::{Answer, Step, Stepped};
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::pools::{Claimants, ClaimantsMark, ClaimsPage, Duty, PoolAddress, Pools, Safety};

/// So many claims are read under a pool's lock at once.
const READ_MAX: usize = 8192;

impl Pools for EmbeddedStore {
    fn step<'a>(&'a self, pool: &'a PoolAddress, floor: Floor, step: Step) -> StoreFuture<'a, Stepped> {
        Box::pin(async move {
            if step.is_too_large() {
                return Err(StoreError::Refused(format!("a step with more than {STEP_MAX} users or units")));
            }
            let text = format::pool_text(pool);
            let cell = match self.committer.pools().get(&text) {
                Some(cell) => cell,
                None if matches!(step, Step::Create { .. } | Step::Mend(Mend::Empty(_))) => {
                    self.committer.pools().create(text)
                }
                None => {
                    return Ok(Stepped { now_us: self.now_us(), at: Floor::default(), answer: Answer::Absent });
                }
            };
            // The time is told under the pool's lock: a later step never has an earlier one.
            let change = |state: &mut PoolState| state.step(&cell.text, self.now_us(), floor, step);
            self.committer.write_pool(&cell, change).await
        })
    }

    /// The cursor is the last user key of the page before, in hex.
    fn claims<'a>(
        &'a self,
        pool: &'a PoolAddress,
        cursor: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, ClaimsPage> {
        Box::pin(async move {
            let text = format::pool_text(pool);
            let Some(cell) = self.committer.pools().get(&text) else { return Ok(ClaimsPage::default()) };
            let foreign = || StoreError::Refused("this is no cursor of a page of claims".to_owned());
            let after = cursor.map(|text| format::user_of(text).ok_or_else(foreign)).transpose()?;
            let page = |state: &mut PoolState| {
                state.sound(&text)?;
                Ok((page(state.pool.as_ref(), after, limit.clamp(1, READ_MAX)), state.seen()))
            };
            self.committer.write_pool(&cell, page).await
        })
    }

    /// Walks through all claims under the pool's lock, also where few are new: some 10 ms for a million.
    fn claimants<'a>(&'a self, pool: &'a PoolAddress, since: Option<&'a ClaimantsMark>) -> StoreFuture<'a, Claimants> {
        Box::pin(async move {
            let text = format::pool_text(pool);
            let Some(cell) = self.committer.pools().get(&text) else { return Ok(claimants(None, None)) };
            let read = |state: &mut PoolState| {
                state.sound(&text)?;
                Ok((claimants(state.pool.as_ref(), since), state.seen()))
            };
            self.committer.write_pool(&cell, read).await
        })
    }

    fn remove<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let Some(cell) = self.committer.pools().get(&format::pool_text(pool)) else { return Ok(()) };
            // One commit after the other, each deletes a part; the thread goes on with it if this caller goes away.
            self.committer.write_pool(&cell, |state| Ok(((), state.doom()))).await?;
            while !self.committer.write_pool(&cell, |state| Ok((state.is_gone(), state.seen()))).await? {}
            self.committer.pools().forget(&cell);
            Ok(())
        })
    }

    fn lease<'a>(
        &'a self,
        campaign: &'a CampaignId,
        duty: Duty,
        holder: &'a str,
        hold: Duration,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move { Ok(self.answers.hold_duty(campaign, duty, holder, self.now_ms(), hold)) })
    }

    fn inventory<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, Option<Inventory>> {
        Box::pin(async move {
            let text = format::pool_text(pool);
            let Some(cell) = self.committer.pools().get(&text) else { return Ok(None) };
            let read = |state: &mut PoolState| {
                state.sound(&text)?;
                Ok((state.pool.as_ref().map(Inventory::from), state.seen()))
            };
            self.committer.write_pool(&cell, read).await
        })
    }

    fn obstacle(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    fn safety(&self, _: &PoolAddress) -> Safety {
        Safety::Safe { replicas: 0 }
    }
}

impl EmbeddedStore {
    /// The time that pools are told. Only ever later, also where the wall clock is set back: holds do not come back to
    /// life, and numbers of parcels rise.
    pub(super) fn now_us(&self) -> i64 {
        let now_us = self.clock.now().as_microsecond();
        self.told_us.fetch_max(now_us, Ordering::SeqCst).max(now_us)
    }
}

fn page(pool: Option<&Pool>, after: Option<UserKey>, limit: usize) -> ClaimsPage {
    let Some(pool) = pool else { return ClaimsPage::default() };
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rest = pool.claims.range((start, Bound::Unbounded)).map(|(user, claim)| (*user, claim.clone()));
    let claims: Vec<_> = rest.by_ref().take(limit).collect();
    let next = rest.next().and_then(|_| claims.last()).map(|(user, _)| format::user_text(*user));
    ClaimsPage { claims, next }
}

/// The place of a mark is the pool's version: who was granted since then has a claim that is newer. So has whoever only
/// confirmed or released one, which does no harm.
fn claimants(pool: Option<&Pool>, since: Option<&ClaimantsMark>) -> Claimants {
    let at = pool.map_or(Floor::default(), |pool| Floor { incarnation: pool.incarnation, ver: pool.ver });
    let place = since.filter(|mark| mark.incarnation == at.incarnation).and_then(|mark| mark.place.parse().ok());
    let since = place.filter(|place| *place <= at.ver);
    let claims = pool.iter().flat_map(|pool| &pool.claims);
    let new = claims.filter(|(_, claim)| since.is_none_or(|place| claim.ver > place));
    // While a pool is rebuilt, claims come in that are older than its version: who looks then must read all again.
    let whole = pool.is_none_or(|pool| pool.mender == 0);
    let mark = ClaimantsMark { incarnation: at.incarnation, place: at.ver.to_string() };
    let mark = if whole { mark } else { ClaimantsMark { place: String::new(), ..mark } };
    Claimants { users: new.map(|(user, _)| user.short()).collect(), all: since.is_none(), mark }
}
