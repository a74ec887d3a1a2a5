//! Reconciling: lost pools are rebuilt where that is asked, then store and ledger are compared.

use std::sync::Arc;

use super::compare::Comparison;
use super::lost::{Loss, Mending, Progressing};
use super::mending::Mended;
use crate::domain::id::CampaignId;
use crate::service::error::ServiceError;

/// What is to be done about differences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Compare,
    /// The ledger gets what only the store has.
    Repair,
    /// Lost pools are rebuilt. `accept_loss`: also where the ledger may lack the last claims.
    FromLedger {
        accept_loss: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reconciled {
    pub mended: Mended,
    pub comparison: Comparison,
}

pub struct Reconcile {
    pub mending: Arc<Mending>,
}

impl Reconcile {
    pub async fn run(
        &self,
        campaign: &CampaignId,
        mode: Mode,
        tell: Progressing<'_>,
    ) -> Result<Reconciled, ServiceError> {
        let mended = match mode {
            Mode::Compare | Mode::Repair => Mended::default(),
            Mode::FromLedger { accept_loss } => {
                let accept = if accept_loss { Loss::Accepted } else { Loss::Nothing };
                self.mending.mend(campaign, accept, tell).await?
            }
        };
        let drain = &self.mending.drain;
        let offer = drain.offer(campaign).await?;
        let mut comparison = Comparison::default();
        for pool in &offer.pools {
            tell(format!("comparing shard {} of {}", pool.shard + 1, offer.pools.len()));
            drain.compare(&offer, pool, mode == Mode::Repair, &mut comparison).await?;
        }
        Ok(Reconciled { mended, comparison })
    }
}
