//! The ledger on each of its databases: the promises of every ledger (`contract/ledger.rs`), the same tables from the same
//! news, and what happens when the database is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headcount::adapters::sql::SqlLedger;
use headcount::domain::id::CampaignId;
use headcount::domain::quota::claim::ClaimState;
use headcount::domain::quota::pool::LogKind;
use headcount::domain::quota::unit::Unit;
use headcount::store::error::StoreError;
use headcount::store::ledger::{Ledger, LedgerBatch};
use sqlx::{AnyConnection, Connection, Row};

use crate::contract::ledger::{batch, campaign, entry, fresh_campaign, upholds_the_promises_of_ledgers, write};
use crate::contract::ledger_stream::Sale;
use crate::harness::databases::{Brand, Databases, Disk, execute};

/// Each table and view, its columns in their order, and the order of its rows.
const TABLES: &[(&str, &str, &str)] = &[
    ("ledger_packets", "campaign, unit, cents", "campaign, unit"),
    (
        "ledger_claims",
        "campaign, shard, user_key, user_name, claim_no, unit, turn, cents, state, claim_id, idem, claimed_ms, \
         deadline_ms, changed_ms, kind, incarnation, ver",
        "campaign, unit, turn",
    ),
    (
        "ledger_entries",
        "campaign, shard, incarnation, ver, unit, turn, cents, kind, user_key, claim_no, at_ms",
        "campaign, shard, incarnation, ver, unit",
    ),
    ("ledger_drains", "campaign, shard, incarnation, ver, behind, at_ms", "campaign, shard"),
    (
        "ledger_conflicts",
        "campaign, shard, incarnation, ver, unit, turn, kind, user_key, user_name, claim_no, cents, claim_id, at_ms, \
         stands_user_key, stands_claim_no, stands_unit, stands_turn, stands_state, stands_incarnation, stands_ver",
        "campaign, shard, ver",
    ),
    ("ledger_holders", "campaign, unit, turn, cents, state, user_key, user_name, claim_no", "campaign, unit"),
    ("ledger_packet_holders", "campaign, unit, cents, turn, state, user_key, user_name", "campaign, unit"),
];

#[tokio::test]
async fn a_ledger_in_sqlite() {
    let databases = Databases::start(Brand::Sqlite, Disk::Awaited).await;
    keeps_its_promises(&databases).await;
    waits_for_its_folder(&databases).await;
}

#[tokio::test]
async fn a_ledger_in_postgres() {
    let databases = Databases::start(Brand::Postgres, Disk::Ignored).await;
    keeps_its_promises(&databases).await;
    outlives_its_database(&databases).await;
    says_what_rights_it_lacks(&databases).await;
}

#[tokio::test]
async fn a_ledger_in_mariadb() {
    let databases = Databases::start(Brand::MariaDb, Disk::Ignored).await;
    keeps_its_promises(&databases).await;
    outlives_its_database(&databases).await;
    outlives_a_database_that_hangs(&databases).await;
}

#[tokio::test]
async fn a_url_is_read_and_nobody_is_asked() {
    for bad in ["", "redis://a/b", "ledger.db"] {
        let told = SqlLedger::open(bad).err().expect("refused");
        assert!(["sqlite:", "postgres:", "mysql:"].iter().all(|scheme| told.contains(scheme)), "{told}");
    }
    assert!(SqlLedger::open("sqlite::memory:").is_err());
    let told = SqlLedger::open("postgres://me:secret@[bad/x").err().expect("refused");
    assert!(!told.contains("secret"), "{told}");
    // Nobody listens there.
    let ledger = SqlLedger::open("postgres://me:secret@127.0.0.1:1/ledger").unwrap();
    assert_eq!(ledger.describe(), "postgres://127.0.0.1:1/ledger");
    let told = ledger.conflicts(&fresh_campaign()).await;
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");
}

async fn keeps_its_promises(databases: &Databases) {
    let url = databases.fresh().await;
    upholds_the_promises_of_ledgers(&open(&url)).await;
    eprintln!("promise: the same news make the same tables");
    the_same_news_make_the_same_tables(databases).await;
    eprintln!("promise: newer tables are left alone");
    newer_tables_are_left_alone(&url).await;
}

async fn the_same_news_make_the_same_tables(databases: &Databases) {
    let name = CampaignId::new("Sale-é").unwrap();
    let sale = Sale::run(20_151_117, 3, 3000, 300);
    assert!(sale.total() > 2000, "{}", sale.total());
    let url = databases.fresh().await;
    let ledger = open(&url);
    deliver(&ledger, &name, &sale, 1).await;
    let dump = dump(&url).await;
    for shard in 0..3 {
        let rows = crate::contract::ledger::all_rows(&ledger, &name, shard).await;
        assert_eq!(rows, sale.expected_rows(shard.into()), "rows are the entries that were written");
    }
    // A file, with the same news in another order.
    let files = Databases::start(Brand::Sqlite, Disk::Awaited).await;
    let file = files.fresh().await;
    deliver(&open(&file), &name, &sale, 2).await;
    let same = self::dump(&file).await;
    for (line, other) in dump.lines().zip(same.lines()) {
        assert_eq!(line, other);
    }
    assert_eq!(dump.lines().count(), same.lines().count());
    assert!(dump.contains("ledger_packet_holders") && dump.lines().count() > 4000);
}

