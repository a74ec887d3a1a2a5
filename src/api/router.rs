//! All routes on one page.

use std::sync::Arc;

use axum::Router;

use super::admin::{campaigns, events};
use super::public::{claims, counts, visits};
use super::routes::Routes;
use super::state::AppState;
use super::{cors, openapi, ops};

/// What product backends and front ends call.
pub fn public_router(state: Arc<AppState>) -> Router {
    let origins = state.config.cors_origins.clone();
    cors::allow(public_routes().into_router(state), &origins)
}

/// What operators, their tools and probes call.
pub fn admin_router(state: Arc<AppState>) -> Router {
    admin_routes().into_router(state)
}

/// Where a path carries an id, a second form takes it as a query parameter or body field: proxies mangle `%2F`.
pub fn public_routes() -> Routes {
    Routes::new()
        // Visits
        .post("/v1/events/{event}/visits", visits::record)
        .post("/v1/visits", visits::record_lines)
        // Counts
        .get("/v1/events/{event}/count", counts::count)
        .get("/v1/count", counts::count)
        .post("/v1/counts", counts::counts)
        .later("/v1/counts/union", "union")
        .later("/v1/events/{event}/series", "series")
        .later("/v1/events/{event}/breakdown", "breakdown")
        // Claims
        .post("/v1/campaigns/{campaign}/claims", claims::claim)
        .post("/v1/claims", claims::claim)
        .post("/v1/campaigns/{campaign}/claims/lookup", claims::lookup)
        .post("/v1/claims/lookup", claims::lookup)
        .get("/v1/campaigns/{campaign}/claims/{claim_id}", claims::one)
        .delete("/v1/campaigns/{campaign}/claims/{claim_id}", claims::one)
        .post("/v1/campaigns/{campaign}/claims/{claim_id}/confirm", claims::one)
        .get("/v1/claim", claims::one)
        .delete("/v1/claim", claims::one)
        .post("/v1/claim/confirm", claims::one)
        .get("/v1/campaigns/{campaign}/remaining", claims::remaining)
        .get("/v1/remaining", claims::remaining)
        .later("/v1/campaigns/{campaign}/remaining/stream", "stream")
}

pub fn admin_routes() -> Routes {
    Routes::new()
        // Probes and metrics: no token, because kubelets and Prometheus have none
        .get("/livez", ops::livez)
        .get("/readyz", ops::readyz)
        .get("/metrics", ops::metrics)
        .get("/openapi.json", openapi::openapi)
        .with_token()
        // Campaigns
        .get("/v1/campaigns", campaigns::list)
        .get("/v1/campaigns/{campaign}", campaigns::get)
        .put("/v1/campaigns/{campaign}", campaigns::put)
        .patch("/v1/campaigns/{campaign}", campaigns::patch)
        .post("/v1/campaigns/{campaign}/close", campaigns::close)
        .get("/v1/campaign", campaigns::get)
        .put("/v1/campaign", campaigns::put)
        .patch("/v1/campaign", campaigns::patch)
        .post("/v1/campaign/close", campaigns::close)
        // Events
        .get("/v1/events", events::list)
        .get("/v1/events/{event}", events::get)
        .put("/v1/events/{event}", events::put)
        .delete("/v1/events/{event}", events::reset)
        .get("/v1/event", events::get)
        .put("/v1/event", events::put)
        .delete("/v1/event", events::reset)
}
