//! Handlers of the admin listener.

pub mod campaign_answer;
pub mod campaigns;
pub mod claims;
pub mod events;
pub mod ledger;
pub mod packets;

use axum::http::{HeaderMap, Uri, header};
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::{Kind, Problem};
use super::query::{Known, Query};
use crate::domain::period::Retention;
use crate::domain::ring::Shards;

/// Ids on one page at most.
const PAGE_MAX: usize = 1_000;
const PAGE_DEFAULT: usize = 100;

/// One page of ids.
#[derive(Serialize, ToSchema)]
pub struct PageAnswer {
    pub ids: Vec<String>,
    /// The `cursor` of the next page; null at the end.
    pub next: Option<String>,
}

fn invalid(field: &'static str, rule: &'static str) -> Problem {
    Problem::field(Kind::InvalidField, field, rule)
}

/// Which page is asked for: `cursor` and `limit`.
fn page(uri: &Uri) -> Result<(Option<String>, usize), Problem> {
    page_with(&Query::parse(uri, Known { names: &["cursor", "limit"], later: &[] }, None)?)
}

fn page_with(query: &Query) -> Result<(Option<String>, usize), Problem> {
    let limit = query.get("limit").map_or(Some(PAGE_DEFAULT), |text| text.parse().ok());
    match limit.filter(|limit| (1..=PAGE_MAX).contains(limit)) {
        Some(limit) => Ok((query.get("cursor").map(str::to_owned), limit)),
        None => Err(Problem::field(Kind::InvalidField, "limit", "must be a whole number from 1 to 1000")),
    }
}

/// The version that If-Match asks for; None where it asks for none, or for any.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if value == "*" {
        return Ok(None);
    }
    let version = value.to_str().ok().and_then(|text| text.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
    match (version, values.next()) {
        (Some(version), None) => Ok(Some(version)),
        _ => Err(Problem::field(Kind::Malformed, "If-Match", "must be one ETag as an answer gave it, like \"3\"")),
    }
}

fn shards(count: Option<u64>) -> Result<Option<Shards>, Problem> {
    let parse = |count| {
        Shards::new(count)
            .ok_or_else(|| Problem::field(Kind::InvalidField, "shards", "must be a power of two from 1 to 1024"))
    };
    count.map(parse).transpose()
}

fn retention(days: Option<u64>) -> Result<Option<Retention>, Problem> {
    let parse = |days: u64| {
        u32::try_from(days).ok().and_then(Retention::days).ok_or_else(|| {
            let rule = format!("must be a whole number from 1 to {}", Retention::DAYS_MAX);
            Problem::field(Kind::InvalidField, "retention_days", rule)
        })
    };
    days.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_takes_one_version() {
        let of = |text: &str| if_match(&HeaderMap::from_iter([(header::IF_MATCH, text.parse().unwrap())]));
        assert_eq!(if_match(&HeaderMap::new()).unwrap(), None);
        assert_eq!(of("*").unwrap(), None);
        assert_eq!(of("\"3\"").unwrap(), Some(3));
        for bad in ["3", "W/\"3\"", "\"3\", \"4\"", "\"x\"", "\""] {
            assert_eq!(of(bad).unwrap_err().named().1, "If-Match", "{bad}");
        }
    }

    #[test]
    fn pages_are_bounded() {
        let of = |query: &str| page(&format!("/v1/events{query}").parse().unwrap());
        assert_eq!(of("").unwrap(), (None, 100));
        assert_eq!(of("?limit=1000&cursor=a%2Fb").unwrap(), (Some("a/b".into()), 1000));
        for bad in ["?limit=0", "?limit=1001", "?limit=-1", "?limit=", "?limit=ten"] {
            assert_eq!(of(bad).unwrap_err().named().1, "limit", "{bad}");
        }
    }
}