async fn deliver(ledger: &Arc<dyn Ledger>, name: &CampaignId, sale: &Sale, seed: u64) {
    ledger.add_packets(name, 1, &sale.cents).await.unwrap();
    let mut fresh = 0;
    for batch in sale.deliveries(name, seed, 200..500) {
        let written = write(ledger, &batch).await;
        assert_eq!(written.conflicts, vec![]);
        fresh += written.fresh;
    }
    assert_eq!(fresh, sale.total());
    // A conflict, so that its table is compared too.
    let stands = &sale.news[0][0];
    let stranger = entry("stranger", LogKind::Grant, 1, ClaimState::Held, stands.unit(), 1);
    let written = write(ledger, &LedgerBatch { shard: 2, ..batch(name, 2, vec![stranger]) }).await;
    assert_eq!(written.conflicts.len(), 1);
}

async fn newer_tables_are_left_alone(url: &str) {
    // What the library writes of a migration, with a version that nobody has yet; the checksum is some bytes.
    execute(
        url,
        "INSERT INTO ledger_migrations (version, description, installed_on, success, checksum, execution_time) \
         SELECT 99, 'later', installed_on, success, checksum, 1 FROM ledger_migrations WHERE version = 1",
    )
    .await;
    let told = open(url).conflicts(&fresh_campaign()).await;
    let Err(StoreError::Refused(text)) = told else { panic!("{told:?}") };
    assert!(text.contains("newer Headcount") && text.contains("99"), "{text}");
}

async fn outlives_its_database(databases: &Databases) {
    eprintln!("promise: it outlives its database");
    let ledger = open(&databases.fresh().await);
    let name = fresh_campaign();
    let grant = |ver| entry(&format!("user{ver}"), LogKind::Grant, ver, ClaimState::Held, Unit::new(ver), 1);
    write(&ledger, &batch(&name, 0, vec![grant(1)])).await;
    databases.stop();
    let unwritten = batch(&name, 0, vec![grant(1), grant(2)]);
    let told = ledger.write(&unwritten).await;
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");
    databases.go_on().await;
    assert_eq!(write(&ledger, &unwritten).await.fresh, 1);
}

async fn outlives_a_database_that_hangs(databases: &Databases) {
    eprintln!("promise: it outlives a database that hangs");
    let ledger = open(&databases.fresh().await);
    let name = fresh_campaign();
    let entered = campaign(1);
    ledger.enter(&entered).await.unwrap();
    // One call is under way when it stops: that one meets its own deadline.
    let grant = |ver| entry(&format!("user{ver}"), LogKind::Grant, ver, ClaimState::Held, Unit::new(ver), 1);
    let written = AtomicU64::new(0);
    let until_it_stops = async {
        loop {
            let ver = written.load(Ordering::Relaxed) + 1;
            match ledger.write(&batch(&name, 0, vec![grant(ver)])).await {
                Ok(_) => written.store(ver, Ordering::Relaxed),
                told => return told,
            }
        }
    };
    let stop = async {
        crate::harness::eventually("a few batches", async || written.load(Ordering::Relaxed) > 5).await;
        databases.signal("STOP");
        let started = Instant::now();
        // More than there are connections.
        let asked = (0..8).map(|_| ledger.campaign(&entered.campaign));
        (started, futures_util::future::join_all(asked).await)
    };
    let (write, (started, asked)) = tokio::join!(until_it_stops, stop);
    assert!(matches!(write, Err(StoreError::Unavailable(_))), "{write:?}");
    assert!(asked.iter().all(|told| matches!(told, Err(StoreError::Unavailable(_)))), "{asked:?}");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    databases.signal("CONT");
    assert_eq!(ledger.campaign(&entered.campaign).await, Ok(Some(entered.clone())));
    let written = written.into_inner();
    self::write(&ledger, &batch(&name, 0, (1..written + 3).map(grant).collect())).await;
    assert_eq!(crate::contract::ledger::all_rows(&ledger, &name, 0).await.len() as u64, written + 2);
}

async fn says_what_rights_it_lacks(databases: &Databases) {
    eprintln!("promise: it says what rights it lacks");
    let url = databases.fresh().await;
    execute(&url, "CREATE ROLE poor LOGIN").await;
    let poor = open(&url.replace("headcount@", "poor@"));
    let told = poor.conflicts(&fresh_campaign()).await;
    let Err(StoreError::Refused(text)) = told else { panic!("{told:?}") };
    assert!(text.contains("docs/LEDGER.md"), "{text}");
    let told = open(&format!("{url}missing")).conflicts(&fresh_campaign()).await;
    assert!(matches!(&told, Err(StoreError::Refused(text)) if text.contains("make the database")), "{told:?}");
}

