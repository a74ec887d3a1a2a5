//! The tables: made or brought up to date at the first contact with a database.

use std::borrow::Cow;

use sqlx::AnyPool;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Connection, SqlSafeStr};

use super::dialect::Dialect;
use super::error::Fault;

/// Version, name and text of each migration.
type Migrations = &'static [(i64, &'static str, &'static str)];

const SQLITE: Migrations = &[(1, "ledger", include_str!("../../../migrations/sqlite/0001_ledger.sql"))];
const POSTGRES: Migrations = &[(1, "ledger", include_str!("../../../migrations/postgres/0001_ledger.sql"))];
const MYSQL: Migrations = &[(1, "ledger", include_str!("../../../migrations/mysql/0001_ledger.sql"))];

/// Not the library's own name: a shop that uses the library too may have its tables in the same database.
const TABLE: &str = "ledger_migrations";

fn migrator(dialect: Dialect) -> Migrator {
    let migrations = match dialect {
        Dialect::Sqlite => SQLITE,
        Dialect::Postgres => POSTGRES,
        Dialect::Mysql => MYSQL,
    };
    let migrations = migrations.iter().map(|(version, name, text)| {
        Migration::new(*version, Cow::Borrowed(*name), MigrationType::Simple, (*text).into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

pub(super) async fn bring_up_to_date(pool: &AnyPool, dialect: Dialect) -> Result<(), Fault> {
    let mut connection = pool.acquire().await?;
    let migrated = migrator(dialect).run_direct(None, &mut *connection, false).await;
    if migrated.is_err() {
        // After a failure the library keeps the lock that it took for migrating; it ends with the connection.
        let _ = connection.detach().close_hard().await;
    }
    Ok(migrated?)
}
