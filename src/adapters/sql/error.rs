//! What a database's errors mean to whoever called.

use std::borrow::Cow;

use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::sqlite::SqliteError;

use crate::store::error::StoreError;

/// Why a try failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Somebody else was in the way: the same again, at once, has other chances.
    Again(String),
    /// The database is not there, or cannot now.
    Away(String),
    /// It will not, until somebody changes something.
    Refused(String),
    /// It holds something that nobody here has written.
    Corrupt(String),
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Again(text) | Fault::Away(text) => StoreError::Unavailable(text),
            Fault::Refused(text) => StoreError::Refused(text),
            Fault::Corrupt(text) => StoreError::Corrupt(text),
        }
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => of_database(error.as_ref()),
            sqlx::Error::PoolTimedOut => {
                Fault::Away("no connection to the ledger's database was free, or could be made, in time".to_owned())
            }
            sqlx::Error::Configuration(error) => Fault::Refused(format!("the ledger's URL: {error}")),
            error @ (sqlx::Error::RowNotFound
            | sqlx::Error::TypeNotFound { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::AnyDriverError(_)) => {
                Fault::Corrupt(format!("the ledger's tables are not as Headcount makes them: {error}"))
            }
            error => Fault::Away(format!("the ledger's database: {error}")),
        }
    }
}

impl From<MigrateError> for Fault {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error.into(),
            MigrateError::VersionMissing(version) => Fault::Refused(format!(
                "the ledger's tables were made by a newer Headcount (migration {version}): run that one, or give this \
                 one a database of its own"
            )),
            MigrateError::VersionMismatch(version) => Fault::Refused(format!(
                "the ledger's migration {version} was another text when it was applied: this is not a release of \
                 Headcount that knows these tables"
            )),
            MigrateError::Dirty(version) => Fault::Refused(format!(
                "the ledger's migration {version} ended half way (MySQL cannot undo one): drop the tables and views \
                 ledger_* that it had made, and its row in ledger_migrations, and start again"
            )),
            error => Fault::Refused(format!("the ledger's migrations: {error}")),
        }
    }
}

fn of_database(error: &dyn DatabaseError) -> Fault {
    let code = match error.try_downcast_ref::<MySqlDatabaseError>() {
        // Its codes of the standard tell little apart.
        Some(error) => error.number().to_string(),
        None => error.code().map(Cow::into_owned).unwrap_or_default(),
    };
    let told = format!("the ledger's database: {} ({code})", error.message());
    if error.is_unique_violation() {
        return Fault::Again(told);
    }
    if error.try_downcast_ref::<SqliteError>().is_some() { of_sqlite(&code, told) } else { of_server(&code, told) }
}

/// PostgreSQL's codes have 5 letters, MySQL's and MariaDB's 4.
fn of_server(code: &str, told: String) -> Fault {
    let refused = |advice: &str| Fault::Refused(format!("{told}: {advice}"));
    match code {
        // Serialization failure, deadlock, lock timeout.
        "40001" | "40P01" | "55P03" | "1213" | "1205" => Fault::Again(told),
        // Privileges, also to log in.
        "42501" | "28000" | "28P01" | "1044" | "1045" | "1142" | "1143" | "1227" | "1698" => {
            refused("give the user the rights that docs/LEDGER.md lists")
        }
        "3D000" | "1049" => refused("make the database first; Headcount makes its tables"),
        "42P01" | "42703" | "3F000" | "1146" | "1054" => refused(TABLES_GONE),
        "53100" | "1021" | "1114" => refused(DISK_FULL),
        // A text too long, a number out of range, bytes that are no text: the same tomorrow.
        "1264" | "1366" | "1406" => refused("it does not take a value"),
        code if code.len() == 5 && code.starts_with("22") => refused("it does not take a value"),
        _ => Fault::Away(told),
    }
}

/// SQLite's extended codes: the low byte is the kind.
fn of_sqlite(code: &str, told: String) -> Fault {
    let refused = |advice: &str| Fault::Refused(format!("{told}: {advice}"));
    match code.parse::<u32>().unwrap_or(0) & 0xff {
        5 | 6 => Fault::Again(told),
        1 => refused(TABLES_GONE),
        3 | 8 => refused("Headcount must be allowed to write the file and its folder"),
        11 | 26 => Fault::Corrupt(format!("{told}: the file is damaged, or not SQLite's")),
        13 => refused(DISK_FULL),
        14 => refused("its folder must exist, and Headcount must be allowed to write there"),
        _ => Fault::Away(told),
    }
}

const TABLES_GONE: &str =
    "tables that were there are gone or changed: restore them, or restart Headcount to have them made";
const DISK_FULL: &str = "make room on its disk";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_whether_waiting_helps() {
        let server = |code: &str| StoreError::from(of_server(code, "told".to_owned())).retry_may_help();
        for code in ["40P01", "1213", "57P01", "53300", "1040", "1053", "1290", "25006", ""] {
            assert!(server(code), "{code}");
        }
        for code in ["42501", "28P01", "1045", "3D000", "1049", "42P01", "1146", "53100", "22001", "1406"] {
            assert!(!server(code), "{code}");
        }
        let sqlite = |code: &str| StoreError::from(of_sqlite(code, "told".to_owned()));
        assert!(sqlite("517").retry_may_help() && sqlite("10").retry_may_help());
        assert!(matches!(sqlite("14"), StoreError::Refused(_)) && matches!(sqlite("26"), StoreError::Corrupt(_)));
    }
}
