//! The gate, for ingresses with external authorisation (nginx `auth_request`, Traefik forwardAuth, Envoy ext_authz).
//!
//! Exactly 200 admits. Anything else is 403 (or what the deployment sets), because nginx turns every status but 2xx, 401
//! and 403 into a 500; why, is in the headers. Whatever goes wrong inside denies: the answer then names it, and says
//! after how many seconds to ask again. No body is read, and every method is taken: Envoy repeats the client's, nginx and
//! Traefik send GET and name the client's in a header. OPTIONS and HEAD ask without consuming, for browsers and crawlers
//! send them unasked.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;

use super::claims::{idempotency_key, refusal_of};
use super::user_by_ingress;
use crate::api::id;
use crate::api::problem::{Kind, Problem};
use crate::api::response::NO_STORE;
use crate::api::state::AppState;
use crate::domain::id::{CampaignId, UserId};
use crate::service::claim::SoftClaim;
use crate::service::error::ServiceError;
use crate::service::quota::claims::{Claim, HardClaim};

const OUTCOME: HeaderName = HeaderName::from_static("x-headcount-outcome");
const REMAINING: HeaderName = HeaderName::from_static("x-headcount-remaining");
const UNIT: HeaderName = HeaderName::from_static("x-headcount-unit");
const CLAIM_ID: HeaderName = HeaderName::from_static("x-headcount-claim-id");

/// Where nginx (as our snippet sets it, and ingress-nginx by itself) and Traefik name the client's method.
const METHODS_NAMED: [&str; 2] = ["x-original-method", "x-forwarded-method"];

/// What the gate found.
struct Verdict {
    admitted: bool,
    outcome: &'static str,
    claim: Option<Claim>,
    remaining: Option<u64>,
    retry_after_s: Option<u64>,
}

impl Verdict {
    fn denied(outcome: &'static str) -> Self {
        Self { admitted: false, outcome, claim: None, remaining: None, retry_after_s: None }
    }

    fn of(problem: &Problem) -> Self {
        let outcome = problem.outcome_word().unwrap_or_else(|| problem.kind_word());
        Self { retry_after_s: problem.wait_s(), ..Self::denied(outcome) }
    }
}

/// Claims for the user that the ingress names, and admits who has a unit.
#[utoipa::path(
    get,
    path = "/gate/{campaign}",
    tag = "gate",
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded; what follows is ignored")),
    responses(
        (status = 200, description = "Admitted: `X-Headcount-Outcome` is granted or already"),
        (status = 403, description = "Denied: `X-Headcount-Outcome` says why; the deployment may choose another status")
    )
)]
pub async fn gate(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let consumes = !asks_only(request.method(), request.headers());
    Ok(serve(&app, "/gate/", request.uri(), request.headers(), consumes).await)
}

/// Whether the client's own method is one that must not consume. A client may forge such a header, and then has only kept
/// itself from a unit.
fn asks_only(method: &Method, headers: &HeaderMap) -> bool {
    let is_harmless = |method: &[u8]| method.eq_ignore_ascii_case(b"HEAD") || method.eq_ignore_ascii_case(b"OPTIONS");
    let mut named = METHODS_NAMED.iter().flat_map(|name| headers.get_all(*name));
    is_harmless(method.as_str().as_bytes()) || named.any(|method| is_harmless(method.as_bytes()))
}

/// Admits who has a unit, and claims none.
#[utoipa::path(
    get,
    path = "/check/{campaign}",
    tag = "gate",
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded; what follows is ignored")),
    responses(
        (status = 200, description = "The user has a live claim"),
        (status = 403, description = "The user has none, or it cannot be known now")
    )
)]
pub async fn check(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    Ok(serve(&app, "/check/", request.uri(), request.headers(), false).await)
}

