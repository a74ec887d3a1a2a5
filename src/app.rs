//! The only file that knows all parts: what is given to whom, and in which order things start and stop.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::adapters::embedded::{EmbeddedConfig, EmbeddedStore};
use crate::adapters::redis::RedisStore;
use crate::adapters::sql::SqlLedger;
use crate::api::listeners::Listeners;
use crate::api::readiness::Readiness;
use crate::api::router::{admin_router, public_router};
use crate::api::server::bind;
use crate::api::state::AppState;
use crate::config::ledger::LedgerUrl;
use crate::config::{Config, StoreChoice};
use crate::domain::period::Calendar;
use crate::exact::{Exact, Materials};
use crate::jobs::contact::{Contact, Disagreement, HashingChoice};
use crate::jobs::push::Pusher;
use crate::jobs::rounds::{CampaignDuty, Rounds};
use crate::jobs::testify;
use crate::local::buffer::Buffer;
use crate::local::cells::CellCache;
use crate::local::coalescer::Coalescer;
use crate::local::readings::Readings;
use crate::local::store_clock::StoreClock;
use crate::runtime::clock::Clock;
use crate::runtime::open_files;
use crate::runtime::random::random_name;
use crate::runtime::tasks::Tasks;
use crate::runtime::telemetry::LogFormat;
use crate::service::book::Book;
use crate::service::claim::Claims;
use crate::service::crowd::Crowd;
use crate::service::identity::Identity;
use crate::service::ledger::testify::Testimony;
use crate::service::manage::campaigns::Campaigns;
use crate::service::manage::events::Events;
use crate::service::merge::Merger;
use crate::service::report::Reports;
use crate::service::visit::Visits;
use crate::store::Stores;
use crate::store::counters::Counters;
use crate::store::ledger::Ledger;

/// How often samples are sorted: at 100,000 requests a second half a million of them wait, 4 MB.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// A failure that ends the start, in a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

/// Runs until SIGTERM or SIGINT. The exit code is 0 unless visits had to be left behind.
pub async fn run(config: Config, metrics: PrometheusHandle) -> Result<ExitCode, StartError> {
    raise_open_files(&config);
    let (listener, address) = listen(config.listen, "HEADCOUNT_LISTEN")?;
    let (admin_listener, admin_address) = listen(config.admin_listen, "HEADCOUNT_ADMIN_LISTEN")?;
    let (clock, tasks) = (Clock::real(), Tasks::new());
    let (stores, embedded) = open_store(&config, &clock, &tasks)?;
    let ledger = open_ledger(&config)?;
    let parts = assemble(&config, (&stores, ledger), (&clock, &tasks), metrics);

    let servers = Listeners::new(tasks.clone());
    servers.start("public", listener, public_router(parts.state.clone()), config.server);
    servers.start("admin", admin_listener, admin_router(parts.state.clone()), config.server.for_admin());
    let background = Tasks::new();
    let (upkeep, upkeep_stop) = (parts.state.metrics.clone(), background.stop_signal());
    background.spawn("metrics upkeep", async move {
        // Samples of histograms pile up until somebody sorts them into buckets.
        while upkeep_stop.run_until_cancelled(tokio::time::sleep(METRICS_UPKEEP)).await.is_some() {
            upkeep.run_upkeep();
        }
    });
    background.spawn("push", parts.pusher.clone().run(background.stop_signal()));

    // `/livez` answers already, `/readyz` says no: a store that is late is waited for.
    let stop = stop_signal()?;
    let ready = async {
        parts.contact.first(&background.stop_signal()).await.map_err(refused)?;
        parts.state.readiness.contacted();
        for duty in &parts.duties {
            let rounds = Rounds { duty: duty.clone(), records: stores.records.clone(), pools: stores.pools.clone() };
            background.spawn("a duty to campaigns", rounds.run(background.stop_signal()));
        }
        if let Some(testimony) = parts.testimony.clone() {
            background.spawn("testimony", testify::run(testimony, background.stop_signal()));
        }
        background.spawn("repeat the facts", parts.contact.clone().repeat(background.stop_signal()));
        greet(&config, &stores, (address, admin_address));
        std::future::pending::<Result<(), StartError>>().await
    };
    tokio::select! {
        refused = ready => return Err(refused.err().unwrap_or_else(|| StartError("the start ended early".into()))),
        () = stop => {}
    }

    let code = wind_down(&config, &parts, &servers, &background, &tasks).await;
    if let Some(embedded) = embedded {
        // Closing waits for the disk; nothing else runs any more.
        embedded.close();
    }
    Ok(code)
}

/// Descriptors beside those of callers: a handful per node of the store, the embedded store's file, sockets of the runtime.
const OPEN_FILES_BESIDE: usize = 200;

