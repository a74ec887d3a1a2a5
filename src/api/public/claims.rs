//! Claims, and what is left.

use std::cell::RefCell;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use twox_hash::XxHash3_64;

use super::user_by_ingress;
use crate::api::problem::{Kind, Problem, ProblemBody};
use crate::api::query::{Known, Query};
use crate::api::request::ClaimBody;
use crate::api::response::{ClaimAnswer, NO_STORE, RemainingAnswer, json_no_store, json_written, to_json};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::domain::id::CampaignId;
use crate::service::claim::{Remaining, SoftClaim};
use crate::service::error::OpeningHours;

/// Browsers and proxies may answer a crowd that polls; one second old is as good as what is refreshed five times in it.
const FRESH_FOR_1S: HeaderValue = HeaderValue::from_static("max-age=1");

/// What a tag is made of: the longest id, a state, and seven numbers.
const VISIBLE_BYTES: usize = 200;

/// Claims a place for a user.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/claims",
    tag = "claims",
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("Idempotency-Key" = Option<String>, Header, description = "Taken and ignored by soft campaigns")
    ),
    request_body = ClaimBody,
    responses(
        (status = 201, description = "Granted", body = ClaimAnswer),
        (status = 404, description = "No such campaign", body = ProblemBody),
        (status = 409, description = "`outcome` is sold_out, not_open, paused or closed", body = ProblemBody),
        (status = 422, description = "A field breaks a rule", body = ProblemBody),
        (status = 503, description = "Not admitted now, and nothing consumed", body = ProblemBody)
    )
)]
pub async fn claim(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let in_path = campaign_in_path(&head.uri)?;
    let by_ingress = user_by_ingress(&app, &head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let no_body_needed = bytes.is_empty() && by_ingress.is_some() && in_path.is_some();
    let wish = if no_body_needed { ClaimBody::default() } else { ClaimBody::parse(&bytes)? };
    let (campaign, user) = (wish.campaign(in_path)?, wish.user(by_ingress)?);
    Err(match app.claims.claim(&campaign, user).await? {
        SoftClaim::Granted { claimed_at, remaining, stale } => {
            let (campaign, user) = (campaign.as_str(), user.as_str());
            let answer = ClaimAnswer { campaign, user, outcome: "granted", claimed_at, remaining, stale };
            return Ok(json_no_store(StatusCode::CREATED, &answer));
        }
        SoftClaim::SoldOut { stale } => {
            let detail = "No place is left; a soft campaign does not get places back.";
            Problem::new(Kind::SoldOut, detail).outcome("sold_out").stale(stale)
        }
        SoftClaim::NotOpen(hours) => {
            let detail = "Claim again after the opening: Retry-After counts the seconds.";
            refusal(Kind::NotOpen, "not_open", detail, hours)
                .retry_after_s(seconds_until(hours.opens_at, app.clock.now()))
        }
        SoftClaim::Paused(hours) => {
            let detail = "The campaign is paused; its remaining says when it goes on.";
            refusal(Kind::Paused, "paused", detail, hours)
        }
        SoftClaim::Closed(hours) => refusal(Kind::Closed, "closed", "The campaign is over.", hours),
    })
}

/// Whether a user has a claim: soft campaigns cannot know.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/claims/lookup",
    tag = "claims",
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded")),
    request_body = ClaimBody,
    responses((status = 404, description = "Soft campaigns keep no single claims", body = ProblemBody))
)]
pub async fn lookup(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let in_path = campaign_in_path(&head.uri)?;
    let by_ingress = user_by_ingress(&app, &head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let wish = ClaimBody::parse(&bytes)?;
    let campaign = wish.campaign(in_path)?;
    wish.user(by_ingress)?;
    not_kept(&app, &campaign).await
}

/// One claim by its id: soft campaigns have none.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{campaign}/claims/{claim_id}",
    tag = "claims",
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("claim_id" = String, Path, description = "The claim's id")
    ),
    responses((status = 404, description = "Soft campaigns keep no single claims", body = ProblemBody))
)]
pub async fn one(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let by_query = Known { names: &["claim_id"], later: &[] };
    let known = if campaign_in_path_of(request.uri()) { Known::default() } else { by_query };
    let (campaign, _) = id::campaign(request.uri(), known)?;
    not_kept(&app, &campaign).await
}

/// Places left, with error and age.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{campaign}/remaining",
    tag = "claims",
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded")),
    responses(
        (status = 200, description = "What is left", body = RemainingAnswer),
        (status = 304, description = "Nothing visible has changed since If-None-Match"),
        (status = 404, description = "No such campaign", body = ProblemBody),
        (status = 503, description = "The store does not answer, and no reading is known", body = ProblemBody)
    )
)]
pub async fn remaining(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, _) = id::campaign(request.uri(), Known::default())?;
    let left = app.claims.remaining(&campaign).await?;
    Ok(remaining_answer(left, request.headers()))
}

fn remaining_answer(left: Remaining, asked: &HeaderMap) -> Response {
    if left.stale {
        return json_no_store(StatusCode::OK, &RemainingAnswer::from(&left));
    }
    let (tag, body) = written(left);
    let same = asked.get_all(header::IF_NONE_MATCH).iter().any(|value| names_tag(value, &tag));
    let mut response = if same { not_modified() } else { json_written(StatusCode::OK, body) };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, FRESH_FOR_1S);
    headers.insert(header::ETAG, tag);
    response
}

