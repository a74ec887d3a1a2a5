//! Red packets: what they are to hold, adding a list in parts, and how they came out.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::campaign_answer::CampaignAnswer;
use super::invalid;
use crate::api::problem::{Kind, Problem, ProblemBody};
use crate::api::query::Known;
use crate::api::response::{ClaimAnswer, json_no_store, record};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::domain::packets::{CENTS_MAX, PACKETS_MAX, Split, check_amounts};
use crate::service::error::ServiceError;
use crate::service::manage::packets::NewPackets;
use crate::service::quota::packets::{PART_PACKETS_MAX, Part};
use crate::service::quota::results::Results;

/// What packets hold: a sum to split (`total_cents`, `count`, and bounds), or `amounts`, or `upload` for a list that
/// comes in parts.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct PacketsBody {
    /// Whole cents, all packets together.
    #[schema(example = 10000)]
    total_cents: Option<i64>,
    /// 1 to 1,000,000 packets.
    #[schema(example = 100)]
    count: Option<u64>,
    /// The least a packet holds; 1 if absent.
    #[schema(example = 1)]
    min_cents: Option<i64>,
    /// The most a packet holds; all that the others leave, if absent.
    #[schema(example = 5000)]
    max_cents: Option<i64>,
    /// What each packet holds, in the order of their numbers, in place of all else.
    amounts: Option<Vec<i64>>,
    /// true: the amounts come in parts by `POST …/packets`; the campaign opens with the last. Needs count and total_cents.
    upload: Option<bool>,
}

impl PacketsBody {
    pub fn parse(&self) -> Result<NewPackets, Problem> {
        let upload = self.upload.unwrap_or(false);
        if let Some(amounts) = &self.amounts {
            let others = [self.total_cents, self.min_cents, self.max_cents];
            if others.iter().any(Option::is_some) || self.count.is_some() || upload {
                return Err(invalid("packets.amounts", "must be alone: it says count, total and bounds itself"));
            }
            let total_cents = check_amounts(amounts).map_err(ServiceError::from)?;
            return Ok(NewPackets::List { count: amounts.len() as u64, total_cents, amounts: Some(amounts.clone()) });
        }
        let total_cents = self.total_cents.ok_or_else(|| invalid("packets.total_cents", "is required"))?;
        let count = self.count.ok_or_else(|| invalid("packets.count", "is required"))?;
        if upload && (self.min_cents.is_some() || self.max_cents.is_some()) {
            return Err(invalid(
                "packets.upload",
                "must be without min_cents and max_cents: the list says what each holds",
            ));
        }
        let (min, max) = (self.min_cents.unwrap_or(1), self.max_cents.unwrap_or(total_cents.max(1)));
        let split = Split::new(total_cents, count, min, max).map_err(ServiceError::from)?;
        Ok(if upload { NewPackets::List { count, total_cents, amounts: None } } else { NewPackets::Draw(split) })
    }
}

/// Adds a part to a list of packets; with the last one the campaign opens. The same part again does no harm.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/packets",
    tag = "packets",
    security(("token" = [])),
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("first" = u64, Query, description = "The number of the part's first packet: 1, then the next that is missing")
    ),
    request_body(
        content = String,
        content_type = "application/x-ndjson",
        description = "A whole number of cents per line; at most 100,000 lines, 8 MiB, gzip allowed"
    ),
    responses(
        (status = 200, description = "In, with how far the list is", body = CampaignAnswer),
        (status = 404, description = "No such campaign", body = ProblemBody),
        (status = 409, description = "Sent before with other amounts, or no list", body = ProblemBody),
        (status = 422, description = "A line or the number breaks a rule; nothing is in", body = ProblemBody)
    )
)]
pub async fn add(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (campaign, query) = id::campaign(&head.uri, Known { names: &["first"], later: &[] })?;
    let first = query.get("first").ok_or_else(|| invalid("first", "is required"))?;
    let first = first.parse::<u64>().ok().filter(|first| (1..=PACKETS_MAX).contains(first));
    let first = first.ok_or_else(|| invalid("first", "must be a whole number from 1 to 1000000"))?;
    let bytes = body::lines(&head.headers, body, app.config.body_timeout).await?;
    let part = Part { first, cents: amounts(&bytes)? };
    let view = app.campaigns.add_packets(&campaign, &part).await?;
    Ok(record(StatusCode::OK, view.version, &CampaignAnswer::from(view)))
}

