//! The only map from a service's error to an answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::problem::{Kind, Problem};
use crate::service::error::ServiceError;
use crate::store::error::StoreError;

/// A store that is down is most often back within a second (a failover takes a few), and each wait is short enough
/// for a person who looks at a spinning wheel.
const STORE_RETRY_S: u64 = 1;
/// A shard that lost data waits for a person.
const LOST_RETRY_S: u64 = 30;

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Invalid { field, rule } => Problem::field(Kind::InvalidField, field, rule),
            ServiceError::NotInThisVersion { field, hint } => not_in_this_version(field, hint),
            ServiceError::NoCampaign => Problem::new(
                Kind::NoSuchCampaign,
                "Check the campaign's id, or create it with PUT /v1/campaigns/{id} on the admin listener.",
            ),
            ServiceError::NoClaim
            | ServiceError::NotKeptBySoft
            | ServiceError::NotSoft
            | ServiceError::NotPackets
            | ServiceError::Preparing
            | ServiceError::StockOnItsWay
            | ServiceError::Unconfirmed(_)
            | ServiceError::PoolAdmitting
            | ServiceError::PoolFrozen
            | ServiceError::PoolLost { .. } => of_claims(&error),
            ServiceError::Conflict(what) => Problem::new(Kind::Conflict, what),
            ServiceError::VersionMismatch { present } => Problem::field_with_detail(
                Kind::VersionMismatch,
                "If-Match",
                format!("must be \"{present}\", the version that stands"),
                "The record has changed since it was read: read it again and repeat the change on what it is now.",
            ),
            ServiceError::BufferFull => Problem::new(
                Kind::BufferFull,
                "Nothing of this request was counted; send it again after the time in Retry-After.",
            )
            .retry_after_s(jittered_s()),
            ServiceError::NoReading(cause) => Problem::new(
                Kind::NoReading,
                format!("The store does not answer ({}) and no earlier count is known here; ask again.", word(&cause)),
            )
            .retry_after_s(STORE_RETRY_S),
            ServiceError::Unavailable(cause) => unavailable(&cause),
            ServiceError::ReadingTooOld { max_age_ms } => Problem::new(
                Kind::ReadingTooOld,
                format!(
                    "Nobody is admitted on a reading older than {max_age_ms} ms, and nothing was consumed; ask again."
                ),
            )
            .retry_after_s(STORE_RETRY_S),
            ServiceError::NextReading { wait_ms } => Problem::new(
                Kind::NextReading,
                "This process has given out its share of the places that the last reading showed; ask again.",
            )
            .retry_after_s(wait_ms.div_ceil(1000).max(1)),
            ServiceError::Ledger(cause) => Problem::new(
                Kind::LedgerUnavailable,
                format!(
                    "The ledger's database does not answer ({}). A campaign opens by itself once it does; \
                     ask again.",
                    word(&cause)
                ),
            )
            .retry_after_s(STORE_RETRY_S),
            ServiceError::NoLedger => Problem::new(
                Kind::NoLedger,
                "Give the process a database for the ledger (docs/LEDGER.md), and start it again.",
            ),
            ServiceError::OtherHashKey { mine, theirs } => other_hash_key(&mine, &theirs),
            ServiceError::Refused(cause) => refused(&cause),
        }
    }
}

/// What exact admission says instead of an answer.
fn of_claims(error: &ServiceError) -> Problem {
    match error {
        ServiceError::NoClaim => Problem::new(
            Kind::NoSuchClaim,
            "Check the claim id; a user who claims again after giving a unit back has a new one.",
        ),
        ServiceError::NotKeptBySoft => Problem::new(
            Kind::NotKeptBySoft,
            "A soft campaign counts claimants without keeping who they are; use admission `hard` where claims are \
             looked up.",
        ),
        ServiceError::NotPackets => Problem::new(Kind::Conflict, "The campaign's units are no packets."),
        ServiceError::NotSoft => Problem::new(Kind::Conflict, "The campaign is not a soft one."),
        ServiceError::Preparing => {
            let detail = "Its stock is being laid out; claim again in a moment.";
            Problem::new(Kind::CampaignPreparing, detail).retry_after_s(STORE_RETRY_S)
        }
        ServiceError::StockOnItsWay => Problem::new(
            Kind::ClaimPending,
            "Units are left, or the answer took too long; claim again: whoever has a unit by then is told `already`, \
             or `granted` under the same Idempotency-Key.",
        )
        .retry_after_s(jittered_s()),
        ServiceError::Unconfirmed(_) => Problem::new(
            Kind::ClaimUnconfirmed,
            "The store has done it, but its replicas have not confirmed it in time; ask again for the truth.",
        )
        .retry_after_s(STORE_RETRY_S),
        ServiceError::PoolAdmitting => Problem::new(
            Kind::ShardAdmitting,
            "Another server has taken this part over and serves in a second; nothing was consumed.",
        )
        .retry_after_s(jittered_s()),
        ServiceError::PoolFrozen => Problem::new(
            Kind::ShardMending,
            "A part of the campaign is being put right, and all of it keeps still for some seconds; nothing was consumed.",
        )
        .retry_after_s(jittered_s()),
        ServiceError::PoolLost { shard, fenced } => pool_lost(*shard, *fenced),
        other => Problem::new(Kind::Conflict, other.to_string()),
    }
}