/// What this thread wrote last. A crowd asks for one campaign, and its numbers, times included, are whole milliseconds:
/// most answers are the same bytes as the one before.
struct Written {
    left: Remaining,
    tag: HeaderValue,
    body: Bytes,
}

thread_local! {
    static LAST_WRITTEN: RefCell<Option<Written>> = const { RefCell::new(None) };
}

/// The tag and the JSON of an answer.
fn written(left: Remaining) -> (HeaderValue, Bytes) {
    LAST_WRITTEN.with_borrow_mut(|last| {
        let Written { tag, body, .. } = match last {
            Some(last) if last.left == left => last,
            _ => {
                let (tag, body) = (visible_tag(&left), to_json(&RemainingAnswer::from(&left)));
                last.insert(Written { left, tag, body })
            }
        };
        (tag.clone(), body.clone())
    })
}

fn not_modified() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

/// A weak tag of what a page shows: not of the age or the clock, which change with every answer.
fn visible_tag(left: &Remaining) -> HeaderValue {
    let mut visible = Vec::with_capacity(VISIBLE_BYTES);
    visible.extend_from_slice(left.campaign.as_str().as_bytes());
    visible.extend_from_slice(left.state.as_str().as_bytes());
    for time in [Some(left.hours.opens_at), left.hours.closes_at] {
        visible.extend_from_slice(&time.map_or(i64::MIN, Timestamp::as_microsecond).to_le_bytes());
    }
    for number in [left.quota, left.remaining, left.error_95_places, left.overshoot_places] {
        visible.extend_from_slice(&number.to_le_bytes());
    }
    visible.extend([left.exact, left.partial, left.sold_out].map(u8::from));
    // Hex digits in quotes are a header value.
    HeaderValue::try_from(format!("W/\"{:016x}\"", XxHash3_64::oneshot(&visible))).unwrap_or(NO_STORE)
}

/// If-None-Match lists tags, or says `*`; they are compared weakly.
fn names_tag(list: &HeaderValue, tag: &HeaderValue) -> bool {
    let strip = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    let wanted = strip(tag.as_bytes());
    list.as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|given| given == b"*" || strip(given) == wanted)
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

async fn not_kept(app: &AppState, campaign: &CampaignId) -> Result<Response, Problem> {
    app.campaigns.get(campaign).await?;
    let detail = "A soft campaign counts claimants without keeping who they are; use admission `hard` where claims are looked up.";
    Err(Problem::new(Kind::NotKeptBySoft, detail))
}

fn campaign_in_path(uri: &Uri) -> Result<Option<CampaignId>, Problem> {
    if campaign_in_path_of(uri) {
        return id::campaign(uri, Known::default()).map(|(campaign, _)| Some(campaign));
    }
    Query::parse(uri, Known::default(), None).map(|_| None)
}

fn campaign_in_path_of(uri: &Uri) -> bool {
    uri.path().starts_with("/v1/campaigns/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::campaign::CampaignState;

    fn left() -> Remaining {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        Remaining {
            campaign: CampaignId::new("tickets").unwrap(),
            state: CampaignState::Open,
            hours: OpeningHours { opens_at: at("2026-11-11T00:00:00Z"), closes_at: None },
            server_time: at("2026-11-11T00:00:07Z"),
            quota: 1_000,
            remaining: 983,
            exact: false,
            error_95_places: 1,
            overshoot_places: 6,
            as_of: at("2026-11-11T00:00:06.9Z"),
            age_ms: 100,
            stale: false,
            partial: false,
            sold_out: false,
        }
    }

    fn asked(tag: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::IF_NONE_MATCH, tag.parse().unwrap())])
    }

    #[test]
    fn a_page_that_shows_the_same_numbers_is_not_modified() {
        let first = remaining_answer(left(), &HeaderMap::new());
        assert_eq!(first.headers()[header::CACHE_CONTROL], "max-age=1");
        let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        let older = Remaining { age_ms: 180, server_time: Timestamp::UNIX_EPOCH, ..left() };
        for list in [tag.clone(), format!("\"other\", {tag}"), tag.trim_start_matches("W/").to_owned(), "*".into()] {
            let again = remaining_answer(older.clone(), &asked(&list));
            assert_eq!(again.status(), 304, "{list}");
            assert_eq!(again.headers()[header::ETAG], tag.as_str());
        }
        let fewer = remaining_answer(Remaining { remaining: 982, ..left() }, &asked(&tag));
        assert_eq!(fewer.status(), 200);
        assert_ne!(fewer.headers()[header::ETAG], tag.as_str());
    }

    #[test]
    fn what_was_written_last_is_not_given_for_anything_else() {
        let (tag, body) = written(left());
        assert_eq!(written(left()), (tag.clone(), body.clone()));
        let older = written(Remaining { age_ms: 101, ..left() });
        assert_eq!(older.0, tag, "the age is not visible");
        assert_ne!(older.1, body);
        let other = written(Remaining { campaign: CampaignId::new("seats").unwrap(), ..left() });
        assert_ne!(other.0, tag);
        assert!(String::from_utf8_lossy(&other.1).contains(r#""campaign":"seats""#));
        assert_eq!(written(left()), (tag, body));
    }

    #[test]
    fn a_stale_answer_is_whole_and_not_kept() {
        let answer = remaining_answer(Remaining { stale: true, ..left() }, &asked("*"));
        assert_eq!((answer.status().as_u16(), &answer.headers()[header::CACHE_CONTROL]), (200, &NO_STORE));
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
