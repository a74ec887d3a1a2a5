//! All routes on one page.

use std::sync::Arc;

use axum::Router;

use super::admin::{campaigns, claims as books, events, ledger, packets};
use super::public::{claims, counts, gate, remaining, single, visits};
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
        .post("/v1/campaigns/{campaign}/claims/lookup", single::lookup)
        .post("/v1/claims/lookup", single::lookup)
        .get("/v1/campaigns/{campaign}/claims/{claim_id}", single::get)
        .delete("/v1/campaigns/{campaign}/claims/{claim_id}", single::release)
        .post("/v1/campaigns/{campaign}/claims/{claim_id}/confirm", single::confirm)
        .get("/v1/claim", single::get)
        .delete("/v1/claim", single::release)
        .post("/v1/claim/confirm", single::confirm)
        .get("/v1/campaigns/{campaign}/remaining", remaining::remaining)
        .get("/v1/remaining", remaining::remaining)
        .later("/v1/campaigns/{campaign}/remaining/stream", "stream")
        // The gate: every method, and whatever an ingress appends to the path
        .any_below("/gate/{campaign}", gate::gate)
        .any_below("/check/{campaign}", gate::check)
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
        .delete("/v1/campaigns/{campaign}", campaigns::remove)
        .post("/v1/campaigns/{campaign}/close", campaigns::close)
        .get("/v1/campaigns/{campaign}/audit", books::audit)
        .get("/v1/campaigns/{campaign}/claims", books::list)
        .post("/v1/campaigns/{campaign}/claims/{claim_id}/void", books::void)
        .post("/v1/campaigns/{campaign}/packets", packets::add)
        .get("/v1/campaigns/{campaign}/results", packets::results)
        .get("/v1/campaign", campaigns::get)
        .put("/v1/campaign", campaigns::put)
        .patch("/v1/campaign", campaigns::patch)
        .delete("/v1/campaign", campaigns::remove)
        .post("/v1/campaign/close", campaigns::close)
        .get("/v1/campaign/audit", books::audit)
        .get("/v1/campaign/claims", books::list)
        .post("/v1/campaign/packets", packets::add)
        .get("/v1/campaign/results", packets::results)
        .post("/v1/claim/void", books::void)
        .post("/v1/campaigns/{campaign}/reconcile", ledger::reconcile)
        .post("/v1/campaign/reconcile", ledger::reconcile)
        .post("/v1/users/erase", ledger::erase)
        // Events
        .get("/v1/events", events::list)
        .get("/v1/events/{event}", events::get)
        .put("/v1/events/{event}", events::put)
        .delete("/v1/events/{event}", events::reset)
        .get("/v1/event", events::get)
        .put("/v1/event", events::put)
        .delete("/v1/event", events::reset)
}
