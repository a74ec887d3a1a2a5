//! How a campaign's record is entered in the ledger.

use crate::domain::id::CampaignId;
use crate::store::documents::{CampaignDocument, Document, HardDocument, Phase};
use crate::store::ledger::LedgerCampaign;

/// What the ledger is told of a campaign. `version`: of the record that this is, or is about to be.
pub fn ledger_campaign(
    campaign: &CampaignId,
    document: &CampaignDocument,
    hard: &HardDocument,
    version: u64,
) -> LedgerCampaign {
    LedgerCampaign {
        campaign: campaign.clone(),
        version,
        admission: document.admission.clone(),
        phase: phase_word(hard.phase).to_owned(),
        quota: document.quota,
        total_cents: hard.packets.as_ref().map(|packets| packets.total_cents),
        hold_s: hard.hold_s,
        opens_at: document.opens_at,
        closes_at: document.closes_at,
        created_at: document.created_at,
        fingerprint: document.fingerprint.clone(),
        document: String::from_utf8_lossy(&document.encode()).into_owned(),
    }
}

/// The word of a phase in answers and in the ledger.
pub fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Filling => "filling",
        Phase::Ready => "ready",
        Phase::Closing => "closing",
        Phase::Closed => "closed",
        Phase::Removing => "removing",
        Phase::Removed => "removed",
    }
}