/// A known word that a later version will understand.
pub fn not_in_this_version(field: impl Into<std::borrow::Cow<'static, str>>, hint: impl AsRef<str>) -> Problem {
    let field = field.into();
    let hint = hint.as_ref();
    let detail = format!("`{field}` asks for what this version does not do yet: {hint}.");
    Problem::field_with_detail(Kind::NotInThisVersion, field, "is not in this version", detail)
}

fn unavailable(cause: &StoreError) -> Problem {
    // Not logged here: in an outage that would be a line per request. The store's own breaker says when it opens.
    Problem::new(
        Kind::StoreUnavailable,
        format!("The store does not answer ({}). It is safe to send the request again.", word(cause)),
    )
    .retry_after_s(STORE_RETRY_S)
}

fn pool_lost(shard: u16, fenced: bool) -> Problem {
    static LOG: Sparsely = Sparsely::new();
    if LOG.now() {
        tracing::error!(
            shard,
            fenced,
            "a campaign's shard has lost what somebody was promised; it serves nobody until it is reconciled \
             (docs/OPERATIONS.md, \"A shard is fenced\")"
        );
    }
    let detail =
        "It serves nobody until an operator has reconciled it, so that no unit is granted twice; nothing was consumed.";
    Problem::new(Kind::ShardLost, detail).retry_after_s(LOST_RETRY_S)
}

fn other_hash_key(mine: &str, theirs: &str) -> Problem {
    static LOG: Sparsely = Sparsely::new();
    if LOG.now() {
        tracing::error!(
            fingerprint = mine,
            fingerprint_of_record = theirs,
            "refused a request: the record was written under another hash key; give all processes the same HASH_KEY"
        );
    }
    Problem::new(
        Kind::OtherHashKey,
        format!("Tell the operator: the record was written under hash key {theirs}, this process has {mine}."),
    )
}

fn refused(cause: &StoreError) -> Problem {
    static LOG: Sparsely = Sparsely::new();
    if LOG.now() {
        tracing::error!(%cause, "the store refuses a request for good");
    }
    Problem::new(
        Kind::StoreRefuses,
        format!("Tell the operator, whose log has the cause ({}). Sending it again will not help.", word(cause)),
    )
}

/// The cause in a word: its text is for logs, and may name hosts.
fn word(cause: &StoreError) -> &'static str {
    match cause {
        StoreError::Unavailable(_) => "unavailable",
        StoreError::Unconfirmed(_) => "not confirmed by its replicas",
        StoreError::Overloaded(_) => "too many calls under way",
        StoreError::Corrupt(_) => "unreadable data",
        StoreError::Refused(_) => "refused",
    }
}

/// 1 s or 2 s by turns, so that callers who were refused together do not come back together.
fn jittered_s() -> u64 {
    static TURN: AtomicU64 = AtomicU64::new(0);
    1 + TURN.fetch_add(1, Ordering::Relaxed) % 2
}

/// Lets one log line a second through, so that a fault under load does not fill the disk.
struct Sparsely(std::sync::Mutex<Option<Instant>>);

impl Sparsely {
    const fn new() -> Self {
        Self(std::sync::Mutex::new(None))
    }

    fn now(&self) -> bool {
        // Somebody else holds it: that one logs.
        let Ok(mut last) = self.0.try_lock() else { return false };
        let due = last.is_none_or(|at| at.elapsed() >= Duration::from_secs(1));
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn whoever_may_wait_is_told_how_long_and_nobody_else() {
        let store = || StoreError::Unavailable("10.0.0.7:6379 timed out".into());
        let cases = [
            (ServiceError::BufferFull, 503, true),
            (ServiceError::NoReading(store()), 503, true),
            (ServiceError::Unavailable(store()), 503, true),
            (ServiceError::ReadingTooOld { max_age_ms: 2000 }, 503, true),
            (ServiceError::NextReading { wait_ms: 1500 }, 503, true),
            (ServiceError::NoCampaign, 404, false),
            (ServiceError::Conflict("another".into()), 409, false),
            (ServiceError::VersionMismatch { present: 3 }, 412, false),
            (ServiceError::Invalid { field: "at", rule: "must lie".into() }, 422, false),
            (ServiceError::NotInThisVersion { field: "dims", hint: "later".into() }, 422, false),
            (ServiceError::OtherHashKey { mine: "a".into(), theirs: "b".into() }, 500, false),
            (ServiceError::Refused(StoreError::Refused("OOM".into())), 500, false),
        ];
        for (error, status, waits) in cases {
            let response = Problem::from(error.clone()).into_response();
            assert_eq!(response.status().as_u16(), status, "{error:?}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), waits, "{error:?}");
        }
    }

    #[test]
    fn a_stores_address_does_not_reach_clients() {
        let problem = Problem::from(ServiceError::Unavailable(StoreError::Unavailable("10.0.0.7:6379".into())));
        let body = serde_json::to_string(&problem.into_body()).unwrap();
        assert!(!body.contains("10.0.0.7"), "{body}");
    }
}
