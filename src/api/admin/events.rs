//! Settings of events, and resets.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::{PageAnswer, if_match, page, retention, shards};
use crate::api::error::not_in_this_version;
use crate::api::json::object;
use crate::api::problem::{Problem, ProblemBody};
use crate::api::query::Known;
use crate::api::response::{EventAnswer, json_no_store, record};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::service::manage::events::EventSettings;

/// What an event may say of itself; what is absent is the deployment's default.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct EventBody {
    /// A power of two from 1 to 1024.
    #[schema(example = 16)]
    shards: Option<u64>,
    /// 1 to 36,500 days after a day's end.
    #[schema(example = 35)]
    retention_days: Option<u64>,
    #[schema(ignore)]
    exact_hours: Option<IgnoredAny>,
    #[schema(ignore)]
    crossed: Option<IgnoredAny>,
}

impl EventBody {
    pub fn parse(bytes: &[u8]) -> Result<EventSettings, Problem> {
        let body: Self = object(bytes)?;
        if body.exact_hours.is_some() {
            return Err(not_in_this_version("exact_hours", "this version counts by day"));
        }
        if body.crossed.is_some() {
            return Err(not_in_this_version("crossed", "this version does not count by dimension"));
        }
        Ok(EventSettings { shards: shards(body.shards)?, retention: retention(body.retention_days)? })
    }
}

/// Ids of events that have settings.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    security(("token" = [])),
    params(
        ("limit" = Option<usize>, Query, description = "1 to 1,000; 100 if absent"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before")
    ),
    responses((status = 200, description = "One page", body = PageAnswer))
)]
pub async fn list(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (cursor, limit) = page(request.uri())?;
    let page = app.events.list(cursor.as_deref(), limit).await?;
    Ok(json_no_store(StatusCode::OK, &PageAnswer { ids: page.ids, next: page.next }))
}

/// An event's settings; every event has some.
#[utoipa::path(
    get,
    path = "/v1/events/{event}",
    tag = "events",
    security(("token" = [])),
    params(("event" = String, Path, description = "The event's id, percent-encoded")),
    responses((status = 200, description = "As it stands", body = EventAnswer))
)]
pub async fn get(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (event, _) = id::event(request.uri(), Known::default())?;
    let view = app.events.get(&event).await?;
    Ok(record(StatusCode::OK, view.version, &EventAnswer::from(view)))
}

/// Sets all settings of an event.
#[utoipa::path(
    put,
    path = "/v1/events/{event}",
    tag = "events",
    security(("token" = [])),
    params(
        ("event" = String, Path, description = "The event's id, percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The ETag that must stand")
    ),
    request_body = EventBody,
    responses(
        (status = 200, description = "Changed, or the same as before", body = EventAnswer),
        (status = 201, description = "Set for the first time", body = EventAnswer),
        (status = 412, description = "Another version stands", body = ProblemBody),
        (status = 422, description = "A field breaks a rule", body = ProblemBody)
    )
)]
pub async fn put(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (event, _) = id::event(&head.uri, Known::default())?;
    let version = if_match(&head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let (view, created) = app.events.put(&event, EventBody::parse(&bytes)?, version).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(record(status, view.version, &EventAnswer::from(view)))
}

/// Resets an event: its counts go, its settings stay.
#[utoipa::path(
    delete,
    path = "/v1/events/{event}",
    tag = "events",
    security(("token" = [])),
    params(
        ("event" = String, Path, description = "The event's id, percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "The ETag that must stand")
    ),
    responses(
        (status = 200, description = "Counts begin anew", body = EventAnswer),
        (status = 412, description = "Another version stands", body = ProblemBody)
    )
)]
pub async fn reset(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (event, _) = id::event(request.uri(), Known::default())?;
    let view = app.events.reset(&event, if_match(request.headers())?).await?;
    Ok(record(StatusCode::OK, view.version, &EventAnswer::from(view)))
}
