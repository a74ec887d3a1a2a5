//! Ids of events and campaigns, from the path or the query.
//!
//! An id is one percent-encoded segment of the path (`/v1/events/%2Fa%2Fb/count`). Some proxies decode `%2F` on the way,
//! so each call has a second form with the id in the query (`/v1/count?event=/a/b`).

use std::borrow::Cow;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use super::problem::{Kind, Problem};
use super::query::{Known, Query};
use crate::domain::id::{CampaignId, EventId, IdError, UserId};

const EVENTS: &str = "/v1/events/";
const CAMPAIGNS: &str = "/v1/campaigns/";

/// The event a request is about, and its other parameters.
pub fn event(uri: &Uri, known: Known) -> Result<(EventId, Query), Problem> {
    if let Some(segment) = segment_after(uri, EVENTS) {
        return Ok((event_named(&decode(segment, "event")?)?, Query::parse(uri, known, None)?));
    }
    let query = Query::parse(uri, known, Some("event"))?;
    Ok((event_named(query.required("event")?)?, query))
}

/// The campaign a request is about, and its other parameters.
pub fn campaign(uri: &Uri, known: Known) -> Result<(CampaignId, Query), Problem> {
    if let Some(segment) = segment_after(uri, CAMPAIGNS) {
        return Ok((campaign_named(&decode(segment, "campaign")?)?, Query::parse(uri, known, None)?));
    }
    let query = Query::parse(uri, known, Some("campaign"))?;
    Ok((campaign_named(query.required("campaign")?)?, query))
}

/// The campaign that follows `prefix` in a path, where more of a path may follow: ingresses append the client's.
pub fn campaign_after(uri: &Uri, prefix: &str) -> Result<CampaignId, Problem> {
    campaign_named(&decode(segment_after(uri, prefix).unwrap_or_default(), "campaign")?)
}

pub fn event_named(text: &str) -> Result<EventId, Problem> {
    EventId::new(text).map_err(|error| broken("event", error))
}

pub fn campaign_named(text: &str) -> Result<CampaignId, Problem> {
    CampaignId::new(text).map_err(|error| broken("campaign", error))
}

pub fn user_named<'a>(text: &'a str, field: impl Into<Cow<'static, str>>) -> Result<UserId<'a>, Problem> {
    UserId::new(text).map_err(|error| broken(field, error))
}

/// An id that breaks a rule.
pub fn broken(field: impl Into<Cow<'static, str>>, error: IdError) -> Problem {
    Problem::field(Kind::InvalidField, field, error.to_string())
}

fn segment_after<'a>(uri: &'a Uri, prefix: &str) -> Option<&'a str> {
    let rest = uri.path().strip_prefix(prefix)?;
    Some(rest.split_once('/').map_or(rest, |(segment, _)| segment))
}

fn decode<'a>(segment: &'a str, field: &'static str) -> Result<Cow<'a, str>, Problem> {
    percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| Problem::field(Kind::Malformed, field, "must be UTF-8 when percent-decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str) -> Result<String, Problem> {
        event(&uri.parse().unwrap(), Known::default()).map(|(id, _)| id.as_str().to_owned())
    }

    #[test]
    fn an_id_in_the_path_is_the_same_as_in_the_query() {
        let pairs = [
            ("/v1/events/%2Fimages%2Fa.png/count", "/v1/count?event=/images/a.png", "/images/a.png"),
            ("/v1/events/%E5%8F%8C%E5%8D%81%E4%B8%80/count", "/v1/count?event=%E5%8F%8C%E5%8D%81%E4%B8%80", "双十一"),
            ("/v1/events/双十一", "/v1/count?event=双十一", "双十一"),
            ("/v1/events/a%252Fb/visits", "/v1/count?event=a%252Fb", "a%2Fb"),
            ("/v1/events/a+b", "/v1/count?event=a%2Bb", "a+b"),
        ];
        for (path, query, id) in pairs {
            assert_eq!(of(path).unwrap(), id, "{path}");
            assert_eq!(of(query).unwrap(), id, "{query}");
        }
    }

    #[test]
    fn broken_ids_are_named() {
        let cases = [
            ("/v1/events/%ff/count", "must be UTF-8 when percent-decoded"),
            ("/v1/events/%00/count", "must not contain control characters"),
            ("/v1/events/%2e%2E/count", "must not be '.' or '..', which proxies take for folders"),
            ("/v1/events/a%20b/count", "must not contain white space"),
            ("/v1/count?event=a+b", "must not contain white space"),
            ("/v1/count?event=", "must not be empty"),
            ("/v1/count", "is required in the query"),
        ];
        for (uri, rule) in cases {
            let problem = of(uri).unwrap_err();
            let (_, field, rule_is) = problem.named();
            assert_eq!((field, rule_is), ("event", rule), "{uri}");
        }
    }

    #[test]
    fn an_id_is_taken_from_one_place_only() {
        assert!(of("/v1/events/a/count?event=b").is_err());
    }
}
