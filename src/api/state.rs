//! What handlers are given.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use metrics_exporter_prometheus::PrometheusHandle;

use super::readiness::Readiness;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::service::claim::Claims;
use crate::service::ledger::erase::Erase;
use crate::service::ledger::reconcile::Reconcile;
use crate::service::manage::campaigns::Campaigns;
use crate::service::manage::events::Events;
use crate::service::quota::claims::HardClaims;
use crate::service::report::Reports;
use crate::service::visit::Visits;

/// The use cases, and what the HTTP layer itself needs. Shared by both listeners.
pub struct AppState {
    pub visits: Arc<Visits>,
    pub reports: Arc<Reports>,
    /// Of soft campaigns.
    pub claims: Arc<Claims>,
    pub hard: Arc<HardClaims>,
    pub events: Arc<Events>,
    pub campaigns: Arc<Campaigns>,
    /// None: there is no ledger.
    pub reconcile: Option<Arc<Reconcile>>,
    pub erase: Arc<Erase>,
    pub readiness: Arc<Readiness>,
    pub metrics: PrometheusHandle,
    pub clock: Clock,
    pub tasks: Tasks,
    pub config: ApiConfig,
}

/// Settings of the HTTP layer that are not a listener's own.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// The header in which the ingress names the user; None: the body does.
    pub user_header: Option<HeaderName>,
    /// None: the admin listener asks for no token (only on a loopback address).
    pub admin_token: Option<AdminToken>,
    /// Origins whose pages may call the public listener from a browser.
    pub cors_origins: Vec<HeaderValue>,
    /// A body that takes longer is given up with 408.
    pub body_timeout: Duration,
    /// A claim on a hard campaign waits so long for stock that is on its way.
    pub claim_wait: Duration,
    /// The same at the gate: under the ingresses' own limits.
    pub gate_wait: Duration,
    /// What the gate denies with.
    pub gate_deny_status: StatusCode,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            user_header: None,
            admin_token: None,
            cors_origins: Vec::new(),
            body_timeout: Duration::from_secs(10),
            claim_wait: Duration::from_secs(1),
            gate_wait: Duration::from_millis(150),
            gate_deny_status: StatusCode::FORBIDDEN,
        }
    }
}

/// The admin listener's bearer token. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

impl AdminToken {
    pub fn new(token: String) -> Self {
        Self(token)
    }

    /// What a client of another process's listener sends.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Compares in a time that does not tell how much of a guess was right.
    pub fn matches(&self, guess: &[u8]) -> bool {
        use subtle::ConstantTimeEq;
        self.0.as_bytes().ct_eq(guess).into()
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken(secret)")
    }
}
