//! The ledger in SQLite, PostgreSQL, MySQL or MariaDB (docs/LEDGER.md).
//!
//! What becomes of an entry is decided by `domain/ledger/settle.rs`, here and not in SQL: read the rows that an entry
//! may meet, settle, write what is new, all in one transaction. So there is one set of statements for all databases
//! (docs/decisions/0006).
//!
//! # Faults
//!
//! - The database is away: `open` succeeds all the same, calls answer `Unavailable` until it is back.
//! - It hangs: each call has a deadline. Then the connections are given up too, because returning one to the pool waits
//!   for an answer without end.
//! - Somebody was in the way (a deadlock, a second drainer): the transaction is rolled back and tried again, a few times.
//! - It will not (no rights, no space, newer tables): `Refused`, with a sentence of what to do (`error.rs`).

mod campaigns;
mod dialect;
mod error;
mod rows;
mod schema;
mod statement;
mod write;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyPool, ConnectOptions, Executor};
use tokio::sync::OnceCell;

use self::campaigns::Desk;
use self::dialect::Dialect;
use self::error::Fault;
use self::write::Writer;
use crate::domain::id::CampaignId;
use crate::domain::quota::claim::UserKey;
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::ledger::{Ledger, LedgerBatch, LedgerCampaign, Progress, RowsPage, Written};

/// After this nobody waits for an answer any more.
const CALL_MAX: Duration = Duration::from_secs(10);
/// For a connection, free or new.
const CONNECTION_MAX: Duration = Duration::from_secs(4);
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A ledger in a database.
pub struct SqlLedger {
    dialect: Dialect,
    options: AnyConnectOptions,
    place: String,
    /// Replaced when it hung.
    pool: Mutex<AnyPool>,
    /// Set when the tables are there and ours.
    tables: OnceCell<()>,
}

impl SqlLedger {
    /// Reads the URL. The database is asked nothing before the first call; SQLite's file is made then. Wants a Tokio
    /// runtime.
    pub fn open(url: &str) -> Result<Arc<Self>, String> {
        let (dialect, options) = read(url)?;
        sqlx::any::install_default_drivers();
        let pool = Mutex::new(connect(dialect, &options));
        Ok(Arc::new(Self { dialect, options, place: dialect::without_secrets(url), pool, tables: OnceCell::new() }))
    }

    /// Whether a URL can be used; what is wrong with it.
    pub fn check(url: &str) -> Result<(), String> {
        read(url).map(drop)
    }

    /// Does something on the database, once its tables are there, and within the deadline. It may be done several times,
    /// so it must be a question or one whole transaction.
    async fn ask<T, F>(&self, work: impl Fn(AnyPool) -> F + Send) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let pool = self.pool().clone();
        match tokio::time::timeout(CALL_MAX, self.insist(&pool, work)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.give_up(&pool);
                Err(StoreError::Unavailable(format!("{}: no answer within {CALL_MAX:?}", self.place)))
            }
        }
    }

    async fn insist<T, F>(&self, pool: &AnyPool, work: impl Fn(AnyPool) -> F + Send) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.attempt(pool, &work).await {
                Err(Fault::Again(reason)) => tracing::debug!(%reason, "the ledger's database is asked again"),
                answer => return answer,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.attempt(pool, &work).await
    }

    async fn attempt<T, F>(&self, pool: &AnyPool, work: &(impl Fn(AnyPool) -> F + Send)) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        self.tables.get_or_try_init(|| schema::bring_up_to_date(pool, self.dialect)).await?;
        work(pool.clone()).await
    }

    /// Connections that do not answer never become free again; others take their place.
    fn give_up(&self, hung: &AnyPool) {
        let mut pool = self.pool();
        if !hung.is_closed() {
            *pool = connect(self.dialect, &self.options);
            // It is closed from here on; that its connections end is awaited by nobody, since they hang.
            drop(hung.close());
        }
    }

    fn pool(&self) -> MutexGuard<'_, AnyPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(url: &str) -> Result<(Dialect, AnyConnectOptions), String> {
    let dialect = Dialect::of(url)?;
    if dialect == Dialect::Sqlite && url.contains(":memory:") {
        return Err("a ledger in memory would be gone with the process: name a file, sqlite:/folder/file".to_owned());
    }
    // The library's own words may repeat the URL, and with it the password.
    let options: AnyConnectOptions = full_url(dialect, url)
        .parse()
        .map_err(|_| format!("the ledger's URL cannot be read: expected {}", dialect.example()))?;
    // Statements hold no values, but there are many.
    Ok((dialect, options.disable_statement_logging()))
}

