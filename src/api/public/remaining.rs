//! What is left.

use std::cell::RefCell;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use twox_hash::XxHash3_64;

use crate::api::id;
use crate::api::problem::{Problem, ProblemBody};
use crate::api::query::Known;
use crate::api::response::{NO_STORE, RemainingAnswer, json_no_store, json_written, to_json};
use crate::api::state::AppState;
use crate::service::claim::Remaining;
use crate::service::error::ServiceError;

/// Browsers and proxies may answer a crowd that polls; one second old is as good as what is refreshed five times in it.
const FRESH_FOR_1S: HeaderValue = HeaderValue::from_static("max-age=1");

/// What a tag is made of: the longest id, a state, and seven numbers.
const VISIBLE_BYTES: usize = 200;

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
    let left = match app.hard.remaining(&campaign).await {
        Err(ServiceError::NotKeptBySoft) => app.claims.remaining(&campaign).await?,
        left => left?,
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::campaign::CampaignState;
    use crate::domain::id::CampaignId;
    use crate::service::error::OpeningHours;

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
}
