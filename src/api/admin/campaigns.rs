//! Campaigns: created once, changed by version, closed for good.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::campaign_answer::CampaignAnswer;
use super::packets::PacketsBody;
use super::{PageAnswer, if_match, invalid, page, shards};
use crate::api::json::{Object, Text, object};
use crate::api::problem::{Problem, ProblemBody};
use crate::api::query::Known;
use crate::api::request::time;
use crate::api::response::{json_no_store, record};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::service::error::ServiceError;
use crate::service::manage::campaign_view::OnStale;
use crate::service::manage::campaigns::{CampaignPatch, NewAdmission, NewCampaign};

/// The largest quota: a hundred times the people there are, and exact in every language's numbers.
pub const QUOTA_MAX: u64 = 1_000_000_000_000;

/// Each unit of a hard campaign is an entry in the store: this many take about a hundred megabytes of Redis.
pub const HARD_QUOTA_MAX: u64 = 10_000_000;
/// Each shard remembers what came from every other one.
const HARD_SHARDS_MAX: u16 = 64;
/// A month.
const HOLD_S_MAX: u64 = 2_592_000;

/// A campaign to create.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct CampaignBody<'a> {
    /// `soft`: quota minus estimated claimants; `hard`: exact; `packets`: exact, and each unit holds an amount. Required, because the choice is yours to make.
    #[serde(borrow)]
    #[schema(value_type = String, example = "soft")]
    admission: Option<Text<'a>>,
    /// 1 to 1,000,000,000,000 places, 10,000,000 in a hard campaign. Not of packets: their number is the quota.
    #[schema(example = 10000)]
    quota: Option<u64>,
    /// RFC 3339; at once if absent.
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Text<'a>>,
    /// RFC 3339, after the opening; until closed if absent.
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Text<'a>>,
    /// A power of two, at most 1024 for soft and 64 for hard campaigns; if absent the deployment's default, or one for
    /// every 64 units and at most 16.
    #[schema(example = 16)]
    shards: Option<u64>,
    /// Of a hard campaign: seconds for which a claim is held before it must be confirmed; 0 or absent: claims are
    /// confirmed at once.
    #[schema(example = 900)]
    hold_s: Option<u64>,
    /// Of a soft campaign: what happens to claims while the reading is over 2 s old: `refuse` (default) or `admit`.
    #[schema(value_type = Option<String>, example = "refuse")]
    on_stale: Option<Text<'a>>,
    /// Of a campaign of packets: what they hold.
    #[schema(value_type = Option<PacketsBody>)]
    packets: Option<Object<PacketsBody>>,
}

impl<'a> CampaignBody<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<NewCampaign, Problem> {
        let body: Self = object(bytes)?;
        let admission = body.admission()?;
        let opens_at = time(body.opens_at.as_ref(), "opens_at")?;
        let closes_at = time(body.closes_at.as_ref(), "closes_at")?;
        check_order(opens_at, closes_at)?;
        let quota = body.quota(&admission)?;
        let shards = shards(body.shards)?;
        let is_exact = !matches!(admission, NewAdmission::Soft { .. });
        if is_exact && shards.is_some_and(|shards| shards.count() > HARD_SHARDS_MAX) {
            return Err(invalid("shards", "must be a power of two from 1 to 64 in a campaign that is not soft"));
        }
        Ok(NewCampaign { quota, opens_at, closes_at, shards, admission })
    }

    fn admission(&self) -> Result<NewAdmission, Problem> {
        let word = self.admission.as_ref().map(Text::as_str);
        if word != Some("packets") && self.packets.is_some() {
            return Err(invalid("packets", "belongs to campaigns with admission packets"));
        }
        match word {
            Some("soft") if self.hold_s.is_some() => Err(invalid("hold_s", "belongs to campaigns that are not soft")),
            Some("soft") => Ok(NewAdmission::Soft { on_stale: on_stale(self.on_stale.as_ref())? }),
            Some("hard" | "packets") if self.on_stale.is_some() => {
                Err(invalid("on_stale", "belongs to soft campaigns"))
            }
            Some("hard") => Ok(NewAdmission::Hard { hold_s: self.hold_s()? }),
            Some("packets") => {
                let Object(packets) = self.packets.as_ref().ok_or_else(|| invalid("packets", "is required"))?;
                Ok(NewAdmission::Packets { hold_s: self.hold_s()?, packets: packets.parse()? })
            }
            Some(_) => Err(invalid("admission", "must be soft, hard or packets")),
            None => Err(invalid("admission", "is required: choose soft, hard or packets")),
        }
    }

    fn hold_s(&self) -> Result<u64, Problem> {
        match self.hold_s.unwrap_or(0) {
            hold_s if hold_s <= HOLD_S_MAX => Ok(hold_s),
            _ => Err(invalid("hold_s", "must be a whole number of seconds from 0 to 2592000")),
        }
    }

    fn quota(&self, admission: &NewAdmission) -> Result<u64, Problem> {
        match (admission, self.quota) {
            (NewAdmission::Packets { packets, .. }, None) => Ok(packets.count()),
            (NewAdmission::Packets { .. }, Some(_)) => {
                Err(invalid("quota", "must be absent: the quota is the number of packets"))
            }
            (NewAdmission::Hard { .. }, Some(places)) if places > HARD_QUOTA_MAX => {
                Err(invalid("quota", "must be at most 10000000 in a hard campaign"))
            }
            (_, Some(places)) => quota(places),
            (_, None) => Err(invalid("quota", "is required")),
        }
    }
}