/// What a running process consists of.
struct Parts {
    state: Arc<AppState>,
    pusher: Arc<Pusher>,
    contact: Arc<Contact>,
    duties: Vec<Arc<dyn CampaignDuty>>,
    testimony: Option<Arc<Testimony>>,
}

fn assemble(
    config: &Config,
    (stores, ledger): (&Stores, Option<Arc<dyn Ledger>>),
    (clock, tasks): (&Clock, &Tasks),
    metrics: PrometheusHandle,
) -> Parts {
    let identity = Arc::new(Identity::default());
    let calendar = Calendar::utc();
    let store_clock = Arc::new(StoreClock::new(clock.clone()));
    let push_soon = Arc::new(Notify::new());
    let Stores { counters, records, deployment, .. } = stores.clone();

    let cells = Arc::new(CellCache::new(config.local.sketch_cache_bytes));
    let buffer = Arc::new(Buffer::new(config.local.buffer_bytes));
    let crowd = assemble_crowd(config, &counters, (&cells, &buffer), (clock, tasks));
    let readings = Arc::new(Readings::new(tasks.clone()));

    let book = Arc::new(Book::new(records.clone(), config.defaults, identity.clone(), tasks));
    // Host names repeat, and processes restart within a second.
    let names = (random_name(), push_soon.clone());
    let merger = Arc::new(Merger::new(counters.clone(), cells.clone(), store_clock.clone(), config.report, names));
    let visits = Visits {
        book: book.clone(),
        crowd: crowd.clone(),
        identity: identity.clone(),
        calendar: calendar.clone(),
        clock: clock.clone(),
    };
    let reports = Reports {
        book: book.clone(),
        merger: merger.clone(),
        readings: readings.clone(),
        calendar: calendar.clone(),
        clock: clock.clone(),
    };
    let claims = Claims::new(book.clone(), crowd, merger, readings, (store_clock.clone(), identity.clone()));
    let events = Events { book: book.clone(), records, deployment: deployment.clone() };
    let shared = (book.clone(), identity.clone(), store_clock);
    let ledger_place = ledger.as_ref().map(|ledger| ledger.describe());
    let (exact, campaigns) = assemble_exact(config, (stores, ledger), shared, (clock, tasks));
    let Exact { hard, erase, duties, reconcile, testimony, .. } = exact;

    let state = AppState {
        visits: Arc::new(visits),
        reports: Arc::new(reports),
        claims: Arc::new(claims),
        hard: Arc::new(hard),
        events: Arc::new(events),
        campaigns: Arc::new(campaigns),
        reconcile,
        erase: Arc::new(erase),
        readiness: Arc::new(Readiness::new(deployment.clone(), ledger_place)),
        metrics,
        clock: clock.clone(),
        tasks: tasks.clone(),
        config: config.api.clone(),
    };
    let pusher = Pusher {
        counters: counters.clone(),
        cells,
        buffer,
        book,
        calendar: calendar.clone(),
        clock: clock.clone(),
        config: config.push,
        push_soon,
    };
    let contact = Contact { deployment, counters, identity, choice: config.hashing, calendar };
    Parts { state: Arc::new(state), pusher: Arc::new(pusher), contact: Arc::new(contact), duties, testimony }
}

fn assemble_crowd(
    config: &Config,
    counters: &Arc<dyn Counters>,
    (cells, buffer): (&Arc<CellCache>, &Arc<Buffer>),
    (clock, tasks): (&Clock, &Tasks),
) -> Arc<Crowd> {
    let batches = (config.local.coalesce_linger, config.local.coalesce_elements_max);
    let runtime = (clock.clone(), tasks.clone());
    let coalescer = Arc::new(Coalescer::new(counters.clone(), cells.clone(), buffer.clone(), runtime, batches));
    Arc::new(Crowd::new(cells.clone(), buffer.clone(), coalescer))
}

fn assemble_exact(
    config: &Config,
    (stores, ledger): (&Stores, Option<Arc<dyn Ledger>>),
    (book, identity, store_clock): (Arc<Book>, Arc<Identity>, Arc<StoreClock>),
    (clock, tasks): (&Clock, &Tasks),
) -> (Exact, Campaigns) {
    let materials = Materials {
        book: book.clone(),
        identity,
        store_clock: store_clock.clone(),
        records: stores.records.clone(),
        pools: stores.pools.clone(),
        outbox: stores.outbox.clone(),
        ledger,
        alarm: config.ledger.alarm,
    };
    let exact = materials.assemble(clock, tasks);
    let campaigns = Campaigns {
        book,
        records: stores.records.clone(),
        store_clock,
        operations: exact.operations.clone(),
        sold_out_interval: config.report.refresh,
    };
    (exact, campaigns)
}

