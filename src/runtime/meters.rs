//! Every metric, in one table: what a scrape says about each, and which start at zero.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

/// How a metric moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Without labels; starts at zero, so that a rate is known from the first event on.
    Counter,
    /// With labels that have few values.
    LabelledCounter,
    Gauge,
    /// In the unit at the end of its name.
    Histogram,
}

/// Name, kind, and what it counts.
pub struct Meter {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

const fn meter(name: &'static str, kind: Kind, help: &'static str) -> Meter {
    Meter { name, kind, help }
}

/// All metrics of the program; `tests/architecture.rs` compares them with the code, and docs/OPERATIONS.md with them.
pub const METERS: &[Meter] = &[
    meter("headcount_http_requests_total", Kind::LabelledCounter, "Requests answered, by method, route and status"),
    meter("headcount_http_request_seconds", Kind::Histogram, "From a request's header to its answer, by route"),
    meter("headcount_http_requests_under_way", Kind::Gauge, "Requests being answered, by listener"),
    meter("headcount_http_shed_total", Kind::LabelledCounter, "Requests refused because too many were under way"),
    meter("headcount_gate_total", Kind::LabelledCounter, "Answers of the gate, by result and outcome"),
    meter("headcount_visits_filtered_total", Kind::Counter, "Visits and claims answered from memory"),
    meter("headcount_visits_buffered_total", Kind::Counter, "Visits taken while the store did not answer"),
    meter("headcount_visits_refused_total", Kind::Counter, "Visits refused because the buffer was full"),
    meter("headcount_batch_elements", Kind::Histogram, "Users in one batch to a sketch"),
    meter("headcount_buffer_bytes", Kind::Gauge, "Memory of visits that the store does not have yet"),
    meter("headcount_merges_total", Kind::Counter, "Readings merged by this process"),
    meter("headcount_readings_adopted_total", Kind::Counter, "Readings taken over from another process"),
    meter("headcount_merge_seconds", Kind::Histogram, "From the lease to the reading"),
    meter("headcount_sketches_corrupt_total", Kind::Counter, "Sketches left out because they do not decode"),
    meter("headcount_union_disagreements_total", Kind::Counter, "Readings whose shards overlap beyond chance"),
    meter("headcount_sketches_pushed_total", Kind::Counter, "Sketches whose lost or buffered registers were pushed"),
    meter(
        "headcount_pushes_discarded_total",
        Kind::Counter,
        "Buffered sketches discarded: expired, or reset meanwhile",
    ),
    meter("headcount_pins_dropped_total", Kind::Counter, "Acknowledged sketches forgotten early for want of room"),
    meter("headcount_pool_steps_total", Kind::LabelledCounter, "Steps on pools of hard campaigns, by step and outcome"),
    meter("headcount_claim_batch_wishes", Kind::Histogram, "Claims in one step"),
    meter("headcount_campaign_surveys_total", Kind::Counter, "Readings of all pools of a hard campaign"),
    meter("headcount_transferred_units_total", Kind::Counter, "Units moved to the shard of users who wait"),
    meter("headcount_parcels_swept_total", Kind::Counter, "Transfers that somebody left behind, delivered by upkeep"),
    meter("headcount_holds_expired_total", Kind::Counter, "Holds that this process expired"),
    meter("headcount_upkeep_failures_total", Kind::Counter, "Rounds of upkeep of a campaign that failed"),
    meter("headcount_ledger_entries_total", Kind::Counter, "News that this process brought to the ledger"),
    meter("headcount_ledger_lag_entries", Kind::Gauge, "News that the ledger lacks, of campaigns this process drains"),
    meter("headcount_ledger_lag_seconds", Kind::Gauge, "Age of the oldest of them"),
    meter("headcount_ledger_failures_total", Kind::Counter, "Times that news could not be brought to the ledger"),
    meter("headcount_ledger_conflicts_total", Kind::Counter, "News that contradict the ledger"),
    meter("headcount_ledger_configured", Kind::Gauge, "1: this process has a ledger; 0: news stay in the store"),
    meter("headcount_pools_mended_total", Kind::Counter, "Shards rebuilt because they had gone back in time"),
    meter("headcount_store_calls_total", Kind::LabelledCounter, "Calls to the store, by outcome"),
    meter("headcount_store_redirects_total", Kind::LabelledCounter, "MOVED, ASK and their like, by kind"),
    meter("headcount_store_breaker_open_total", Kind::Counter, "Times a node was left alone because it did not answer"),
    meter("headcount_store_unconfirmed_total", Kind::Counter, "Writes done that replicas did not acknowledge in time"),
    meter(
        "headcount_store_primaries_degraded",
        Kind::Gauge,
        "Primaries of which not all replicas that could be promoted are waited for",
    ),
    meter("headcount_store_topology_changes_total", Kind::Counter, "Times slots changed hands or a node came back"),
];

/// Tells the recorder about all of them.
pub fn describe() {
    for meter in METERS {
        match meter.kind {
            Kind::Counter => {
                describe_counter!(meter.name, meter.help);
                counter!(meter.name).absolute(0);
            }
            Kind::LabelledCounter => describe_counter!(meter.name, meter.help),
            Kind::Gauge => describe_gauge!(meter.name, meter.help),
            Kind::Histogram if meter.name.ends_with("_seconds") => {
                describe_histogram!(meter.name, Unit::Seconds, meter.help);
            }
            Kind::Histogram => describe_histogram!(meter.name, meter.help),
        }
    }
}