fn connect(dialect: Dialect, options: &AnyConnectOptions) -> AnyPool {
    AnyPoolOptions::new()
        .max_connections(dialect.connections())
        .acquire_timeout(CONNECTION_MAX)
        .after_connect(move |connection, _| {
            Box::pin(async move {
                for statement in dialect.greeting() {
                    connection.execute(*statement).await?;
                }
                Ok(())
            })
        })
        .connect_lazy_with(options.clone())
}

/// The URL with what is not said otherwise: SQLite makes the file only if it is told to, and the servers' clients forget
/// statements that are used all the time unless they keep more than 100.
fn full_url(dialect: Dialect, url: &str) -> String {
    let (name, value) = match dialect {
        Dialect::Sqlite => ("mode", "rwc"),
        Dialect::Postgres | Dialect::Mysql => ("statement-cache-capacity", "250"),
    };
    if url.contains(&format!("{name}=")) {
        return url.to_owned();
    }
    format!("{url}{}{name}={value}", if url.contains('?') { '&' } else { '?' })
}

impl Ledger for SqlLedger {
    fn enter<'a>(&'a self, campaign: &'a LedgerCampaign) -> StoreFuture<'a, ()> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut transaction = pool.begin_with(dialect.begin()).await?;
            Desk { on: &mut transaction, dialect }.enter(campaign).await?;
            Ok(transaction.commit().await?)
        }))
    }

    fn add_packets<'a>(&'a self, campaign: &'a CampaignId, first: u64, cents: &'a [i64]) -> StoreFuture<'a, ()> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut transaction = pool.begin_with(dialect.begin()).await?;
            Desk { on: &mut transaction, dialect }.add_packets(campaign, first, cents).await?;
            Ok(transaction.commit().await?)
        }))
    }

    fn campaign<'a>(&'a self, campaign: &'a CampaignId) -> StoreFuture<'a, Option<LedgerCampaign>> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut connection = pool.acquire().await?;
            Desk { on: &mut connection, dialect }.campaign(campaign).await
        }))
    }

    fn packets<'a>(&'a self, campaign: &'a CampaignId, first: u64, limit: usize) -> StoreFuture<'a, Vec<i64>> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut connection = pool.acquire().await?;
            Desk { on: &mut connection, dialect }.packets(campaign, first, limit).await
        }))
    }

    fn write<'a>(&'a self, batch: &'a LedgerBatch) -> StoreFuture<'a, Written> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut transaction = pool.begin_with(dialect.begin()).await?;
            let written = Writer { on: &mut transaction, dialect, batch }.write().await?;
            transaction.commit().await?;
            Ok(written)
        }))
    }

    fn progress<'a>(&'a self, campaign: &'a CampaignId) -> StoreFuture<'a, Vec<(u16, Progress)>> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut connection = pool.acquire().await?;
            Desk { on: &mut connection, dialect }.progress(campaign).await
        }))
    }

    fn rows<'a>(
        &'a self,
        campaign: &'a CampaignId,
        shard: u16,
        cursor: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, RowsPage> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut connection = pool.acquire().await?;
            Desk { on: &mut connection, dialect }.page(campaign, shard, cursor, limit).await
        }))
    }

    fn conflicts<'a>(&'a self, campaign: &'a CampaignId) -> StoreFuture<'a, u64> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut connection = pool.acquire().await?;
            Desk { on: &mut connection, dialect }.conflicts(campaign).await
        }))
    }

    fn rename<'a>(&'a self, user: UserKey, alias: &'a str) -> StoreFuture<'a, u64> {
        let dialect = self.dialect;
        Box::pin(self.ask(move |pool| async move {
            let mut transaction = pool.begin_with(dialect.begin()).await?;
            let renamed = Desk { on: &mut transaction, dialect }.rename(user, alias).await?;
            transaction.commit().await?;
            Ok(renamed)
        }))
    }

    fn describe(&self) -> String {
        self.place.clone()
    }
}
