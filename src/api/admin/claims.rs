//! Claims of a hard campaign as an operator sees them: all of them, the books, and taking one away.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::page_with;
use crate::api::id;
use crate::api::problem::{Problem, ProblemBody};
use crate::api::public::claims::answer;
use crate::api::public::single::{named, released};
use crate::api::query::Known;
use crate::api::response::{ClaimAnswer, json_no_store};
use crate::api::state::AppState;
use crate::domain::quota::step::ReleasedBy;
use crate::domain::quota::terms::PoolReading;
use crate::service::quota::audit::{Audit, ShardAudit};
use crate::service::quota::operations::status_word;
use crate::store::pools::Safety;

/// One page of claims.
#[derive(Serialize, ToSchema)]
pub struct ClaimsPageAnswer<'a> {
    /// Users' last claims, live or not. Who the users are is not kept here: their ids are in the outbox.
    claims: Vec<ClaimAnswer<'a>>,
    /// The `cursor` of the next page; null at the end.
    next: Option<String>,
}

/// Claims, in the store's order.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{campaign}/claims",
    tag = "campaigns",
    security(("token" = [])),
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("limit" = Option<usize>, Query, description = "1 to 1,000; 100 if absent; about so many"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before")
    ),
    responses(
        (status = 200, description = "One page", body = ClaimsPageAnswer),
        (status = 404, description = "No such campaign, or a soft one", body = ProblemBody)
    )
)]
pub async fn list(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, query) = id::campaign(request.uri(), Known { names: &["cursor", "limit"], later: &[] })?;
    let (cursor, limit) = page_with(&query)?;
    let (claims, next) = app.hard.list(&campaign, cursor.as_deref(), limit).await?;
    let claims = claims.iter().map(|claim| answer(&campaign, claim)).collect();
    Ok(json_no_store(StatusCode::OK, &ClaimsPageAnswer { claims, next }))
}

/// Takes a claim away, confirmed or not. Its unit can be claimed by others; its user cannot claim again.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/claims/{claim_id}/void",
    tag = "campaigns",
    security(("token" = [])),
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("claim_id" = String, Path, description = "The claim's id")
    ),
    responses(
        (status = 200, description = "Voided, or it had ended before: `state` says how", body = ClaimAnswer),
        (status = 404, description = "No such claim", body = ProblemBody)
    )
)]
pub async fn void(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, claim_id) = named(&app, request.uri()).await?;
    released(&campaign, app.hard.release(&campaign, &claim_id, ReleasedBy::Operator).await?)
}

/// The books of a campaign.
#[derive(Serialize, ToSchema)]
pub struct AuditAnswer {
    campaign: String,
    /// Both sides agree, no unit is two users' and no more is granted than there is.
    balances: bool,
    /// Nothing moved while it was read; if false, a difference may be due to that.
    settled: bool,
    operation_under_way: bool,
    quota: u64,
    quota_target: u64,
    /// Numbers ever issued: one side of the books.
    issued: u64,
    /// available + cooling + held + confirmed + retired + refunded + in_flight: the other side.
    found: u64,
    available: u64,
    cooling: u64,
    held: u64,
    confirmed: u64,
    retired: u64,
    refunded: u64,
    /// Sent from one shard to another, and not arrived.
    in_flight: u64,
    /// What packets of live claims hold, and refunded ones: 0 where the units are no packets.
    claimed_cents: i64,
    refunded_cents: i64,
    shards: Vec<ShardAnswer>,
    /// Units of live claims, as ranges with both ends.
    granted: Vec<(u64, u64)>,
    /// Units that two live claims have.
    duplicates: Vec<u64>,
}

#[derive(Serialize, ToSchema)]
pub struct ShardAnswer {
    shard: u16,
    status: &'static str,
    available: u64,
    cooling: u64,
    held: u64,
    confirmed: u64,
    retired: u64,
    refunded: u64,
    in_flight: u64,
    ver: u64,
    incarnation: u64,
    /// `replicated`, `disk` (the embedded store), `degraded` (not on all replicas that could be promoted), `single` (in one server's memory only).
    safe: &'static str,
    /// Replicas that must confirm.
    replicas: u32,
}

/// Every unit accounted for.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{campaign}/audit",
    tag = "campaigns",
    security(("token" = [])),
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded")),
    responses(
        (status = 200, description = "The books, balanced or not", body = AuditAnswer),
        (status = 404, description = "No such campaign, or a soft one", body = ProblemBody),
        (status = 503, description = "A shard does not answer", body = ProblemBody)
    )
)]
pub async fn audit(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, _) = id::campaign(request.uri(), Known::default())?;
    let audit = app.hard.audit(&campaign).await?;
    Ok(json_no_store(StatusCode::OK, &AuditAnswer::from(audit)))
}

impl From<Audit> for AuditAnswer {
    fn from(audit: Audit) -> Self {
        let cents = |of: fn(&PoolReading) -> i64| audit.shards.iter().map(|shard| of(&shard.reading)).sum();
        let sum = |number: fn(&ShardAudit) -> u64| audit.shards.iter().map(number).sum();
        Self {
            campaign: audit.campaign.as_str().to_owned(),
            balances: audit.balances(),
            settled: audit.settled,
            operation_under_way: audit.operation_under_way,
            quota: audit.quota,
            quota_target: audit.quota_target,
            issued: audit.issued,
            found: audit.found,
            available: sum(|shard| shard.reading.avail),
            cooling: sum(|shard| shard.reading.cooling),
            held: sum(|shard| shard.reading.held),
            confirmed: sum(|shard| shard.reading.confirmed),
            retired: sum(|shard| shard.reading.retired),
            refunded: sum(|shard| shard.reading.refunded),
            in_flight: audit.in_flight,
            claimed_cents: cents(|reading| reading.taken_cents),
            refunded_cents: cents(|reading| reading.refunded_cents),
            shards: audit.shards.iter().map(ShardAnswer::from).collect(),
            granted: audit.granted,
            duplicates: audit.duplicates,
        }
    }
}

impl From<&ShardAudit> for ShardAnswer {
    fn from(audit: &ShardAudit) -> Self {
        let reading = &audit.reading;
        let (safe, replicas) = match audit.safety {
            Safety::Safe { replicas: 0 } => ("disk", 0),
            Safety::Safe { replicas } => ("replicated", replicas),
            Safety::Degraded { replicas, .. } => ("degraded", replicas),
            Safety::Single => ("single", 0),
        };
        Self {
            shard: audit.shard,
            status: status_word(reading.status),
            available: reading.avail,
            cooling: reading.cooling,
            held: reading.held,
            confirmed: reading.confirmed,
            retired: reading.retired,
            refunded: reading.refunded,
            in_flight: audit.in_flight,
            ver: audit.ver,
            incarnation: audit.incarnation,
            safe,
            replicas,
        }
    }
}
