//! Probes, metrics and the OpenAPI document.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::{Kind, Problem, ProblemBody};
use super::query::{Known, Query};
use super::response::{NO_STORE, json_no_store};
use super::state::AppState;

/// How this process and its store are doing.
#[derive(Serialize, ToSchema)]
pub struct ReadinessAnswer {
    pub ready: bool,
    /// The store was reached once since the start.
    pub contacted: bool,
    /// The process is stopping.
    pub draining: bool,
    /// Where the store is.
    pub store: String,
    /// Where the ledger is, or that there is none.
    pub ledger: String,
    pub nodes: Vec<NodeAnswer>,
    /// Settings of the store under which something promised can be lost.
    pub warnings: Vec<String>,
}

#[derive(Serialize, ToSchema)]
pub struct NodeAnswer {
    pub name: String,
    pub up: bool,
    pub detail: String,
}

/// Is the process alive? Asks nothing else.
#[utoipa::path(get, path = "/livez", tag = "ops", responses((status = 200, description = "Alive", body = String)))]
pub async fn livez(_: Arc<AppState>, _: Request) -> Result<Response, Problem> {
    Ok(text("ok\n".into(), "text/plain; charset=utf-8"))
}

/// Does the process want traffic?
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "ops",
    params(("verbose" = Option<String>, Query, description = "Answers JSON about the store, with the same status")),
    responses(
        (status = 200, description = "Ready", body = ReadinessAnswer),
        (status = 503, description = "The store was not reached yet, or the process is stopping", body = ProblemBody)
    )
)]
pub async fn readyz(app: Arc<AppState>, request: Request) -> Result<Response, Problem> {
    let query = Query::parse(request.uri(), Known { names: &["verbose"], later: &[] }, None)?;
    let readiness = &app.readiness;
    let ready = readiness.is_ready();
    if query.get("verbose").is_some() {
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        return Ok(json_no_store(status, &verbose(&app)));
    }
    if ready {
        return Ok(text("ok\n".into(), "text/plain; charset=utf-8"));
    }
    let why = if readiness.is_draining() {
        "The process is stopping; send traffic to another one."
    } else {
        "The store has not been reached since the start; /readyz?verbose says more."
    };
    Err(Problem::new(Kind::NotReady, why).retry_after_s(1))
}

/// Metrics in Prometheus's text format.
#[utoipa::path(get, path = "/metrics", tag = "ops", responses((status = 200, description = "Metrics", body = String)))]
pub async fn metrics(app: Arc<AppState>, _: Request) -> Result<Response, Problem> {
    Ok(text(app.metrics.render(), "text/plain; version=0.0.4; charset=utf-8"))
}

fn verbose(app: &AppState) -> ReadinessAnswer {
    let health = app.readiness.health();
    let node =
        |node: crate::store::deployment::NodeHealth| NodeAnswer { name: node.name, up: node.up, detail: node.detail };
    ReadinessAnswer {
        ready: app.readiness.is_ready(),
        contacted: app.readiness.is_contacted(),
        draining: app.readiness.is_draining(),
        store: app.readiness.store().to_owned(),
        ledger: app.readiness.ledger().to_owned(),
        nodes: health.nodes.into_iter().map(node).collect(),
        warnings: health.warnings,
    }
}

fn text(body: String, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}