/// What changes of a campaign; what is absent stays.
#[derive(Deserialize, ToSchema, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct CampaignPatchBody<'a> {
    #[schema(example = 12000)]
    quota: Option<u64>,
    #[serde(borrow)]
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Text<'a>>,
    /// null: no end any more.
    #[serde(default, deserialize_with = "null_is_something")]
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Option<Text<'a>>>,
    paused: Option<bool>,
}

impl<'a> CampaignPatchBody<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<CampaignPatch, Problem> {
        let body: Self = object(bytes)?;
        let opens_at = time(body.opens_at.as_ref(), "opens_at")?;
        let closes_at = match &body.closes_at {
            Some(text) => Some(time(text.as_ref(), "closes_at")?),
            None => None,
        };
        check_order(opens_at, closes_at.flatten())?;
        let patch =
            CampaignPatch { quota: body.quota.map(quota).transpose()?, opens_at, closes_at, paused: body.paused };
        if patch == CampaignPatch::default() {
            return Err(invalid("body", "must change something: quota, opens_at, closes_at or paused"));
        }
        Ok(patch)
    }
}

/// Ids of campaigns.
#[utoipa::path(
    get,
    path = "/v1/campaigns",
    tag = "campaigns",
    security(("token" = [])),
    params(
        ("limit" = Option<usize>, Query, description = "1 to 1,000; 100 if absent"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before")
    ),
    responses((status = 200, description = "One page", body = PageAnswer))
)]
pub async fn list(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (cursor, limit) = page(request.uri())?;
    let page = app.campaigns.list(cursor.as_deref(), limit).await?;
    Ok(json_no_store(StatusCode::OK, &PageAnswer { ids: page.ids, next: page.next }))
}

/// A campaign as it stands.
#[utoipa::path(
    get,
    path = "/v1/campaigns/{campaign}",
    tag = "campaigns",
    security(("token" = [])),
    params(("campaign" = String, Path, description = "The campaign's id, percent-encoded")),
    responses(
        (status = 200, description = "As it stands", body = CampaignAnswer),
        (status = 404, description = "No such campaign", body = ProblemBody)
    )
)]
pub async fn get(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, _) = id::campaign(request.uri(), Known::default())?;
    let view = app.campaigns.get(&campaign).await?;
    Ok(record(StatusCode::OK, view.version, &CampaignAnswer::from(view)))
}