async fn serve(app: &AppState, prefix: &str, uri: &Uri, headers: &HeaderMap, consumes: bool) -> Response {
    let verdict = match asked(app, prefix, uri, headers) {
        Err(problem) => Verdict::of(&problem),
        Ok((campaign, user, key)) => {
            // The deadline is the gate's own, under the proxies': Envoy's is 200 ms.
            let wait = app.config.gate_wait;
            let asking = decide(app, &campaign, user, key, (consumes, wait));
            let late = Verdict { retry_after_s: Some(1), ..Verdict::denied("claim-pending") };
            tokio::time::timeout(wait, asking).await.unwrap_or(late)
        }
    };
    let result = if verdict.admitted { "admitted" } else { "denied" };
    metrics::counter!("headcount_gate_total", "result" => result, "outcome" => verdict.outcome).increment(1);
    answer(&verdict, app.config.gate_deny_status)
}

fn asked<'a>(
    app: &AppState,
    prefix: &str,
    uri: &Uri,
    headers: &'a HeaderMap,
) -> Result<(CampaignId, UserId<'a>, Option<&'a str>), Problem> {
    let campaign = id::campaign_after(uri, prefix)?;
    let user = user_by_ingress(app, headers)?.ok_or_else(|| {
        Problem::field(
            Kind::InvalidField,
            "user",
            "must come in the header that the deployment names for it, and none is named",
        )
    })?;
    Ok((campaign, user, idempotency_key(headers)?))
}

async fn decide(
    app: &AppState,
    campaign: &CampaignId,
    user: UserId<'_>,
    key: Option<&str>,
    (consumes, wait): (bool, Duration),
) -> Verdict {
    let found = if consumes {
        match app.hard.claim(campaign, user, key, wait).await {
            Err(ServiceError::NotKeptBySoft) => return soft(app, campaign, user).await,
            claimed => claimed,
        }
    } else {
        match app.hard.lookup(campaign, user).await {
            Ok(Some(claim)) if claim.record.state.is_live() => Ok(HardClaim::Already { claim, remaining: None }),
            Ok(_) => return Verdict::denied("no-claim"),
            Err(error) => Err(error),
        }
    };
    match found {
        Ok(HardClaim::Granted { claim, remaining }) => {
            Verdict { admitted: true, outcome: "granted", claim: Some(claim), remaining, retry_after_s: None }
        }
        Ok(HardClaim::Already { claim, remaining }) => {
            Verdict { admitted: true, outcome: "already", claim: Some(claim), remaining, retry_after_s: None }
        }
        Ok(refused) => {
            let remaining = matches!(refused, HardClaim::SoldOut { .. }).then_some(0);
            Verdict { remaining, ..Verdict::of(&refusal_of(&refused, app.clock.now())) }
        }
        Err(error) => Verdict::of(&Problem::from(error)),
    }
}

/// A soft campaign admits without keeping whom; there is nothing to check afterwards.
async fn soft(app: &AppState, campaign: &CampaignId, user: UserId<'_>) -> Verdict {
    match app.claims.claim(campaign, user).await {
        Ok(SoftClaim::Granted { remaining, .. }) => {
            Verdict { admitted: true, remaining: Some(remaining), ..Verdict::denied("granted") }
        }
        Ok(SoftClaim::SoldOut { .. }) => Verdict { remaining: Some(0), ..Verdict::denied("sold_out") },
        Ok(SoftClaim::NotOpen(_)) => Verdict::denied("not_open"),
        Ok(SoftClaim::Paused(_)) => Verdict::denied("paused"),
        Ok(SoftClaim::Closed(_)) => Verdict::denied("closed"),
        Err(error) => Verdict::of(&Problem::from(error)),
    }
}

fn answer(verdict: &Verdict, deny_status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = if verdict.admitted { StatusCode::OK } else { deny_status };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(OUTCOME, HeaderValue::from_static(verdict.outcome));
    if let Some(remaining) = verdict.remaining {
        headers.insert(REMAINING, HeaderValue::from(remaining));
    }
    if let Some(claim) = &verdict.claim {
        headers.insert(UNIT, HeaderValue::from(claim.record.unit.number));
        if let Ok(claim_id) = HeaderValue::try_from(claim.claim_id.to_string()) {
            headers.insert(CLAIM_ID, claim_id);
        }
    }
    if let Some(seconds) = verdict.retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
