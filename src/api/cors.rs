//! Which pages may call the public listener from a browser.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static("content-type, content-encoding, idempotency-key, if-none-match");
const EXPOSED: HeaderValue = HeaderValue::from_static("etag, retry-after");
/// Browsers ask again after ten minutes, so that a change of the list is seen within a sale.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("600");

/// Adds CORS for these origins; without any, the router stays as it is and costs nothing.
pub fn allow(router: Router, origins: &[HeaderValue]) -> Router {
    if origins.is_empty() {
        return router;
    }
    let origins: Arc<[HeaderValue]> = origins.into();
    router.layer(from_fn(move |request: Request, next: Next| answer(Arc::clone(&origins), request, next)))
}

async fn answer(origins: Arc<[HeaderValue]>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).filter(|origin| is_allowed(&origins, origin)).cloned();
    // At the gate an OPTIONS is an ingress's question, and some ingresses admit on a 204.
    let is_gate = ["/gate/", "/check/"].iter().any(|prefix| request.uri().path().starts_with(prefix));
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && !is_gate;
    let mut response = match (&origin, is_preflight) {
        (Some(_), true) => preflight(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

fn is_allowed(origins: &[HeaderValue], origin: &HeaderValue) -> bool {
    origins.iter().any(|allowed| allowed == origin || allowed == "*")
}

fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = HeaderMap::from_iter([
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S),
    ]);
    response
}
