//! The settings of the ledger.

use std::path::Path;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

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

/// What is encoded in a path: all that a URL could take for something else.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// `own_dir`: the folder of a store that is this process's own; only then may the ledger be too (docs/FAULTS.md A7).
pub fn read(read: &mut Reader<'_>, own_dir: Option<&Path>) -> LedgerConfig {
    let url = read.optional("HEADCOUNT_LEDGER_URL", |text| match text {
        "off" => Ok(None),
        url => SqlLedger::check(url).map(|()| Some(LedgerUrl(url.to_owned()))),
    });
    let own = |dir: &Path| {
        let file = dir.join("ledger.sqlite");
        LedgerUrl(format!("sqlite:{}", utf8_percent_encode(&file.to_string_lossy(), PATH)))
    };
    LedgerConfig {
        url: url.unwrap_or_else(|| own_dir.map(own)),
        alarm: read.value("HEADCOUNT_LEDGER_ALARM_S", values::seconds(1..=86_400)),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::environment::Environment;
    use crate::config::load;

    fn url(variables: &[(&str, &str)]) -> Option<String> {
        let config = load(&Environment::of(variables.iter().copied())).expect("good settings").config;
        config.ledger.url.map(|url| url.0)
    }

    #[test]
    fn a_file_is_the_ledger_only_of_a_store_of_ones_own() {
        assert_eq!(url(&[]).as_deref(), Some("sqlite:headcount-data/ledger.sqlite"));
        assert_eq!(url(&[("HEADCOUNT_DATA_DIR", "/a b?")]).as_deref(), Some("sqlite:/a%20b%3F/ledger.sqlite"));
        let redis = ("HEADCOUNT_REDIS_URL", "redis://localhost");
        assert_eq!(url(&[redis]), None);
        assert_eq!(url(&[("HEADCOUNT_LEDGER_URL", "off")]), None);
        let postgres = "postgres://a:b@c/d";
        assert_eq!(url(&[redis, ("HEADCOUNT_LEDGER_URL", postgres)]).as_deref(), Some(postgres));
    }

    #[test]
    fn what_is_no_database_is_refused_without_its_password() {
        let bad = load(&Environment::of([("HEADCOUNT_LEDGER_URL", "oracle://a:secret@b")])).unwrap_err();
        assert_eq!(bad.len(), 1);
        let text = bad[0].to_string();
        assert!(text.contains("sqlite:, postgres: or mysql:") && !text.contains("secret"), "{text}");
    }
}
