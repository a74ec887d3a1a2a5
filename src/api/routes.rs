//! How a route is served: its handler, its token, its metrics. `router.rs` lists the routes.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, any, on};
use metrics::{Counter, Histogram, counter, histogram};
use tokio::time::Instant;

use super::error::not_in_this_version;
use super::problem::{Kind, Problem};
use super::state::AppState;

/// Collects the routes of one listener.
#[derive(Default)]
pub struct Routes {
    router: Router<Arc<AppState>>,
    asks_for_token: bool,
    documented: Vec<(&'static str, &'static str)>,
}

impl Routes {
    pub fn new() -> Self {
        Self::default()
    }

    /// The routes that follow need the admin token, where there is one.
    pub fn with_token(mut self) -> Self {
        self.asks_for_token = true;
        self
    }

    pub fn get<F, A>(self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
        A: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        self.add("GET", MethodFilter::GET, path, handler)
    }

    pub fn post<F, A>(self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
        A: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        self.add("POST", MethodFilter::POST, path, handler)
    }

    pub fn put<F, A>(self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
        A: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        self.add("PUT", MethodFilter::PUT, path, handler)
    }

    pub fn patch<F, A>(self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
        A: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        self.add("PATCH", MethodFilter::PATCH, path, handler)
    }

    pub fn delete<F, A>(self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
        A: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        self.add("DELETE", MethodFilter::DELETE, path, handler)
    }

    /// Every method, OPTIONS and HEAD included, and whatever follows in the path, be it only a slash: documented as one GET.
    pub fn any_below<F, A>(mut self, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
        A: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let serve = serve("ANY", path, self.asks_for_token, handler);
        for below in ["", "/", "/{*rest}"] {
            self.router = self.router.route(&format!("{path}{below}"), any(serve.clone()));
        }
        self.documented.push(("GET", path));
        self
    }

    /// A call of a later version: named, so that whoever reads ahead in the documentation is told, not puzzled.
    pub fn later(mut self, path: &'static str, field: &'static str) -> Self {
        let answer = move || async move { not_in_this_version(field, "this version has no such call").into_response() };
        self.router = self.router.route(path, any(answer));
        self
    }

    /// Method and path of each route that the OpenAPI document must have.
    pub fn documented(&self) -> &[(&'static str, &'static str)] {
        &self.documented
    }

    pub fn into_router(self, state: Arc<AppState>) -> Router {
        let unmatched = Meter::new("ANY", "unmatched");
        let wrong_method = unmatched.clone();
        let absent = move || async move {
            unmatched
                .refused(Problem::new(Kind::NotFound, "Check the path; docs/API.md and /openapi.json list all calls."))
        };
        let refused = move || async move {
            wrong_method.refused(Problem::new(Kind::MethodNotAllowed, "Use a method that the Allow header names."))
        };
        self.router.fallback(absent).method_not_allowed_fallback(refused).with_state(state)
    }

    fn add<F, A>(mut self, method: &'static str, filter: MethodFilter, path: &'static str, handler: F) -> Self
    where
        F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
        A: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let serve = serve(method, path, self.asks_for_token, handler);
        self.router = self.router.route(path, on(filter, serve));
        self.documented.push((method, path));
        self
    }
}

/// A route's handler behind its token and its metrics.
fn serve<F, A>(
    method: &'static str,
    path: &'static str,
    asks_for_token: bool,
    handler: F,
) -> impl Fn(State<Arc<AppState>>, Request) -> Served + Clone + Send + Sync + 'static
where
    F: Fn(Arc<AppState>, Request) -> A + Copy + Send + Sync + 'static,
    A: Future<Output = Result<Response, Problem>> + Send + 'static,
{
    let meter = Meter::new(method, path);
    move |State(state): State<Arc<AppState>>, request: Request| {
        let meter = meter.clone();
        Box::pin(async move {
            let started = Instant::now();
            let answer = match asks_for_token.then(|| authorize(&state, request.headers())) {
                Some(Err(problem)) => Err(problem),
                Some(Ok(())) | None => handler(state, request).await,
            };
            let response = answer.unwrap_or_else(IntoResponse::into_response);
            meter.answered(response.status(), started);
            response
        })
    }
}

/// An answer to come. Boxed, because the type of a handler's future has no name; axum boxes it once more.
type Served = std::pin::Pin<Box<dyn Future<Output = Response> + Send>>;

fn authorize(state: &AppState, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(token) = &state.config.admin_token else { return Ok(()) };
    let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    let scheme_is_bearer = given.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Bearer "));
    if scheme_is_bearer && token.matches(given[7..].trim_ascii()) {
        return Ok(());
    }
    let detail = "Send `Authorization: Bearer` with the admin token that the process was started with.";
    Err(Problem::field_with_detail(Kind::Unauthorized, "Authorization", "must carry the admin token", detail))
}

/// The statuses that are answered; any other is counted as 0.
const STATUSES: [u16; 20] =
    [200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 422, 429, 500, 503, 431, 0];

/// One route's metrics, looked up by name once and not with every request.
#[derive(Clone)]
struct Meter(Arc<Handles>);

struct Handles {
    method: &'static str,
    route: &'static str,
    answered: [OnceLock<Counter>; STATUSES.len()],
    seconds: Histogram,
}

impl Meter {
    fn new(method: &'static str, route: &'static str) -> Self {
        Self(Arc::new(Handles {
            method,
            route,
            answered: [const { OnceLock::new() }; STATUSES.len()],
            seconds: histogram!("headcount_http_request_seconds", "method" => method, "route" => route),
        }))
    }

    fn answered(&self, status: StatusCode, started: Instant) {
        self.count(status);
        self.0.seconds.record(started.elapsed());
    }

    fn refused(&self, problem: Problem) -> Response {
        self.count(problem.status());
        problem.into_response()
    }

    fn count(&self, status: StatusCode) {
        let Handles { method, route, .. } = *self.0;
        let place = STATUSES.iter().position(|known| *known == status.as_u16()).unwrap_or(STATUSES.len() - 1);
        let counter = self.0.answered[place].get_or_init(|| {
            let status = STATUSES[place].to_string();
            counter!("headcount_http_requests_total", "method" => method, "route" => route, "status" => status)
        });
        counter.increment(1);
    }
}
