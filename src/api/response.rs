//! What callers get, and how it is written.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::{Problem, ProblemBody};
use crate::service::claim::Remaining;
use crate::service::error::ServiceError;
use crate::service::manage::events::EventView;
use crate::service::quota::claims::Claim;
use crate::service::report::Count;
use crate::service::visit::Taken;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Most answers fit, so that writing one takes one allocation.
const ANSWER_BYTES: usize = 512;

/// An answer of one JSON object.
pub fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    json_written(status, to_json(body))
}

/// One JSON object as it goes out.
pub fn to_json<T: Serialize>(body: &T) -> Bytes {
    let mut bytes = Vec::with_capacity(ANSWER_BYTES);
    // Our wire forms are numbers, strings, times and lists of them: none can fail to serialize, and a Vec takes all.
    let _ = serde_json::to_writer(&mut bytes, body);
    bytes.into()
}

/// An answer of one JSON object that is written already.
pub fn json_written(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// The same, not to be kept by anybody on the way.
pub fn json_no_store<T: Serialize>(status: StatusCode, body: &T) -> Response {
    let mut response = json(status, body);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A record, with its version as ETag for a later If-Match.
pub fn record<T: Serialize>(status: StatusCode, version: u64, body: &T) -> Response {
    let mut response = json_no_store(status, body);
    // Digits in quotes are a header value.
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// What became of visits.
#[derive(Serialize, ToSchema)]
pub struct VisitsAnswer {
    /// `stored` and `buffered` together.
    #[schema(example = 1)]
    accepted: usize,
    /// The store has them.
    #[schema(example = 1)]
    stored: usize,
    /// This process has them, and pushes them as soon as the store answers.
    #[schema(example = 0)]
    buffered: usize,
}

impl From<Taken> for VisitsAnswer {
    fn from(taken: Taken) -> Self {
        Self { accepted: taken.accepted(), stored: taken.stored, buffered: taken.buffered }
    }
}

/// What became of lines.
#[derive(Serialize, ToSchema)]
pub struct LinesAnswer {
    #[serde(flatten)]
    pub taken: VisitsAnswer,
    /// The first 1,000 lines that were not counted, and why.
    pub rejected: Vec<RejectedLine>,
    /// All lines that were not counted.
    pub rejected_total: usize,
}

#[derive(Serialize, ToSchema)]
pub struct RejectedLine {
    /// From 1, blank lines included.
    #[schema(example = 7)]
    pub line: usize,
    pub error: ProblemBody,
}

/// How many different users, with error and age.
#[derive(Serialize, ToSchema)]
pub struct CountAnswer {
    #[schema(example = "/index.html")]
    event: String,
    #[schema(example = "day")]
    period: &'static str,
    /// First day.
    #[schema(value_type = String, format = Date)]
    from: Date,
    /// Last day.
    #[schema(value_type = String, format = Date)]
    to: Date,
    /// The time zone whose days these are.
    #[schema(example = "UTC")]
    zone: String,
    /// First instant of the first day.
    #[schema(value_type = String, format = DateTime)]
    starts_at: Timestamp,
    /// First instant after the last day.
    #[schema(value_type = String, format = DateTime)]
    ends_at: Timestamp,
    #[schema(example = 12345)]
    count: u64,
    /// Relative, at 95 %: 0.0028 is 0.28 % of the count either way.
    #[schema(example = 0.0028)]
    error_95: f64,
    exact: bool,
    /// The time of the reading.
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
    age_ms: u64,
    /// The store does not answer, and this is the last that is known.
    stale: bool,
    /// A part could not be read; the true count is at least about this.
    partial: bool,
}

impl From<Count> for CountAnswer {
    fn from(count: Count) -> Self {
        let reading = count.reading;
        Self {
            event: count.event.as_str().to_owned(),
            period: "day",
            from: count.days.from,
            to: count.days.to,
            zone: count.zone,
            starts_at: count.bounds.0,
            ends_at: count.bounds.1,
            count: reading.count,
            error_95: (reading.error_95 * 1e6).round() / 1e6,
            exact: reading.exact,
            as_of: reading.as_of,
            age_ms: reading.age_ms,
            stale: reading.stale,
            partial: reading.partial,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct CountsAnswer {
    /// In the order asked.
    pub counts: Vec<CountOrError>,
}

/// One of many: a reading, or why there is none.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum CountOrError {
    Count(Box<CountAnswer>),
    Error { event: String, error: Box<ProblemBody> },
}

impl CountOrError {
    pub fn of(event: &str, count: Result<Count, ServiceError>) -> Self {
        match count {
            Ok(count) => CountOrError::Count(Box::new(count.into())),
            Err(error) => {
                CountOrError::Error { event: event.to_owned(), error: Box::new(Problem::from(error).into_body()) }
            }
        }
    }
}

/// A claim. Those of soft campaigns have neither id nor unit.
#[derive(Serialize, ToSchema)]
pub struct ClaimAnswer<'a> {
    pub campaign: &'a str,
    /// The user as sent; absent where the claim was found by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    /// A secret: whoever holds it may confirm the claim or give it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "aeaaai4q2vqb6ipzv7b2xkcx7gpm3x5k6o2wq5s5c3x4j7rzv5g2m3aq")]
    pub claim_id: Option<String>,
    /// `granted` or `already`; absent where nothing was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "granted")]
    pub outcome: Option<&'static str>,
    /// `held`, `confirmed`, `released`, `expired`, `voided`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "held")]
    pub state: Option<&'static str>,
    /// A number that nobody else has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 17)]
    pub unit: Option<u64>,
    /// What the packet holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 188)]
    pub cents: Option<i64>,
    #[schema(value_type = String, format = DateTime)]
    pub claimed_at: Timestamp,
    /// When the hold expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// Places left, as last known here; absent where not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// Admitted on a reading older than promised (`on_stale: admit`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
}

impl<'a> ClaimAnswer<'a> {
    /// A claim of a hard campaign.
    pub fn of(campaign: &'a str, claim: &Claim) -> Self {
        let record = &claim.record;
        let at = |ms| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            campaign,
            user: None,
            claim_id: Some(claim.claim_id.to_string()),
            outcome: None,
            state: Some(record.state.as_str()),
            unit: Some(record.unit.number),
            cents: record.unit.cents,
            claimed_at: at(record.claimed_ms),
            deadline: (record.deadline_ms > 0).then(|| at(record.deadline_ms)),
            remaining: None,
            stale: None,
        }
    }
}

/// What is left of a campaign.
#[derive(Serialize, ToSchema)]
pub struct RemainingAnswer<'a> {
    campaign: &'a str,
    /// `not_open`, `open`, `paused`, `closed`.
    #[schema(example = "open")]
    state: &'static str,
    #[schema(value_type = String, format = DateTime)]
    opens_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
    /// The store's clock, for countdowns.
    #[schema(value_type = String, format = DateTime)]
    server_time: Timestamp,
    quota: u64,
    #[schema(example = 983)]
    remaining: u64,
    exact: bool,
    /// Half the width of the 95 % interval of `remaining`.
    error_95_places: u64,
    /// By how many places the quota may be overshot, from this reading on.
    overshoot_places: u64,
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
    age_ms: u64,
    stale: bool,
    partial: bool,
    sold_out: bool,
}

impl<'a> From<&'a Remaining> for RemainingAnswer<'a> {
    fn from(left: &'a Remaining) -> Self {
        Self {
            campaign: left.campaign.as_str(),
            state: left.state.as_str(),
            opens_at: left.hours.opens_at,
            closes_at: left.hours.closes_at,
            server_time: left.server_time,
            quota: left.quota,
            remaining: left.remaining,
            exact: left.exact,
            error_95_places: left.error_95_places,
            overshoot_places: left.overshoot_places,
            as_of: left.as_of,
            age_ms: left.age_ms,
            stale: left.stale,
            partial: left.partial,
            sold_out: left.sold_out,
        }
    }
}

/// An event as it stands, defaults filled in.
#[derive(Serialize, ToSchema)]
pub struct EventAnswer {
    event: String,
    #[schema(example = 16)]
    shards: u16,
    #[schema(example = 35)]
    retention_days: u32,
    /// Rises with each reset.
    generation: u64,
    /// 0 where nothing was ever set; the ETag.
    version: u64,
}

impl From<EventView> for EventAnswer {
    fn from(view: EventView) -> Self {
        Self {
            event: view.event.as_str().to_owned(),
            shards: view.shards.count(),
            retention_days: view.retention.get(),
            generation: view.generation,
            version: view.version,
        }
    }
}
