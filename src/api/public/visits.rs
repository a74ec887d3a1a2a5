//! Visits in.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;

use super::user_by_ingress;
use crate::api::problem::{Problem, ProblemBody};
use crate::api::query::{Known, Query};
use crate::api::request::{CheckedLines, REJECTED_LISTED_MAX, VisitBody, VisitLine, VisitLines, lists_are_off};
use crate::api::response::{LinesAnswer, RejectedLine, VisitsAnswer, json};
use crate::api::state::AppState;
use crate::api::{body, id};
use crate::service::error::VisitRejection;
use crate::service::visit::Taken;

/// Counts a user, or several, on one event.
#[utoipa::path(
    post,
    path = "/v1/events/{event}/visits",
    tag = "visits",
    params(("event" = String, Path, description = "The event's id, percent-encoded")),
    request_body = VisitBody,
    responses(
        (status = 200, description = "All are counted", body = VisitsAnswer),
        (status = 400, description = "Unreadable", body = ProblemBody),
        (status = 413, description = "The body is over 1 MiB", body = ProblemBody),
        (status = 422, description = "A field breaks a rule; nothing is counted", body = ProblemBody),
        (status = 503, description = "The buffer is full; nothing is counted", body = ProblemBody)
    )
)]
pub async fn record(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let (event, _) = id::event(&head.uri, Known::default())?;
    let by_ingress = user_by_ingress(&app, &head.headers)?;
    let bytes = body::json(&head.headers, body, app.config.body_timeout).await?;
    // Where the ingress names the user, a visit needs no body.
    let visit = if bytes.is_empty() && by_ingress.is_some() { VisitBody::default() } else { VisitBody::parse(&bytes)? };
    let at = visit.at()?;
    let visitors = visit.visitors(by_ingress)?;
    let taken = app.visits.record(&event, visitors.as_slice(), at).await?;
    Ok(json(StatusCode::OK, &VisitsAnswer::from(taken)))
}

/// Counts visits of many events, a JSON object per line. A bad line never spoils the others.
#[utoipa::path(
    post,
    path = "/v1/visits",
    tag = "visits",
    request_body(content = VisitLine, content_type = "application/x-ndjson",
        description = "At most 10,000 lines and 8 MiB; gzip is taken, the same bounds hold after inflation"),
    responses(
        (status = 200, description = "The good lines are counted, the bad ones listed", body = LinesAnswer),
        (status = 400, description = "Broken gzip", body = ProblemBody),
        (status = 413, description = "Too many lines or bytes; nothing is counted", body = ProblemBody),
        (status = 422, description = "Lines are off, because the ingress names the user", body = ProblemBody),
        (status = 503, description = "The buffer is full; nothing is counted", body = ProblemBody)
    )
)]
pub async fn record_lines(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    Query::parse(&head.uri, Known::default(), None)?;
    if app.config.user_header.is_some() {
        return Err(body::refuse(&head.headers, body, lists_are_off("body")).await);
    }
    let bytes = body::lines(&head.headers, body, app.config.body_timeout).await?;
    let lines = VisitLines::parse(&bytes)?;
    let checked = lines.check();
    let (taken, refused) =
        if checked.visits.is_empty() { Default::default() } else { app.visits.record_many(&checked.visits).await? };
    Ok(json(StatusCode::OK, &lines_answer(taken, checked, refused)))
}

/// Lists what was rejected in reading and what was refused in counting, by line.
fn lines_answer(taken: Taken, checked: CheckedLines<'_>, refused: Vec<VisitRejection>) -> LinesAnswer {
    let line_of = |index: usize| checked.lines.get(index).copied().unwrap_or_default();
    let refused = refused.into_iter().map(|refusal| (line_of(refusal.index), Problem::from(refusal.error)));
    let mut rejected: Vec<_> = checked.rejected.into_iter().chain(refused).collect();
    rejected.sort_by_key(|(line, _)| *line);
    let rejected_total = rejected.len();
    rejected.truncate(REJECTED_LISTED_MAX);
    let listed = rejected.into_iter().map(|(line, problem)| RejectedLine { line, error: problem.into_body() });
    LinesAnswer { taken: taken.into(), rejected: listed.collect(), rejected_total }
}