/// Reads a part; the first bad line refuses it whole.
fn amounts(bytes: &[u8]) -> Result<Vec<i64>, Problem> {
    let mut cents = Vec::new();
    for (place, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let amount = serde_json::from_slice::<i64>(line).ok().filter(|amount| (1..=CENTS_MAX).contains(amount));
        let Some(amount) = amount else {
            let rule = format!("must be whole cents from 1 to {CENTS_MAX}");
            return Err(Problem::field(Kind::InvalidField, format!("line {}", place + 1), rule));
        };
        if cents.len() == PART_PACKETS_MAX {
            return Err(invalid("body", "must have at most 100000 lines: send the rest as the next part"));
        }
        cents.push(amount);
    }
    if cents.is_empty() { Err(invalid("body", "must have a line for each packet")) } else { Ok(cents) }
}

/// How the packets of a campaign came out so far.
#[derive(Serialize, ToSchema)]
pub struct ResultsAnswer<'a> {
    campaign: &'a str,
    /// Packets, and what they hold together.
    count: u64,
    total_cents: i64,
    /// Those that somebody has.
    claimed: u64,
    claimed_cents: i64,
    /// Those that nobody will get, from closing on.
    refunded: u64,
    refunded_cents: i64,
    /// Those that are left.
    remaining: u64,
    remaining_cents: i64,
    /// The claim with the largest packet; of several the earliest. Null before the first.
    luckiest: Option<ClaimAnswer<'a>>,
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
}

/// How the packets came out so far: sums to the cent, and the luckiest claim.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{campaign}/results",
    tag = "packets",
    security(("token" = [])),
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded")),
    responses(
        (status = 200, description = "Results so far", body = ResultsAnswer),
        (status = 404, description = "No such campaign", body = ProblemBody),
        (status = 409, description = "It is not one of packets", body = ProblemBody),
        (status = 503, description = "A shard does not answer", body = ProblemBody)
    )
)]
pub async fn results(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, _) = id::campaign(request.uri(), Known::default())?;
    let results = app.hard.results(&campaign).await?;
    let Results { count, total_cents, claimed, claimed_cents, refunded, refunded_cents, luckiest, as_of } = &results;
    Ok(json_no_store(
        StatusCode::OK,
        &ResultsAnswer {
            campaign: campaign.as_str(),
            count: *count,
            total_cents: *total_cents,
            claimed: *claimed,
            claimed_cents: *claimed_cents,
            refunded: *refunded,
            refunded_cents: *refunded_cents,
            // The pools are read one after the other: a packet that comes back and is claimed elsewhere meanwhile may
            // be seen twice.
            remaining: count.saturating_sub(claimed + refunded),
            remaining_cents: (total_cents - claimed_cents - refunded_cents).max(0),
            luckiest: luckiest.as_ref().map(|claim| ClaimAnswer::of(campaign.as_str(), claim)),
            as_of: *as_of,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::object;

    fn parsed(body: &str) -> Result<NewPackets, Problem> {
        object::<PacketsBody>(body.as_bytes())?.parse()
    }

    #[test]
    fn a_list_is_alone_and_a_draw_is_whole() {
        assert_eq!(
            parsed(r#"{"amounts":[5,1]}"#).unwrap(),
            NewPackets::List { count: 2, total_cents: 6, amounts: Some(vec![5, 1]) }
        );
        assert_eq!(
            parsed(r#"{"total_cents":9,"count":3}"#).unwrap(),
            NewPackets::Draw(Split::new(9, 3, 1, 9).unwrap())
        );
        for (body, field) in [
            (r#"{"amounts":[5],"count":1}"#, "packets.amounts"),
            (r#"{"amounts":[]}"#, "packets.count"),
            (r#"{"amounts":[5,0]}"#, "packets.amounts"),
            (r#"{"count":3}"#, "packets.total_cents"),
            (r#"{"total_cents":9}"#, "packets.count"),
            (r#"{"total_cents":9,"count":10}"#, "packets.total_cents"),
            (r#"{"total_cents":9,"count":3,"max_cents":2}"#, "packets.total_cents"),
            (r#"{"total_cents":9,"count":3,"min_cents":0}"#, "packets.min_cents"),
            (r#"{"total_cents":9,"count":3,"min_cents":3,"max_cents":2}"#, "packets.max_cents"),
            (r#"{"total_cents":9,"count":3,"upload":true,"min_cents":1}"#, "packets.upload"),
        ] {
            assert_eq!(parsed(body).unwrap_err().named().1, field, "{body}");
        }
    }

    #[test]
    fn a_bad_line_is_named_and_refuses_the_part() {
        assert_eq!(amounts(b"5\n\n 7 \n").unwrap(), [5, 7]);
        for (bytes, field) in
            [(&b"5\n0\n"[..], "line 2"), (b"5\n1.5\n", "line 2"), (b"x", "line 1"), (b"", "body"), (b"\n", "body")]
        {
            assert_eq!(amounts(bytes).unwrap_err().named().1, field);
        }
    }
}
