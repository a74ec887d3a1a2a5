//! Every error that leaves: `application/problem+json` (RFC 9457).

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong, in a form that programs can rely on: `type` is `/problems/` and the slug, and never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Malformed,
    InvalidField,
    NotInThisVersion,
    TooLarge,
    SlowBody,
    UnsupportedEncoding,
    NotFound,
    MethodNotAllowed,
    Unauthorized,
    NoSuchCampaign,
    NotKeptBySoft,
    NoSuchClaim,
    Conflict,
    VersionMismatch,
    SoldOut,
    NotOpen,
    Paused,
    Closed,
    ClaimEnded,
    ClaimVoided,
    ClaimLate,
    ClaimConfirmed,
    ClaimUnconfirmed,
    ClaimPending,
    CampaignPreparing,
    ShardAdmitting,
    ShardMending,
    LedgerUnavailable,
    NoLedger,
    ShardLost,
    BufferFull,
    NoReading,
    ReadingTooOld,
    NextReading,
    StoreUnavailable,
    Overloaded,
    NotReady,
    OtherHashKey,
    StoreRefuses,
}

impl Kind {
    pub const ALL: [Kind; 39] = [
        Kind::Malformed,
        Kind::InvalidField,
        Kind::NotInThisVersion,
        Kind::TooLarge,
        Kind::SlowBody,
        Kind::UnsupportedEncoding,
        Kind::NotFound,
        Kind::MethodNotAllowed,
        Kind::Unauthorized,
        Kind::NoSuchCampaign,
        Kind::NotKeptBySoft,
        Kind::NoSuchClaim,
        Kind::Conflict,
        Kind::VersionMismatch,
        Kind::SoldOut,
        Kind::NotOpen,
        Kind::Paused,
        Kind::Closed,
        Kind::ClaimEnded,
        Kind::ClaimVoided,
        Kind::ClaimLate,
        Kind::ClaimConfirmed,
        Kind::ClaimUnconfirmed,
        Kind::ClaimPending,
        Kind::CampaignPreparing,
        Kind::ShardAdmitting,
        Kind::ShardMending,
        Kind::LedgerUnavailable,
        Kind::NoLedger,
        Kind::ShardLost,
        Kind::BufferFull,
        Kind::NoReading,
        Kind::ReadingTooOld,
        Kind::NextReading,
        Kind::StoreUnavailable,
        Kind::Overloaded,
        Kind::NotReady,
        Kind::OtherHashKey,
        Kind::StoreRefuses,
    ];

