//! Claiming.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;

use super::user_by_ingress;
use crate::api::problem::{Kind, Problem, ProblemBody};
use crate::api::query::{Known, Query};
use crate::api::request::ClaimBody;
use crate::api::response::{ClaimAnswer, json_no_store};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::domain::id::CampaignId;
use crate::service::claim::SoftClaim;
use crate::service::error::{OpeningHours, ServiceError};
use crate::service::quota::claims::{Claim, HardClaim};

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Claims a place for a user.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/claims",
    tag = "claims",
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("Idempotency-Key" = Option<String>, Header, description = "Up to 255 visible ASCII characters, quoted or not; \
            of one user and campaign. Repeating the claim with it gives the same 201. Ignored by soft campaigns")
    ),
    request_body = ClaimBody,
    responses(
        (status = 200, description = "The user has this claim already", body = ClaimAnswer),
        (status = 201, description = "Granted", body = ClaimAnswer),
        (status = 404, description = "No such campaign", body = ProblemBody),
        (status = 409, description = "`outcome` is sold_out, not_open, paused, closed, ended or voided", body = ProblemBody),
        (status = 422, description = "A field breaks a rule", body = ProblemBody),
        (status = 503, description = "Not known now; ask again", body = ProblemBody)
    )
)]
pub async fn claim(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let in_path = campaign_in_path(&head.uri)?;
    let by_ingress = user_by_ingress(&app, &head.headers)?;
    let key = idempotency_key(&head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let no_body_needed = bytes.is_empty() && by_ingress.is_some() && in_path.is_some();
    let wish = if no_body_needed { ClaimBody::default() } else { ClaimBody::parse(&bytes)? };
    let (campaign, user) = (wish.campaign(in_path)?, wish.user(by_ingress)?);
    match app.hard.claim(&campaign, user, key, app.config.claim_wait).await {
        Err(ServiceError::NotKeptBySoft) => {}
        claimed => return hard(&campaign, user.as_str(), claimed?, app.clock.now()),
    }
    match app.claims.claim(&campaign, user).await? {
        SoftClaim::Granted { claimed_at, remaining, stale } => {
            let (campaign, user) = (campaign.as_str(), user.as_str());
            let answer = ClaimAnswer {
                campaign,
                user: Some(user),
                claim_id: None,
                outcome: Some("granted"),
                state: None,
                unit: None,
                cents: None,
                claimed_at,
                deadline: None,
                remaining: Some(remaining),
                stale: Some(stale),
            };
            Ok(json_no_store(StatusCode::CREATED, &answer))
        }
        SoftClaim::SoldOut { stale } => {
            let detail = "No place is left; a soft campaign does not get places back.";
            Err(Problem::new(Kind::SoldOut, detail).outcome("sold_out").stale(stale))
        }
        SoftClaim::NotOpen(hours) => Err(not_open(hours, app.clock.now())),
        SoftClaim::Paused(hours) => Err(paused(hours)),
        SoftClaim::Closed(hours) => Err(closed(hours)),
    }
}

/// The answer to a claim on a hard campaign.
fn hard(campaign: &CampaignId, user: &str, claim: HardClaim, now: Timestamp) -> Result<Response, Problem> {
    let (status, outcome, claim, remaining) = match claim {
        HardClaim::Granted { claim, remaining } => (StatusCode::CREATED, "granted", claim, remaining),
        HardClaim::Already { claim, remaining } => (StatusCode::OK, "already", claim, remaining),
        refused => return Err(refusal_of(&refused, now)),
    };
    let answer = ClaimAnswer { user: Some(user), outcome: Some(outcome), remaining, ..answer(campaign, &claim) };
    Ok(json_no_store(status, &answer))
}

/// What a refused claim is told.
pub fn refusal_of(claim: &HardClaim, now: Timestamp) -> Problem {
    match claim {
        HardClaim::Ended(claim) => {
            let detail = "What this Idempotency-Key claimed has ended; claim with another key for another unit.";
            Problem::new(Kind::ClaimEnded, detail).outcome("ended").state(claim.record.state.as_str())
        }
        HardClaim::Voided(_) => {
            let detail = "An operator took the unit away; the user cannot claim again.";
            Problem::new(Kind::ClaimVoided, detail).outcome("voided").state("voided")
        }
        HardClaim::SoldOut { may_return: true } => {
            let detail = "No unit is left now; units that are held may come back.";
            Problem::new(Kind::SoldOut, detail).outcome("sold_out").may_return(true)
        }
        HardClaim::SoldOut { may_return: false } => {
            Problem::new(Kind::SoldOut, "No unit is left.").outcome("sold_out").may_return(false)
        }
        HardClaim::NotOpen(hours) => not_open(*hours, now),
        HardClaim::Paused(hours) => paused(*hours),
        HardClaim::Closed(hours) => closed(*hours),
        HardClaim::Granted { .. } | HardClaim::Already { .. } => {
            Problem::new(Kind::Conflict, "The user has this claim.").outcome("already")
        }
    }
}

pub fn answer<'a>(campaign: &'a CampaignId, claim: &Claim) -> ClaimAnswer<'a> {
    ClaimAnswer::of(campaign.as_str(), claim)
}

