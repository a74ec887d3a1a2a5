//! Single claims: looked up by user, or by their id, confirmed, given back.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use super::claims::{answer, campaign_in_path, is_campaign_in_path};
use super::user_by_ingress;
use crate::api::problem::{Kind, Problem, ProblemBody};
use crate::api::query::Known;
use crate::api::request::ClaimBody;
use crate::api::response::{ClaimAnswer, json_no_store};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::domain::id::CampaignId;
use crate::domain::quota::claim_id::ClaimId;
use crate::domain::quota::step::ReleasedBy;
use crate::service::error::ServiceError;
use crate::service::quota::claims::{Claim, Confirmed, Released};

/// The user's last claim. Users do not go into URLs, because URLs are logged.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/claims/lookup",
    tag = "claims",
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded")),
    request_body = ClaimBody,
    responses(
        (status = 200, description = "The user's last claim, live or not", body = ClaimAnswer),
        (status = 404, description = "The user never claimed, or the campaign is soft", body = ProblemBody)
    )
)]
pub async fn lookup(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let in_path = campaign_in_path(&head.uri)?;
    let by_ingress = user_by_ingress(&app, &head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let wish = ClaimBody::parse(&bytes)?;
    let (campaign, user) = (wish.campaign(in_path)?, wish.user(by_ingress)?);
    match app.hard.lookup(&campaign, user).await? {
        Some(claim) => {
            let answer = ClaimAnswer { user: Some(user.as_str()), ..answer(&campaign, &claim) };
            Ok(json_no_store(StatusCode::OK, &answer))
        }
        None => Err(Problem::new(Kind::NoSuchClaim, "The user has not claimed here.")),
    }
}

/// One claim by its id.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{campaign}/claims/{claim_id}",
    tag = "claims",
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("claim_id" = String, Path, description = "The claim's id")
    ),
    responses(
        (status = 200, description = "The claim as it stands", body = ClaimAnswer),
        (status = 404, description = "No such claim, or the campaign is soft", body = ProblemBody)
    )
)]
pub async fn get(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, claim_id) = named(&app, request.uri()).await?;
    let claim = app.hard.get(&campaign, &claim_id).await?;
    Ok(ok(&campaign, &claim))
}

/// Gives a held unit back. Again is fine.
#[utoipa::path(
    delete,
    path = "/v1/campaigns/{campaign}/claims/{claim_id}",
    tag = "claims",
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("claim_id" = String, Path, description = "The claim's id")
    ),
    responses(
        (status = 200, description = "It is given back, or had ended before: `state` says how", body = ClaimAnswer),
        (status = 404, description = "No such claim, or the campaign is soft", body = ProblemBody),
        (status = 409, description = "It is confirmed", body = ProblemBody)
    )
)]
pub async fn release(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, claim_id) = named(&app, request.uri()).await?;
    released(&campaign, app.hard.release(&campaign, &claim_id, ReleasedBy::User).await?)
}

/// Confirms a held claim. Again is fine.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/claims/{claim_id}/confirm",
    tag = "claims",
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("claim_id" = String, Path, description = "The claim's id")
    ),
    responses(
        (status = 200, description = "Confirmed", body = ClaimAnswer),
        (status = 404, description = "No such claim, or the campaign is soft", body = ProblemBody),
        (status = 409, description = "`outcome` is `late`: the hold has ended", body = ProblemBody)
    )
)]
pub async fn confirm(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, claim_id) = named(&app, request.uri()).await?;
    match app.hard.confirm(&campaign, &claim_id).await? {
        Confirmed::Confirmed(claim) => Ok(ok(&campaign, &claim)),
        Confirmed::Late(claim) => {
            let detail = "The hold has ended and the unit may be somebody else's: pay back, or claim again.";
            Err(Problem::new(Kind::ClaimLate, detail).outcome("late").state(claim.record.state.as_str()))
        }
    }
}

/// The answer to a wish to end a claim.
pub fn released(campaign: &CampaignId, released: Released) -> Result<Response, Problem> {
    match released {
        Released::Released(claim) | Released::Ended(claim) => Ok(ok(campaign, &claim)),
        Released::Confirmed(_) => {
            let detail = "A confirmed claim is not given back by its user; an operator can void it.";
            Err(Problem::new(Kind::ClaimConfirmed, detail).outcome("confirmed").state("confirmed"))
        }
    }
}

fn ok(campaign: &CampaignId, claim: &Claim) -> Response {
    json_no_store(StatusCode::OK, &answer(campaign, claim))
}

/// The hard campaign and the claim that a path or a query names.
pub async fn named(app: &AppState, uri: &Uri) -> Result<(CampaignId, ClaimId), Problem> {
    let (campaign, claim_id) = words(uri)?;
    if !app.hard.is_hard(&campaign).await? {
        return Err(ServiceError::NotKeptBySoft.into());
    }
    // What is no claim id names no claim: that is all a guesser learns.
    let unknown = |_| Problem::new(Kind::NoSuchClaim, "Check the claim id: it has 56 letters and digits.");
    Ok((campaign, claim_id.parse().map_err(unknown)?))
}

fn words(uri: &Uri) -> Result<(CampaignId, String), Problem> {
    if is_campaign_in_path(uri) {
        let (campaign, _) = id::campaign(uri, Known::default())?;
        // `/v1/campaigns/{campaign}/claims/{claim_id}…`: the router matched it.
        let claim_id = uri.path().split('/').nth(5).unwrap_or_default().to_owned();
        return Ok((campaign, claim_id));
    }
    let (campaign, query) = id::campaign(uri, Known { names: &["claim_id"], later: &[] })?;
    let claim_id = query.required("claim_id")?.to_owned();
    Ok((campaign, claim_id))
}
