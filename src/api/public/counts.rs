//! Counts out.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;

use crate::api::problem::{Problem, ProblemBody};
use crate::api::query::{Known, Query};
use crate::api::request::{COUNT_QUERY, CountsBody, days_of};
use crate::api::response::{CountAnswer, CountOrError, CountsAnswer, json_no_store};
use crate::api::state::AppState;
use crate::api::{body, id};

/// Different users of an event over a day or a range of days.
#[utoipa::path(
    get,
    path = "/v1/events/{event}/count",
    tag = "counts",
    params(
        ("event" = String, Path, description = "The event's id, percent-encoded"),
        ("period" = Option<String>, Query, description = "`day`"),
        ("date" = Option<String>, Query, description = "One day; today if absent"),
        ("from" = Option<String>, Query, description = "First day, with `to`"),
        ("to" = Option<String>, Query, description = "Last day, inclusive")
    ),
    responses(
        (status = 200, description = "A reading", body = CountAnswer),
        (status = 422, description = "A parameter breaks a rule", body = ProblemBody),
        (status = 503, description = "The store does not answer, and no reading is known", body = ProblemBody)
    )
)]
pub async fn count(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (event, query) = id::event(request.uri(), COUNT_QUERY)?;
    let count = app.reports.count(&event, days_of(&query)?).await?;
    Ok(json_no_store(StatusCode::OK, &CountAnswer::from(count)))
}

/// Counts of up to 1,000 events over the same days.
#[utoipa::path(
    post,
    path = "/v1/counts",
    tag = "counts",
    request_body = CountsBody,
    responses(
        (status = 200, description = "A reading or an error for each event, in order", body = CountsAnswer),
        (status = 400, description = "Unreadable", body = ProblemBody),
        (status = 422, description = "A field breaks a rule", body = ProblemBody)
    )
)]
pub async fn counts(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    Query::parse(&head.uri, Known::default(), None)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    let (events, days) = CountsBody::parse(&bytes)?;
    let counts = app.reports.counts(&events, days).await;
    let counts = events.iter().zip(counts).map(|(event, count)| CountOrError::of(event.as_str(), count)).collect();
    Ok(json_no_store(StatusCode::OK, &CountsAnswer { counts }))
}