fn not_open(hours: OpeningHours, now: Timestamp) -> Problem {
    let detail = "Claim again after the opening: Retry-After counts the seconds.";
    refusal(Kind::NotOpen, "not_open", detail, hours).retry_after_s(seconds_until(hours.opens_at, now))
}

fn paused(hours: OpeningHours) -> Problem {
    refusal(Kind::Paused, "paused", "The campaign is paused; its remaining says when it goes on.", hours)
}

fn closed(hours: OpeningHours) -> Problem {
    refusal(Kind::Closed, "closed", "The campaign is over.", hours)
}

fn refusal(kind: Kind, outcome: &'static str, detail: &'static str, hours: OpeningHours) -> Problem {
    Problem::new(kind, detail).outcome(outcome).hours(hours.opens_at, hours.closes_at)
}

/// Whole seconds, rounded up, at least one: whoever waits so long is not too early.
fn seconds_until(opening: Timestamp, now: Timestamp) -> u64 {
    let wait = opening.duration_since(now);
    let begun = i64::from(wait.subsec_nanos() > 0);
    u64::try_from(wait.as_secs() + begun).unwrap_or(0).max(1)
}

/// The key under which a claim may be repeated. The draft standard wants a quoted string; most clients send it bare.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return if headers.contains_key(IDEMPOTENCY_KEY) {
            Err(Problem::field(Kind::InvalidField, IDEMPOTENCY_KEY, "must be given only once"))
        } else {
            Ok(None)
        };
    };
    let text = value.to_str().unwrap_or("").trim();
    let key = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let is_good = (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) && !key.contains('"');
    if is_good {
        return Ok(Some(key));
    }
    let rule = "must be 1 to 255 visible ASCII characters, quoted or not";
    Err(Problem::field(Kind::InvalidField, IDEMPOTENCY_KEY, rule))
}

/// The campaign of a call on claims; None where the body names it.
pub fn campaign_in_path(uri: &Uri) -> Result<Option<CampaignId>, Problem> {
    if is_campaign_in_path(uri) {
        return id::campaign(uri, Known::default()).map(|(campaign, _)| Some(campaign));
    }
    Query::parse(uri, Known::default(), None).map(|_| None)
}

pub fn is_campaign_in_path(uri: &Uri) -> bool {
    uri.path().starts_with("/v1/campaigns/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_quoted_or_not() {
        let of = |text: &str| HeaderMap::from_iter([(IDEMPOTENCY_KEY.parse().unwrap(), text.parse().unwrap())]);
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
        assert_eq!(idempotency_key(&of("abc")).unwrap(), Some("abc"));
        assert_eq!(idempotency_key(&of("\"abc\"")).unwrap(), Some("abc"));
        for bad in ["", "\"\"", "a\"b", &"x".repeat(256)] {
            assert_eq!(idempotency_key(&of(bad)).unwrap_err().named().1, IDEMPOTENCY_KEY, "{bad}");
        }
    }

    #[test]
    fn whoever_waits_for_the_opening_is_not_too_early() {
        let opening: Timestamp = "2026-11-11T00:00:00Z".parse().unwrap();
        let wait = |now: &str| seconds_until(opening, now.parse().unwrap());
        assert_eq!(wait("2026-11-10T23:59:57.9Z"), 3);
        assert_eq!(wait("2026-11-10T23:59:58Z"), 2);
        assert_eq!(wait("2026-11-10T23:59:59.999Z"), 1);
        assert_eq!(wait("2026-11-11T00:00:00Z"), 1);
        assert_eq!(wait("2026-11-11T00:00:09Z"), 1);
    }
}
