//! Logs and metrics: how they leave the process.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::meters;

/// How a log line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    Text,
    Json,
}

/// What is logged, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// Directives of `tracing-subscriber`: `info`, `headcount=debug,warn`.
    pub filter: String,
    pub format: LogFormat,
}

/// Bucket bounds in seconds. The lowest separate answers from memory (tens of microseconds) from those of a store.
const SECONDS_BUCKETS: [f64; 14] =
    [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// Bucket bounds of batches: most hold one element, a crowd's hold tens, and none more than `coalesce_elements_max`.
const ELEMENTS_BUCKETS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0];

/// Starts logging to stderr. An unreadable filter is refused, not replaced.
pub fn start_logs(config: &LogConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.filter).map_err(|error| error.to_string())?;
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => registry.with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    }
    .map_err(|error| error.to_string())
}

/// Installs the recorder that the `metrics` macros write to; the handle renders the Prometheus text.
pub fn start_metrics() -> Result<PrometheusHandle, String> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_elements".into()), &ELEMENTS_BUCKETS))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| error.to_string())?;
    meters::describe();
    Ok(handle)
}