    /// Type, status and title: one line each, as `docs/API.md` has them.
    pub fn parts(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Kind::Malformed => ("/problems/malformed", S::BAD_REQUEST, "The request cannot be read"),
            Kind::InvalidField => ("/problems/invalid-field", S::UNPROCESSABLE_ENTITY, "A field breaks a rule"),
            Kind::NotInThisVersion => ("/problems/not-in-this-version", S::UNPROCESSABLE_ENTITY, "Not in this version"),
            Kind::TooLarge => ("/problems/too-large", S::PAYLOAD_TOO_LARGE, "The body is too large"),
            Kind::SlowBody => ("/problems/slow-body", S::REQUEST_TIMEOUT, "The body did not arrive in time"),
            Kind::UnsupportedEncoding => {
                ("/problems/unsupported-encoding", S::UNSUPPORTED_MEDIA_TYPE, "The body's encoding is not supported")
            }
            Kind::NotFound => ("/problems/not-found", S::NOT_FOUND, "There is no such call"),
            Kind::MethodNotAllowed => {
                ("/problems/method-not-allowed", S::METHOD_NOT_ALLOWED, "This call has other methods")
            }
            Kind::Unauthorized => ("/problems/unauthorized", S::UNAUTHORIZED, "The admin token is missing or wrong"),
            Kind::NoSuchCampaign => ("/problems/no-such-campaign", S::NOT_FOUND, "There is no such campaign"),
            Kind::NotKeptBySoft => ("/problems/not-kept-by-soft", S::NOT_FOUND, "Soft campaigns keep no single claims"),
            Kind::NoSuchClaim => ("/problems/no-such-claim", S::NOT_FOUND, "There is no such claim"),
            Kind::Conflict => ("/problems/conflict", S::CONFLICT, "Another record stands"),
            Kind::VersionMismatch => ("/problems/version-mismatch", S::PRECONDITION_FAILED, "The record has changed"),
            Kind::SoldOut => ("/problems/sold-out", S::CONFLICT, "Sold out"),
            Kind::NotOpen => ("/problems/not-open", S::CONFLICT, "Not open yet"),
            Kind::Paused => ("/problems/paused", S::CONFLICT, "Paused"),
            Kind::Closed => ("/problems/closed", S::CONFLICT, "Closed"),
            Kind::ClaimEnded => ("/problems/claim-ended", S::CONFLICT, "This claim has ended"),
            Kind::ClaimVoided => ("/problems/claim-voided", S::CONFLICT, "The user's claim was taken away"),
            Kind::ClaimLate => ("/problems/claim-late", S::CONFLICT, "Too late to confirm"),
            Kind::ClaimConfirmed => ("/problems/claim-confirmed", S::CONFLICT, "The claim is confirmed"),
            Kind::ClaimUnconfirmed => {
                ("/problems/claim-unconfirmed", S::SERVICE_UNAVAILABLE, "Not confirmed by the replicas")
            }
            Kind::ClaimPending => ("/problems/claim-pending", S::SERVICE_UNAVAILABLE, "No answer in time"),
            Kind::CampaignPreparing => {
                ("/problems/campaign-preparing", S::SERVICE_UNAVAILABLE, "The campaign is being prepared")
            }
            Kind::LedgerUnavailable => {
                ("/problems/ledger-unavailable", S::SERVICE_UNAVAILABLE, "The ledger does not answer")
            }
            Kind::NoLedger => ("/problems/no-ledger", S::CONFLICT, "There is no ledger"),
            Kind::ShardMending => {
                ("/problems/shard-mending", S::SERVICE_UNAVAILABLE, "A part of the campaign is being put right")
            }
            Kind::ShardAdmitting => {
                ("/problems/shard-admitting", S::SERVICE_UNAVAILABLE, "A part of the campaign has just moved")
            }
            Kind::ShardLost => ("/problems/shard-lost", S::SERVICE_UNAVAILABLE, "A part of the campaign has lost data"),
            Kind::BufferFull => ("/problems/buffer-full", S::SERVICE_UNAVAILABLE, "The buffer of visits is full"),
            Kind::NoReading => ("/problems/no-reading", S::SERVICE_UNAVAILABLE, "No count is known"),
            Kind::ReadingTooOld => {
                ("/problems/reading-too-old", S::SERVICE_UNAVAILABLE, "The last reading is too old to admit on")
            }
            Kind::NextReading => ("/problems/next-reading", S::SERVICE_UNAVAILABLE, "Waiting for the next reading"),
            Kind::StoreUnavailable => {
                ("/problems/store-unavailable", S::SERVICE_UNAVAILABLE, "The store does not answer")
            }
            Kind::Overloaded => ("/problems/overloaded", S::SERVICE_UNAVAILABLE, "Too many requests are under way"),
            Kind::NotReady => ("/problems/not-ready", S::SERVICE_UNAVAILABLE, "Not ready for traffic"),
            Kind::OtherHashKey => {
                ("/problems/other-hash-key", S::INTERNAL_SERVER_ERROR, "This process has another hash key")
            }
            Kind::StoreRefuses => ("/problems/store-refuses", S::INTERNAL_SERVER_ERROR, "The store refuses"),
        }
    }
}

/// An error answer. Boxed, because it travels in every handler's `Result`.
#[derive(Clone, Debug)]
pub struct Problem(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    body: ProblemBody,
    status: StatusCode,
    retry_after_s: Option<u64>,
}

