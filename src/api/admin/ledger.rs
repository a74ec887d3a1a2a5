//! The ledger as an operator uses it: comparing, putting right, and forgetting users' names.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::invalid;
use crate::api::json::{Text, object};
use crate::api::problem::{Problem, ProblemBody};
use crate::api::query::Known;
use crate::api::response::{NO_STORE, json_no_store};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::domain::quota::claim::ClaimState;
use crate::domain::quota::unit::Unit;
use crate::service::error::ServiceError;
use crate::service::ledger::compare::Difference;
use crate::service::ledger::mending::MendedPool;
use crate::service::ledger::reconcile::{Mode, Reconciled};

/// Lines of progress that may wait for a slow reader; he is waited for then.
const LINES_MAX: usize = 256;

/// What is to be done about differences.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct ReconcileBody<'a> {
    /// `compare`: only tell; `repair`: the ledger gets what only the store has; `from_ledger`: lost shards are rebuilt.
    #[serde(borrow)]
    #[schema(value_type = String, example = "compare")]
    mode: Option<Text<'a>>,
    /// Of `from_ledger`: also where the ledger may lack the last claims.
    accept_loss: Option<bool>,
}

impl ReconcileBody<'_> {
    fn parse(bytes: &[u8]) -> Result<Mode, Problem> {
        let body: ReconcileBody<'_> = object(bytes)?;
        let accept_loss = body.accept_loss.unwrap_or(false);
        let mode = match body.mode.as_ref().map(Text::as_str) {
            Some("compare") => Mode::Compare,
            Some("repair") => Mode::Repair,
            Some("from_ledger") => return Ok(Mode::FromLedger { accept_loss }),
            _ => return Err(invalid("mode", "must be compare, repair or from_ledger")),
        };
        if accept_loss {
            return Err(invalid("accept_loss", "belongs to mode from_ledger"));
        }
        Ok(mode)
    }
}

/// A line of the answer: one of them.
#[derive(Serialize, ToSchema, Default)]
pub struct ReconcileLine {
    /// How far it is, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    /// The last line, if it came to an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<ReconcileReport>,
    /// The last line, if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ProblemBody>,
}

/// What came of it.
#[derive(Serialize, ToSchema)]
pub struct ReconcileReport {
    campaign: String,
    agrees: bool,
    /// Claims that were compared, and those that changed meanwhile.
    claims: u64,
    too_new: u64,
    missing_in_ledger: u64,
    missing_in_store: u64,
    different: u64,
    refunded_in_store: u64,
    refunded_in_ledger: u64,
    /// Rows written to the ledger; of these, rows that contradict others.
    repaired: u64,
    conflicts: u64,
    /// The first thousand.
    differences: Vec<DifferenceAnswer>,
    record_restored: bool,
    rebuilt: Vec<RebuiltAnswer>,
}

/// A claim that store and ledger see differently.
#[derive(Serialize, ToSchema)]
pub struct DifferenceAnswer {
    shard: u16,
    unit: u64,
    /// The unit with its turn and the claim's state; null: it is not there.
    #[schema(example = "17#0 confirmed")]
    store: Option<String>,
    ledger: Option<String>,
}

/// A shard that was rebuilt.
#[derive(Serialize, ToSchema)]
pub struct RebuiltAnswer {
    shard: u16,
    claims: u64,
    stock: u64,
    retired: u64,
    refunded: u64,
    /// Claims whose end was lost.
    ended: u64,
    /// Rows that the ledger lacked.
    brought: u64,
}

