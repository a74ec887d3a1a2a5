//! The port of pools on Redis: seven keys in one slot for each pool, and a script for each step (lua/pool_prelude.lua).
//!
//! Every step goes out with a WAIT behind it, also one that only looked: what it saw may be another process's step that
//! is not replicated yet (docs/FAULTS.md A1, A3). All of them may be repeated (`pool_steps.rs`), so the router does so
//! on doubt.

use std::sync::Arc;
use std::time::Duration;

use super::claimants;
use super::confirm::{Confirm, Confirmed, touch};
use super::convoy::Convoys;
use super::inventory;
use super::keys::{self, Key, STATE};
use super::pool_answers::stepped;
use super::pool_steps::command;
use super::reply::{Command, Reply, info_field};
use super::router::Router;
use super::scripts;
use super::settings::Role;
use crate::domain::id::CampaignId;
use crate::domain::quota::inventory::Inventory;
use crate::domain::quota::marks::Floor;
use crate::domain::quota::step::{Step, Stepped};
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::pools::{Claimants, ClaimantsMark, ClaimsPage, Duty, PoolAddress, Pools, Safety};

pub struct RedisPools {
    router: Arc<Router>,
    confirm: Arc<Confirm>,
    convoys: Arc<Convoys>,
}

impl RedisPools {
    pub fn new(router: Arc<Router>, confirm: Arc<Confirm>, convoys: Arc<Convoys>) -> Self {
        Self { router, confirm, convoys }
    }

    async fn take(&self, pool: &PoolAddress, floor: Floor, step: &Step) -> Result<Stepped, StoreError> {
        let keys = keys::pool(pool);
        let script = command(&keys, floor, step)?;
        stepped(step, self.confirmed(&keys[STATE], script).await?)
    }

    async fn forget(&self, pool: &PoolAddress) -> Result<(), StoreError> {
        let [a, b, c, d, e, f, g] = keys::pool(pool);
        let keys = [a, b, c, d, e, f, g, keys::pool_claimants(pool), keys::pool_claimants_lease(pool)];
        self.confirmed(&keys[STATE], scripts::POOL_REMOVE.call(keys.iter())).await.map(drop)
    }

    async fn confirmed(&self, state: &Key, script: Command) -> Result<Reply, StoreError> {
        if let Some(reply) = self.convoys.take(state.slot, script.clone()).await {
            self.confirm.probe(state.slot, &touch(state, "touch"));
            return Ok(reply);
        }
        let touch = touch(state, "touch");
        let confirmed = Confirmed { role: Role::Pool, slot: state.slot, script, touch, repeatable: true };
        self.confirm.run(confirmed).await
    }

    async fn hold(&self, campaign: &CampaignId, duty: Duty, holder: &str, hold: Duration) -> Result<bool, StoreError> {
        let key = keys::duty_lease(campaign, duty);
        let script = scripts::LEASE_HOLD.call([&key].into_iter()).arg(holder.to_owned()).number(hold.as_millis());
        Ok(self.router.ask(key.slot, script).await?.number()? == 1)
    }

    /// A full server that may evict would evict units and claims (docs/FAULTS.md A20). Keys of pools have no expiry, so
    /// that a policy for keys that have one does not touch them.
    async fn eviction(&self) -> Result<Option<String>, StoreError> {
        let view = self.router.topology.view().clone();
        if view.primaries().next().is_none() {
            return Err(StoreError::Unavailable("no node is known yet".into()));
        }
        for node in view.primaries() {
            let ask = [Command::new("INFO").arg("memory")];
            let reply = node.pipeline(Role::Fast, &ask, false, self.router.command_timeout).await.pop();
            let text = match reply {
                Some(reply) => reply?.into_text(),
                None => None,
            };
            let policy = text.as_deref().and_then(|text| info_field(text, "maxmemory_policy"));
            if let Some(policy) = policy.filter(|policy| *policy != "noeviction" && !policy.starts_with("volatile-")) {
                return Ok(Some(format!(
                    "maxmemory-policy of {} is {policy}: a full server would throw units and claims away; set noeviction",
                    node.address
                )));
            }
        }
        Ok(None)
    }
}

impl Pools for RedisPools {
    fn step<'a>(&'a self, pool: &'a PoolAddress, floor: Floor, step: Step) -> StoreFuture<'a, Stepped> {
        Box::pin(async move { self.take(pool, floor, &step).await })
    }

    fn claims<'a>(
        &'a self,
        pool: &'a PoolAddress,
        cursor: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, ClaimsPage> {
        Box::pin(claimants::claims(&self.router, pool, cursor, limit))
    }

    fn claimants<'a>(&'a self, pool: &'a PoolAddress, since: Option<&'a ClaimantsMark>) -> StoreFuture<'a, Claimants> {
        Box::pin(claimants::claimants(&self.router, pool, since))
    }

    fn remove<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, ()> {
        Box::pin(self.forget(pool))
    }

    fn lease<'a>(
        &'a self,
        campaign: &'a CampaignId,
        duty: Duty,
        holder: &'a str,
        hold: Duration,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.hold(campaign, duty, holder, hold))
    }

    fn inventory<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, Option<Inventory>> {
        Box::pin(inventory::inventory(&self.router, pool))
    }

    fn obstacle(&self) -> StoreFuture<'_, Option<String>> {
        Box::pin(self.eviction())
    }

    fn safety(&self, pool: &PoolAddress) -> Safety {
        self.confirm.safety(keys::pool(pool)[STATE].slot)
    }
}
