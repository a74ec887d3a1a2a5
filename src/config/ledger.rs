//! The settings of the ledger.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::values;
use crate::adapters::sql::SqlLedger;

/// The ledger's database.
#[derive(Clone, Debug)]
pub struct LedgerConfig {
    /// None: there is none.
    pub url: Option<LedgerUrl>,
    pub alarm: Duration,
}

/// May hold a password.
#[derive(Clone)]
pub struct LedgerUrl(pub String);

impl std::fmt::Debug for LedgerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LedgerUrl(…)")
    }
}

/// `is_alone`: the store is this process's own; only then may the ledger be too (docs/FAULTS.md A7).
pub fn read(read: &mut Reader<'_>, is_alone: bool) -> LedgerConfig {
    let url = read.optional("HEADCOUNT_LEDGER_URL", |text| match text {
        "off" => Ok(None),
        url => SqlLedger::open(url).map(|_| Some(LedgerUrl(url.to_owned()))),
    });
    let dir = read.value("HEADCOUNT_DATA_DIR", |text| Ok(PathBuf::from(text)));
    let own = LedgerUrl(format!("sqlite:{}", dir.join("ledger.sqlite").display()));
    LedgerConfig {
        url: url.unwrap_or(is_alone.then_some(own)),
        alarm: read.value("HEADCOUNT_LEDGER_ALARM_S", values::seconds(1..=86_400)),
    }
}