fn open_ledger(config: &Config) -> Result<Option<Arc<dyn Ledger>>, StartError> {
    let open = |url: &LedgerUrl| SqlLedger::open(&url.0).map(|ledger| ledger as Arc<dyn Ledger>);
    config.ledger.url.as_ref().map(open).transpose().map_err(StartError)
}

fn open_store(
    config: &Config,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<(Stores, Option<Arc<EmbeddedStore>>), StartError> {
    match &config.store {
        StoreChoice::Embedded { dir } => {
            let store = EmbeddedStore::open(EmbeddedConfig::new(dir), clock.clone(), tasks.clone())
                .map_err(|error| StartError(error.to_string()))?;
            Ok((store.stores(), Some(store)))
        }
        StoreChoice::Redis(redis) => {
            let store = RedisStore::start(redis, tasks.clone()).map_err(StartError)?;
            Ok((store.stores(), None))
        }
    }
}

/// Readiness off, keep serving while load balancers notice, let requests under way end, push what is buffered, and say
/// what could not be.
async fn wind_down(config: &Config, parts: &Parts, servers: &Listeners, background: &Tasks, tasks: &Tasks) -> ExitCode {
    tracing::info!(
        drain_ms = config.stop.drain.as_millis() as u64,
        "stopping: readiness is off, requests are still served"
    );
    parts.state.readiness.draining();
    tokio::time::sleep(config.stop.drain).await;
    let deadline = Instant::now() + config.stop.deadline;
    let rest = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    // Half of the time is for requests, so that a client that hangs cannot cost the buffer its own.
    if !servers.close(config.stop.deadline / 2).await {
        tracing::warn!("some requests were still under way and are cut off");
    }
    background.finish(rest(deadline) / 2).await;
    let left = parts.pusher.flush(deadline).await;
    tasks.finish(rest(deadline).min(config.stop.deadline / 4)).await;
    if left > 0 {
        tracing::error!(visits = left, "the store did not answer: these visits were accepted as buffered and are lost");
        return ExitCode::FAILURE;
    }
    tracing::info!("stopped; nothing is left in the buffer");
    ExitCode::SUCCESS
}

/// Connections need descriptors; without them the next one waits, and so might a connection to the store.
fn raise_open_files(config: &Config) {
    let connections = config.server.connections_max + config.server.for_admin().connections_max;
    match open_files::raise() {
        Ok(allowed) if allowed < (connections + OPEN_FILES_BESIDE) as u64 => tracing::warn!(
            open_files = allowed,
            connections_max = connections,
            "not all connections that may be open find a file descriptor: raise the hard limit (ulimit -Hn), or lower \
             HEADCOUNT_CONNECTIONS_MAX"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
}

/// Binds, or says which variable to change.
fn listen(address: SocketAddr, variable: &str) -> Result<(TcpListener, SocketAddr), StartError> {
    bind(address)
        .map_err(|error| StartError(format!("cannot listen on {address}: {error}; set {variable} to a free one")))
}

fn refused(disagreement: Disagreement) -> StartError {
    match disagreement {
        Disagreement::Hashing(_) => StartError(format!("{disagreement} (HEADCOUNT_HASH_KEY, HEADCOUNT_USER_HASHING)")),
        Disagreement::Other(_) => StartError(disagreement.to_string()),
    }
}

/// Completes at the first SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()>, StartError> {
    use tokio::signal::unix::{SignalKind, signal};
    let hear = |kind| signal(kind).map_err(|error| StartError(format!("cannot hear signals: {error}")));
    let (mut terminate, mut interrupt) = (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The first thing a newcomer reads.
fn greet(config: &Config, stores: &Stores, (address, admin_address): (SocketAddr, SocketAddr)) {
    let reachable = |address: SocketAddr| {
        if address.ip().is_unspecified() { format!("127.0.0.1:{}", address.port()) } else { address.to_string() }
    };
    let public = reachable(address);
    tracing::info!(
        listen = %address, admin_listen = %admin_address, store = stores.deployment.describe(),
        shards = config.defaults.shards.count(), "headcount is ready"
    );
    if config.hashing == HashingChoice::Plain {
        tracing::warn!(
            "users are counted under plain hashing: whoever chooses ids can double or kill a count; unset \
             HEADCOUNT_USER_HASHING unless sketches are shared with other programs"
        );
    }
    for warning in stores.deployment.health().warnings {
        tracing::warn!("{warning}");
    }
    if config.log.format == LogFormat::Json {
        return;
    }
    eprintln!(
        "\nHeadcount counts on http://{public} (metrics and administration on http://{}). Try:\n\n  \
         curl -d '{{\"user\":\"ada\"}}' http://{public}/v1/events/launch/visits\n  \
         curl -d '{{\"users\":[\"ada\",\"grace\"]}}' http://{public}/v1/events/launch/visits\n  \
         curl http://{public}/v1/events/launch/count\n",
        reachable(admin_address),
    );
}