/// Creates a campaign. The same body again changes nothing; another one is refused.
#[utoipa::path(
    put,
    path = "/v1/campaigns/{campaign}",
    tag = "campaigns",
    security(("token" = [])),
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The ETag that must stand")
    ),
    request_body = CampaignBody,
    responses(
        (status = 200, description = "It stands already, with this body", body = CampaignAnswer),
        (status = 201, description = "Created", body = CampaignAnswer),
        (status = 409, description = "It stands with another body: use PATCH", body = ProblemBody),
        (status = 412, description = "Another version stands", body = ProblemBody),
        (status = 422, description = "A field breaks a rule", body = ProblemBody)
    )
)]
pub async fn put(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (campaign, _) = id::campaign(&head.uri, Known::default())?;
    let version = if_match(&head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let new = CampaignBody::parse(&bytes)?;
    if let Some(asked) = version {
        // PUT never changes a record that stands, so that looking first is enough.
        let present = match app.campaigns.get(&campaign).await {
            Ok(view) => view.version,
            Err(ServiceError::NoCampaign) => 0,
            Err(error) => return Err(error.into()),
        };
        if present != asked {
            return Err(ServiceError::VersionMismatch { present }.into());
        }
    }
    let (view, created) = app.campaigns.put(&campaign, new).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(record(status, view.version, &CampaignAnswer::from(view)))
}

/// Changes quota, times or pause.
#[utoipa::path(
    patch,
    path = "/v1/campaigns/{campaign}",
    tag = "campaigns",
    security(("token" = [])),
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The ETag that must stand")
    ),
    request_body = CampaignPatchBody,
    responses(
        (status = 200, description = "Changed", body = CampaignAnswer),
        (status = 404, description = "No such campaign", body = ProblemBody),
        (status = 412, description = "Another version stands", body = ProblemBody),
        (status = 422, description = "A field breaks a rule", body = ProblemBody)
    )
)]
pub async fn patch(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (campaign, _) = id::campaign(&head.uri, Known::default())?;
    let version = if_match(&head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let view = app.campaigns.patch(&campaign, CampaignPatchBody::parse(&bytes)?, version).await?;
    Ok(record(StatusCode::OK, view.version, &CampaignAnswer::from(view)))
}

/// Closes a campaign for good; again is fine.
#[utoipa::path(
    post,
    path = "/v1/campaigns/{campaign}/close",
    tag = "campaigns",
    security(("token" = [])),
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The ETag that must stand")
    ),
    responses(
        (status = 200, description = "Closed", body = CampaignAnswer),
        (status = 404, description = "No such campaign", body = ProblemBody),
        (status = 412, description = "Another version stands", body = ProblemBody)
    )
)]
pub async fn close(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, _) = id::campaign(request.uri(), Known::default())?;
    let view = app.campaigns.close(&campaign, if_match(request.headers())?).await?;
    Ok(record(StatusCode::OK, view.version, &CampaignAnswer::from(view)))
}

/// Forgets the claims of a closed hard campaign. The record stays, so that the id is not used again.
#[utoipa::path(
    delete,
    path = "/v1/campaigns/{campaign}",
    tag = "campaigns",
    security(("token" = [])),
    params(
        ("campaign" = String, Path, description = "The campaign's id, percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The ETag that must stand")
    ),
    responses(
        (status = 200, description = "Removed; again is fine", body = CampaignAnswer),
        (status = 404, description = "No such campaign, or a soft one", body = ProblemBody),
        (status = 409, description = "It is not closed yet", body = ProblemBody),
        (status = 412, description = "Another version stands", body = ProblemBody)
    )
)]
pub async fn remove(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (campaign, _) = id::campaign(request.uri(), Known::default())?;
    let view = app.campaigns.remove(&campaign, if_match(request.headers())?).await?;
    Ok(record(StatusCode::OK, view.version, &CampaignAnswer::from(view)))
}

fn quota(places: u64) -> Result<u64, Problem> {
    if (1..=QUOTA_MAX).contains(&places) {
        return Ok(places);
    }
    Err(invalid("quota", "must be a whole number from 1 to 1000000000000"))
}

fn on_stale(text: Option<&Text<'_>>) -> Result<OnStale, Problem> {
    match text.map(Text::as_str) {
        None | Some("refuse") => Ok(OnStale::Refuse),
        Some("admit") => Ok(OnStale::Admit),
        Some(_) => Err(invalid("on_stale", "must be refuse or admit")),
    }
}