/// An error as it leaves.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProblemBody {
    /// What went wrong, for programs; `docs/API.md` lists them.
    #[serde(rename = "type")]
    #[schema(example = "/problems/invalid-field")]
    kind: &'static str,
    title: &'static str,
    /// The HTTP status.
    #[schema(value_type = u16, example = 422)]
    status: u16,
    /// A sentence that says what to do.
    #[schema(value_type = String)]
    detail: Cow<'static, str>,
    /// The field, query parameter, path segment or header that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "user")]
    field: Option<Cow<'static, str>>,
    /// The rule it breaks: reads on from the field's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "must not be empty")]
    rule: Option<Cow<'static, str>>,
    /// Of a refused claim: `sold_out`, `not_open`, `paused`, `closed`, `ended`, `voided`, `late`, `confirmed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    /// Of a refused claim: the answer rests on a reading older than promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
    /// Of a claim that has ended, or is confirmed: its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// Sold out: units are held, or came back and are not claimable yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_return: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    closes_at: Option<Timestamp>,
}

impl Problem {
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        let (slug, status, title) = kind.parts();
        let body = ProblemBody {
            kind: slug,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            field: None,
            rule: None,
            outcome: None,
            stale: None,
            state: None,
            may_return: None,
            opens_at: None,
            closes_at: None,
        };
        Self(Box::new(Parts { body, status, retry_after_s: None }))
    }

    /// A field that breaks a rule. The rule reads on from the field's name: `must not be empty`.
    pub fn field(kind: Kind, field: impl Into<Cow<'static, str>>, rule: impl Into<Cow<'static, str>>) -> Self {
        let (field, rule) = (field.into(), rule.into());
        let mut problem = Self::new(kind, format!("Correct `{field}` and send the request again: it {rule}."));
        problem.0.body.field = Some(field);
        problem.0.body.rule = Some(rule);
        problem
    }

    /// The same with a sentence of its own.
    pub fn field_with_detail(
        kind: Kind,
        field: impl Into<Cow<'static, str>>,
        rule: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut problem = Self::new(kind, detail);
        problem.0.body.field = Some(field.into());
        problem.0.body.rule = Some(rule.into());
        problem
    }

    #[must_use]
    pub fn retry_after_s(mut self, seconds: u64) -> Self {
        self.0.retry_after_s = Some(seconds);
        self
    }

    #[must_use]
    pub fn outcome(mut self, outcome: &'static str) -> Self {
        self.0.body.outcome = Some(outcome);
        self
    }

    #[must_use]
    pub fn stale(mut self, stale: bool) -> Self {
        self.0.body.stale = Some(stale);
        self
    }

    #[must_use]
    pub fn state(mut self, state: &'static str) -> Self {
        self.0.body.state = Some(state);
        self
    }

    #[must_use]
    pub fn may_return(mut self, may_return: bool) -> Self {
        self.0.body.may_return = Some(may_return);
        self
    }

    /// The word for a refused claim, if it is one.
    pub fn outcome_word(&self) -> Option<&'static str> {
        self.0.body.outcome
    }

    pub fn kind_word(&self) -> &'static str {
        self.0.body.kind.trim_start_matches("/problems/")
    }

    pub fn wait_s(&self) -> Option<u64> {
        self.0.retry_after_s
    }

    #[must_use]
    pub fn hours(mut self, opens_at: Timestamp, closes_at: Option<Timestamp>) -> Self {
        self.0.body.opens_at = Some(opens_at);
        self.0.body.closes_at = closes_at;
        self
    }

    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// As it stands inside another answer: a rejected line, an event of many.
    pub fn into_body(self) -> ProblemBody {
        self.0.body
    }

    #[cfg(test)]
    pub fn named(&self) -> (&'static str, &str, &str) {
        let body = &self.0.body;
        (body.kind, body.field.as_deref().unwrap_or(""), body.rule.as_deref().unwrap_or(""))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Strings, numbers and times: nothing in it can fail to serialize.
        let body = serde_json::to_vec(&self.0.body).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        // 404 and 405 may be cached by default, and nothing here stays true.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"headcount admin\""));
        }
        if self.0.status == StatusCode::REQUEST_TIMEOUT {
            // What is left of the body would be read as the next request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_documented_with_its_status() {
        let page = include_str!("../../docs/API.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `/problems/")).collect();
        let expected = Kind::ALL.map(|kind| format!("| `{}` | {} | ", kind.parts().0, kind.parts().1.as_u16()));
        assert_eq!(rows.len(), expected.len());
        for (row, expected) in rows.iter().zip(&expected) {
            assert!(row.starts_with(expected.as_str()), "{row}, not {expected}");
        }
    }
}