async fn waits_for_its_folder(databases: &Databases) {
    eprintln!("promise: it says which folder it lacks");
    let url = databases.fresh().await;
    let folder = url.trim_start_matches("sqlite:").to_owned();
    let ledger = open(&format!("{url}/file"));
    let told = ledger.conflicts(&fresh_campaign()).await;
    assert!(matches!(&told, Err(StoreError::Refused(text)) if text.contains("folder must exist")), "{told:?}");
    std::fs::create_dir(folder).unwrap();
    assert_eq!(ledger.conflicts(&fresh_campaign()).await, Ok(0));
}

/// Everything, one row a line.
async fn dump(url: &str) -> String {
    let mut connection = AnyConnection::connect(url).await.unwrap();
    let mut text = String::new();
    for (table, columns, order) in TABLES {
        let select = format!("SELECT {columns} FROM {table} ORDER BY {order}");
        let rows = sqlx::query(sqlx::AssertSqlSafe(select)).fetch_all(&mut connection).await.unwrap();
        for row in rows {
            let cells = (0..row.len()).map(|cell| match row.try_get::<Option<i64>, _>(cell) {
                Ok(number) => number.map_or("-".to_owned(), |number| number.to_string()),
                Err(_) => format!("{:?}", row.get::<Option<String>, _>(cell)),
            });
            text.push_str(&format!("{table} {}\n", cells.collect::<Vec<_>>().join(" ").replace("None", "-")));
        }
    }
    text
}

fn open(url: &str) -> Arc<dyn Ledger> {
    SqlLedger::open(url).unwrap_or_else(|error| panic!("{error}"))
}

/// Entries a second at 500 a batch, in each database, which waits for its disk; and bytes a claim. For docs/LEDGER.md.
#[tokio::test]
#[ignore = "a measurement: a minute"]
async fn prove_ledger_writes_fast_enough() {
    const CLAIMS: u64 = 20_000;
    let news = |kind, ver, state, number| entry(&format!("user-{number:010}"), kind, ver, state, Unit::new(number), 1);
    for brand in [Brand::Sqlite, Brand::Postgres, Brand::MariaDb] {
        let databases = Databases::start(brand, Disk::Awaited).await;
        let url = databases.fresh().await;
        let ledger = open(&url);
        write(&ledger, &batch(&fresh_campaign(), 0, vec![])).await;
        let (direct, held) = (fresh_campaign(), fresh_campaign());
        for (what, name) in [("grants", &direct), ("holds", &held), ("confirmations", &held)] {
            let news = |number| match what {
                "grants" => news(LogKind::Grant, number, ClaimState::Confirmed, number),
                "holds" => news(LogKind::Grant, number, ClaimState::Held, number),
                _ => news(LogKind::Confirm, CLAIMS + number, ClaimState::Confirmed, number),
            };
            let started = Instant::now();
            for start in (1..=CLAIMS).step_by(500) {
                write(&ledger, &batch(name, 0, (start..start + 500).map(news).collect())).await;
            }
            println!("{brand:?}: {:.0} {what}/s", CLAIMS as f64 / started.elapsed().as_secs_f64());
            if what == "grants" {
                println!("{brand:?}: {}", size(brand, &url).await);
            }
        }
    }
}

/// What the database says of its size.
async fn size(brand: Brand, url: &str) -> String {
    let (prepare, ask) = match brand {
        Brand::Sqlite => (
            "PRAGMA wal_checkpoint(TRUNCATE)",
            "SELECT CAST(page_count * page_size AS BIGINT) FROM pragma_page_count(), pragma_page_size()",
        ),
        Brand::Postgres => (
            "SELECT 1",
            "SELECT CAST(SUM(pg_total_relation_size(oid)) AS BIGINT) FROM pg_class \
             WHERE relname LIKE 'ledger%' AND relkind = 'r'",
        ),
        Brand::MariaDb => (
            "ANALYZE TABLE ledger_claims, ledger_entries",
            "SELECT CAST(SUM(data_length + index_length) AS SIGNED) FROM information_schema.tables WHERE \
             table_schema = DATABASE()",
        ),
    };
    execute(url, prepare).await;
    let mut connection = AnyConnection::connect(url).await.unwrap();
    let row = sqlx::query(ask).fetch_one(&mut connection).await.unwrap();
    let claims = sqlx::query("SELECT COUNT(*) FROM ledger_claims").fetch_one(&mut connection).await.unwrap();
    let (bytes, claims): (i64, i64) = (row.get(0), claims.get(0));
    format!("{} bytes a claim, its entries included ({bytes} bytes, {claims} claims)", bytes / claims)
}