/// Compares a campaign's store with its ledger, unit by unit; brings the ledger what it lacks, or rebuilds lost shards
/// from it. Answers in lines as it goes on; the last one has the report or the problem.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/reconcile",
    tag = "ledger",
    security(("token" = [])),
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded")),
    request_body = ReconcileBody,
    responses(
        (status = 200, description = "Lines of JSON", content_type = "application/x-ndjson", body = ReconcileLine),
        (status = 409, description = "This process has no ledger", body = ProblemBody),
        (status = 422, description = "A field breaks a rule", body = ProblemBody)
    )
)]
pub async fn reconcile(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (campaign, _) = id::campaign(&head.uri, Known::default())?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let mode = ReconcileBody::parse(&bytes)?;
    let reconcile = app.reconcile.clone().ok_or(ServiceError::NoLedger)?;
    let (lines, said) = mpsc::channel::<Bytes>(LINES_MAX);
    // In a task of its own: whoever begins to mend a campaign goes on when the asker has gone away.
    app.tasks.spawn("reconcile", async move {
        let progress = lines.clone();
        // A reader too slow for some lines of progress misses them; he gets the last one.
        let tell = move |text: String| {
            drop(progress.try_send(line(&ReconcileLine { progress: Some(text), ..ReconcileLine::default() })));
        };
        let last = match reconcile.run(&campaign, mode, &tell).await {
            Ok(done) => ReconcileLine { report: Some(report(campaign.as_str(), done)), ..ReconcileLine::default() },
            Err(error) => ReconcileLine { problem: Some(Problem::from(error).into_body()), ..ReconcileLine::default() },
        };
        // Nobody listens any more: the log has what mattered.
        drop(lines.send(line(&last)).await);
    });
    let body = stream::unfold(said, |mut said| async move {
        said.recv().await.map(|line| (Ok::<Bytes, std::io::Error>(line), said))
    });
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// Whose name is to be forgotten.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct EraseBody<'a> {
    /// The user as sent with their claims.
    #[serde(borrow)]
    #[schema(value_type = String, example = "ada")]
    user: Option<Text<'a>>,
}

/// Where the name stood.
#[derive(Serialize, ToSchema)]
pub struct EraseAnswer {
    /// News on their way to the ledger.
    entries: u64,
    /// Rows of the ledger that are the user's.
    rows: u64,
}

/// Replaces a user's name by the element that stands for it, in store and ledger. Claims stay, under a key that does not
/// lead back to the name. Again is fine.
#[utoipa::path(
    post,
    path = "/v1/users/erase",
    tag = "ledger",
    security(("token" = [])),
    request_body = EraseBody,
    responses(
        (status = 200, description = "Done", body = EraseAnswer),
        (status = 422, description = "A field breaks a rule", body = ProblemBody),
        (status = 503, description = "Store or ledger do not answer: some may be done, ask again", body = ProblemBody)
    )
)]
pub async fn erase(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let body: EraseBody<'_> = object(&bytes)?;
    let user = body.user.as_ref().ok_or_else(|| invalid("user", "is required"))?;
    let erased = app.erase.run(id::user_named(user.as_str(), "user")?).await?;
    Ok(json_no_store(StatusCode::OK, &EraseAnswer { entries: erased.entries, rows: erased.rows }))
}

fn line(line: &ReconcileLine) -> Bytes {
    // Structs of numbers and texts are JSON.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}

fn report(campaign: &str, done: Reconciled) -> ReconcileReport {
    let Reconciled { mended, comparison } = done;
    ReconcileReport {
        campaign: campaign.to_owned(),
        agrees: comparison.agrees(),
        claims: comparison.claims,
        too_new: comparison.too_new,
        missing_in_ledger: comparison.missing_in_ledger,
        missing_in_store: comparison.missing_in_store,
        different: comparison.different,
        refunded_in_store: comparison.refunded_in_store,
        refunded_in_ledger: comparison.refunded_in_ledger,
        repaired: comparison.repaired,
        conflicts: comparison.conflicts,
        differences: comparison.differences.iter().map(DifferenceAnswer::from).collect(),
        record_restored: mended.record_restored,
        rebuilt: mended.pools.into_iter().map(RebuiltAnswer::from).collect(),
    }
}

impl From<&Difference> for DifferenceAnswer {
    fn from(difference: &Difference) -> Self {
        let word = |(unit, state): (Unit, ClaimState)| format!("{unit} {}", state.as_str());
        Self {
            shard: difference.shard,
            unit: difference.unit.number,
            store: difference.store.map(word),
            ledger: difference.ledger.map(word),
        }
    }
}

impl From<MendedPool> for RebuiltAnswer {
    fn from(pool: MendedPool) -> Self {
        let MendedPool { shard, claims, stock, retired, refunded, ended, brought } = pool;
        Self { shard, claims, stock, retired, refunded, ended, brought }
    }
}
