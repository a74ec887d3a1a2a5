//! The three databases, as far as they differ: how they are named, opened and spoken to.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
    /// And MariaDB.
    Mysql,
}

impl Dialect {
    /// By the URL's scheme.
    pub(super) fn of(url: &str) -> Result<Self, String> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => Ok(Dialect::Sqlite),
            Some("postgres" | "postgresql") => Ok(Dialect::Postgres),
            Some("mysql" | "mariadb") => Ok(Dialect::Mysql),
            _ => Err("the ledger's URL must begin with sqlite:, postgres: or mysql:".to_owned()),
        }
    }

    /// How a URL looks.
    pub(super) fn example(self) -> &'static str {
        match self {
            Dialect::Sqlite => "sqlite:/folder/file",
            Dialect::Postgres => "postgres://user:password@host/database",
            Dialect::Mysql => "mysql://user:password@host/database",
        }
    }

    /// SQLite has one writer at a time whatever one does; waiting here is better than there.
    pub(super) fn connections(self) -> u32 {
        match self {
            Dialect::Sqlite => 1,
            Dialect::Postgres | Dialect::Mysql => 4,
        }
    }

    /// What is said on each new connection.
    pub(super) fn greeting(self) -> &'static [&'static str] {
        match self {
            Dialect::Sqlite => {
                &["PRAGMA busy_timeout = 5000", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"]
            }
            // Shorter than this program's own deadline, so that the server lets go of what nobody waits for any more.
            Dialect::Postgres => &[
                "SET statement_timeout = 8000",
                "SET idle_in_transaction_session_timeout = 20000",
                "SET default_transaction_isolation = 'read committed'",
                // A plan that was kept since the tables were empty reads them whole when they are large.
                "SET plan_cache_mode = force_custom_plan",
                "SET enable_seqscan = off",
            ],
            // Strict: a text too long is an error, not a shorter text.
            Dialect::Mysql => &[
                "SET SESSION innodb_lock_wait_timeout = 5",
                "SET SESSION wait_timeout = 300",
                "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
            ],
        }
    }

    /// SQLite's other way would take the lock at the first change, and fail there if what was read is no longer true.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN",
            Dialect::Mysql => "START TRANSACTION",
        }
    }

    /// Statements are written with `?`, which PostgreSQL calls `$1`, `$2`, … No statement has a `?` inside quotes.
    pub(super) fn translate(self, text: &str) -> String {
        if self != Dialect::Postgres {
            return text.to_owned();
        }
        let mut parts = text.split('?');
        let mut translated = parts.next().unwrap_or_default().to_owned();
        for (index, part) in parts.enumerate() {
            translated.push_str(&format!("${}", index + 1));
            translated.push_str(part);
        }
        translated
    }
}

/// Where a URL leads, without the user, the password and the parameters.
pub(super) fn without_secrets(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    match bare.split_once("://") {
        // A password may hold an `@` that nobody encoded.
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, place)| place)),
        None => bare.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_name_databases() {
        assert_eq!(Dialect::of("sqlite:///data/ledger.db"), Ok(Dialect::Sqlite));
        assert_eq!(Dialect::of("postgresql://a@b/c"), Ok(Dialect::Postgres));
        assert_eq!(Dialect::of("mariadb://a@b/c"), Ok(Dialect::Mysql));
        for bad in ["", "ledger.db", "redis://a", "Sqlite"] {
            let told = Dialect::of(bad).unwrap_err();
            assert!(["sqlite:", "postgres:", "mysql:"].iter().all(|scheme| told.contains(scheme)), "{told}");
        }
    }

    #[test]
    fn only_postgres_numbers_its_parameters() {
        assert_eq!(Dialect::Postgres.translate("a = ? AND b IN (?, ?)"), "a = $1 AND b IN ($2, $3)");
        assert_eq!(Dialect::Postgres.translate("SELECT 1"), "SELECT 1");
        assert_eq!(Dialect::Sqlite.translate("a = ?"), "a = ?");
    }

    #[test]
    fn secrets_stay_out_of_descriptions() {
        let cases = [
            ("postgres://me:p@ss@db:5432/ledger?sslpassword=x", "postgres://db:5432/ledger"),
            ("mysql://db/ledger", "mysql://db/ledger"),
            ("sqlite:/data/ledger.db?mode=rwc", "sqlite:/data/ledger.db"),
        ];
        for (url, told) in cases {
            assert_eq!(without_secrets(url), told);
        }
    }
}