fn check_order(opens_at: Option<Timestamp>, closes_at: Option<Timestamp>) -> Result<(), Problem> {
    match (opens_at, closes_at) {
        (Some(opens), Some(closes)) if closes <= opens => Err(invalid("closes_at", "must be after opens_at")),
        _ => Ok(()),
    }
}

/// Tells a field that is null (Some(None)) from one that is absent (None).
fn null_is_something<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_is_read() {
        let new = CampaignBody::parse(br#"{"admission":"soft","quota":10,"opens_at":"2026-11-11T00:00:00+08:00"}"#);
        let new = new.unwrap();
        assert_eq!(new.opens_at.unwrap().to_string(), "2026-11-10T16:00:00Z");
        let soft = NewAdmission::Soft { on_stale: OnStale::Refuse };
        assert_eq!((new.quota, new.shards, new.admission), (10, None, soft));
        let hard = CampaignBody::parse(br#"{"admission":"hard","quota":10,"hold_s":900}"#).unwrap();
        assert_eq!(hard.admission, NewAdmission::Hard { hold_s: 900 });
    }

    #[test]
    fn null_takes_the_end_away_and_absence_leaves_it() {
        let patch = |text: &str| CampaignPatchBody::parse(text.as_bytes()).unwrap();
        assert_eq!(patch(r#"{"closes_at":null}"#).closes_at, Some(None));
        assert_eq!(patch(r#"{"paused":true}"#).closes_at, None);
        let end = patch(r#"{"closes_at":"2026-11-12T00:00:00Z"}"#).closes_at;
        assert_eq!(end.flatten().unwrap().to_string(), "2026-11-12T00:00:00Z");
    }

    #[test]
    fn broken_campaigns_are_refused_by_field_and_rule() {
        let cases = [
            (r#"{"quota":1}"#, "admission", "is required: choose soft, hard or packets"),
            (r#"{"admission":"soft"}"#, "quota", "is required"),
            (r#"{"admission":"soft","quota":0}"#, "quota", "must be a whole number from 1 to 1000000000000"),
            (r#"{"admission":"soft","quota":-1}"#, "quota", "must be a whole number, 0 or more, not integer `-1`"),
            (r#"{"admission":"soft","quota":1,"shards":12}"#, "shards", "must be a power of two from 1 to 1024"),
            (
                r#"{"admission":"packets","packets":{"total_cents":5,"count":1},"quota":1}"#,
                "quota",
                "must be absent: the quota is the number of packets",
            ),
            (r#"{"admission":"packets"}"#, "packets", "is required"),
            (
                r#"{"admission":"hard","quota":1,"packets":{"total_cents":5,"count":1}}"#,
                "packets",
                "belongs to campaigns with admission packets",
            ),
            (r#"{"admission":"maybe","quota":1}"#, "admission", "must be soft, hard or packets"),
            (r#"{"admission":"soft","quota":1,"hold_s":9}"#, "hold_s", "belongs to campaigns that are not soft"),
            (r#"{"admission":"hard","quota":1,"on_stale":"admit"}"#, "on_stale", "belongs to soft campaigns"),
            (
                r#"{"admission":"hard","quota":1,"hold_s":2592001}"#,
                "hold_s",
                "must be a whole number of seconds from 0 to 2592000",
            ),
            (r#"{"admission":"hard","quota":10000001}"#, "quota", "must be at most 10000000 in a hard campaign"),
            (
                r#"{"admission":"hard","quota":1,"shards":128}"#,
                "shards",
                "must be a power of two from 1 to 64 in a campaign that is not soft",
            ),
            (r#"{"admission":"soft","quota":1,"on_stale":"x"}"#, "on_stale", "must be refuse or admit"),
            (
                r#"{"admission":"soft","quota":1,"opens_at":"2026-01-02T00:00:00Z","closes_at":"2026-01-01T00:00:00Z"}"#,
                "closes_at",
                "must be after opens_at",
            ),
        ];
        for (body, field, rule) in cases {
            let problem = CampaignBody::parse(body.as_bytes()).unwrap_err();
            let (_, field_is, rule_is) = problem.named();
            assert_eq!((field_is, rule_is), (field, rule), "{body}");
        }
        assert_eq!(CampaignPatchBody::parse(b"{}").unwrap_err().named().1, "body");
    }
}
