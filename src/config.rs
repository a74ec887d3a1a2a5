//! The only file that knows the names of environment variables.
//!
//! `VARIABLES` is the table: `headcount config`, `--help` and `docs/CONFIGURATION.md` are made from it, and each value is
//! read against it. All bad values are reported in one go; a name that nobody knows is a warning, because Kubernetes puts
//! `HEADCOUNT_PORT` and the like into every pod beside a Service of that name.

pub mod environment;
pub mod ledger;
pub mod reader;
pub mod values;
pub mod variable;
pub mod variables;

use std::net::SocketAddr;
use std::path::PathBuf;

use environment::Environment;
use ledger::LedgerConfig;
use reader::Reader;
use variable::{BadValue, Effective, UnknownName};
use variables::VARIABLES;

use crate::adapters::redis::RedisConfig;
use crate::adapters::redis::address::RedisUrl;
use crate::api::server::ServerConfig;
use crate::api::state::{AdminToken, ApiConfig};
use crate::domain::element::HashKey;
use crate::jobs::contact::HashingChoice;
use crate::jobs::push::PushConfig;
use crate::local::LocalConfig;
use crate::runtime::stop::StopConfig;
use crate::runtime::telemetry::{LogConfig, LogFormat};
use crate::service::book::Defaults;
use crate::service::merge::{MergeWhere, ReportConfig};

/// Everything that can be set, parsed.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    pub store: StoreChoice,
    pub ledger: LedgerConfig,
    pub hashing: HashingChoice,
    pub defaults: Defaults,
    pub report: ReportConfig,
    pub local: LocalConfig,
    pub push: PushConfig,
    pub stop: StopConfig,
    /// The admin listener has a quarter of the connections and requests, and the same timeouts.
    pub server: ServerConfig,
    pub api: ApiConfig,
    pub log: LogConfig,
    /// Threads; 0: one per core.
    pub workers: usize,
}

/// Where shared state is kept.
#[derive(Clone, Debug)]
pub enum StoreChoice {
    Embedded { dir: PathBuf },
    Redis(RedisConfig),
}

const PREFIX: &str = "HEADCOUNT_";

/// What was read, with what a person should see of it.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    /// Names that begin like ours and are not.
    pub unknown: Vec<UnknownName>,
    /// All values, without secrets.
    pub effective: Vec<Effective>,
}

/// Reads everything, or says all that is wrong.
pub fn load(environment: &Environment) -> Result<Loaded, Vec<BadValue>> {
    let mut read = Reader::new(environment, VARIABLES);
    let store = store(&mut read);
    let own_dir = match &store {
        StoreChoice::Embedded { dir } => Some(dir.as_path()),
        StoreChoice::Redis(_) => None,
    };
    let config = Config {
        listen: read.value("HEADCOUNT_LISTEN", values::address),
        admin_listen: read.value("HEADCOUNT_ADMIN_LISTEN", values::address),
        ledger: ledger::read(&mut read, own_dir),
        store,
        hashing: hashing(&mut read),
        defaults: Defaults {
            shards: read.value("HEADCOUNT_SHARDS", values::shards),
            retention: read.value("HEADCOUNT_RETENTION_DAYS", values::retention),
        },
        report: ReportConfig {
            refresh: read.value("HEADCOUNT_COUNT_REFRESH_MS", values::milliseconds(10..=60_000)),
            merge: read.value("HEADCOUNT_MERGE", |text| match text {
                "auto" => Ok(MergeWhere::Auto),
                "redis" => Ok(MergeWhere::Store),
                "gateway" => Ok(MergeWhere::Gateway),
                _ => Err("must be auto, redis or gateway".into()),
            }),
            merges_per_second: read.value("HEADCOUNT_MERGES_PER_S", values::number_u32(1..=100_000)),
        },
        local: LocalConfig {
            sketch_cache_bytes: read.value("HEADCOUNT_SKETCH_CACHE_MB", values::megabytes(1..=1_048_576)),
            buffer_bytes: read.value("HEADCOUNT_BUFFER_MB", values::megabytes(1..=1_048_576)),
            coalesce_linger: read.value("HEADCOUNT_COALESCE_MS", values::milliseconds(0..=1_000)),
            coalesce_elements_max: read.value("HEADCOUNT_COALESCE_ELEMENTS_MAX", values::count(1..=10_000)),
        },
        push: PushConfig {
            interval: read.value("HEADCOUNT_PUSH_INTERVAL_S", values::seconds(1..=86_400)),
            sketches_per_second: read.value("HEADCOUNT_PUSH_SKETCHES_PER_S", values::number_u32(1..=1_000_000)),
        },
        stop: StopConfig {
            drain: read.value("HEADCOUNT_DRAIN_MS", values::milliseconds(0..=600_000)),
            deadline: read.value("HEADCOUNT_STOP_DEADLINE_MS", values::milliseconds(100..=600_000)),
        },
        server: ServerConfig {
            connections_max: read.value("HEADCOUNT_CONNECTIONS_MAX", values::count(1..=1_000_000)),
            requests_max: read.value("HEADCOUNT_REQUESTS_MAX", values::count(1..=1_000_000)),
            header_timeout: read.value("HEADCOUNT_HEADER_TIMEOUT_MS", values::milliseconds(100..=3_600_000)),
        },
        api: ApiConfig {
            user_header: read.optional("HEADCOUNT_USER_HEADER", values::header_name),
            admin_token: read.optional("HEADCOUNT_ADMIN_TOKEN", values::token).map(AdminToken::new),
            cors_origins: read.optional("HEADCOUNT_CORS_ORIGINS", values::origins).unwrap_or_default(),
            body_timeout: read.value("HEADCOUNT_BODY_TIMEOUT_MS", values::milliseconds(100..=3_600_000)),
            claim_wait: read.value("HEADCOUNT_CLAIM_WAIT_MS", values::milliseconds(10..=60_000)),
            gate_wait: read.value("HEADCOUNT_GATE_WAIT_MS", values::milliseconds(10..=60_000)),
            gate_deny_status: read.value("HEADCOUNT_GATE_DENY_STATUS", values::deny_status),
        },
        log: LogConfig {
            filter: read.value("HEADCOUNT_LOG", values::log_filter),
            format: read.value("HEADCOUNT_LOG_FORMAT", |text| match text {
                "text" => Ok(LogFormat::Text),
                "json" => Ok(LogFormat::Json),
                _ => Err("must be text or json".into()),
            }),
        },
        workers: read.value("HEADCOUNT_WORKERS", values::count(0..=1_024)),
    };
    check_together(&config, &mut read);
    let unknown = environment.unknown(PREFIX, VARIABLES);
    let effective = read.effective();
    read.finish().map(|()| Loaded { config, unknown, effective })
}

fn store(read: &mut Reader<'_>) -> StoreChoice {
    let dir = read.value("HEADCOUNT_DATA_DIR", |text| Ok(PathBuf::from(text)));
    let url = read.optional("HEADCOUNT_REDIS_URL", |text| RedisUrl::parse(text).map(|url| (text.to_owned(), url.tls)));
    let command_timeout = read.value("HEADCOUNT_REDIS_TIMEOUT_MS", values::milliseconds(10..=60_000));
    let (text, tls) = url.clone().unwrap_or_default();
    let redis = RedisConfig {
        user: read.optional("HEADCOUNT_REDIS_USERNAME", |text| Ok(text.to_owned())),
        password: read.optional("HEADCOUNT_REDIS_PASSWORD", |text| Ok(text.to_owned())),
        ca_pem: read.optional("HEADCOUNT_REDIS_CA_FILE", values::pem_file),
        connect_timeout: read.value("HEADCOUNT_REDIS_CONNECT_TIMEOUT_MS", values::milliseconds(10..=60_000)),
        command_timeout,
        // A call may be redirected or tried once more within the time of two commands.
        deadline: 2 * command_timeout,
        calls_per_node: read.value("HEADCOUNT_REDIS_CALLS_PER_NODE", values::count(1..=1_000_000)),
        claim_replicas: read.value("HEADCOUNT_CLAIM_REPLICAS", values::claim_replicas),
        ..RedisConfig::new(text)
    };
    let Some(_) = url else { return StoreChoice::Embedded { dir } };
    match (tls, read.is_given("HEADCOUNT_REDIS_CA_FILE")) {
        (true, false) => read.reject(
            "HEADCOUNT_REDIS_CA_FILE",
            "must be set beside a rediss:// URL: the PEM file of the authority that signed the servers' certificates",
        ),
        (false, true) => {
            read.reject("HEADCOUNT_REDIS_CA_FILE", "must not be set beside a redis:// URL; write rediss://")
        }
        _ => {}
    }
    StoreChoice::Redis(redis)
}

fn hashing(read: &mut Reader<'_>) -> HashingChoice {
    let key = read.optional("HEADCOUNT_HASH_KEY", |text| {
        HashKey::from_hex(text).ok_or_else(|| "must be 32 hex digits, as `openssl rand -hex 16` prints".to_owned())
    });
    let plain = read.value("HEADCOUNT_USER_HASHING", |text| match text {
        "keyed" => Ok(false),
        "plain" => Ok(true),
        _ => Err("must be keyed or plain".into()),
    });
    if plain && key.is_some() {
        read.reject("HEADCOUNT_HASH_KEY", "must not be set beside HEADCOUNT_USER_HASHING=plain, which uses no key");
    }
    if plain { HashingChoice::Plain } else { HashingChoice::Keyed(key) }
}

/// What is wrong only in company.
fn check_together(config: &Config, read: &mut Reader<'_>) {
    if config.api.admin_token.is_none()
        && !config.admin_listen.ip().is_loopback()
        && !read.is_bad("HEADCOUNT_ADMIN_TOKEN")
    {
        let rule =
            format!("must be set, because HEADCOUNT_ADMIN_LISTEN ({}) is not a loopback address", config.admin_listen);
        read.reject("HEADCOUNT_ADMIN_TOKEN", rule);
    }
    if config.listen == config.admin_listen && config.listen.port() != 0 {
        read.reject("HEADCOUNT_ADMIN_LISTEN", "must not be the address of HEADCOUNT_LISTEN");
    }
    // A forgotten URL would otherwise count into a file, and nobody would notice for days.
    if !read.is_given("HEADCOUNT_REDIS_URL") {
        for name in ["HEADCOUNT_REDIS_USERNAME", "HEADCOUNT_REDIS_PASSWORD", "HEADCOUNT_REDIS_CA_FILE"] {
            if read.is_given(name) {
                read.reject("HEADCOUNT_REDIS_URL", format!("must be set, because {name} is"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::redis::replicas::ClaimReplicas;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::of(pairs.iter().copied())
    }

    /// What is said of these settings, one line each.
    fn complaints(pairs: &[(&str, &str)]) -> Vec<String> {
        match load(&environment(pairs)) {
            Ok(_) => Vec::new(),
            Err(bad) => bad.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn the_defaults_of_the_table_are_those_of_the_parts() {
        let config = load(&environment(&[])).unwrap().config;
        assert_eq!(config.report, ReportConfig::default());
        assert_eq!(config.local, LocalConfig::default());
        assert_eq!(config.push, PushConfig::default());
        assert_eq!(config.stop, StopConfig::default());
        assert_eq!(config.server, ServerConfig::default());
        assert_eq!(config.api.body_timeout, ApiConfig::default().body_timeout);
        assert_eq!(config.defaults.retention, crate::domain::period::Retention::DEFAULT);
        assert_eq!(config.defaults.shards.count(), 16);
        assert_eq!(config.hashing, HashingChoice::Keyed(None));
        assert!(matches!(config.store, StoreChoice::Embedded { dir } if dir.as_os_str() == "headcount-data"));
    }

    #[test]
    fn every_bad_value_is_reported_at_once_with_its_rule_and_no_secret() {
        let told = complaints(&[
            ("HEADCOUNT_LISTEN", "tcp://10.0.0.1:8080"),
            ("HEADCOUNT_SHARDS", "12"),
            ("HEADCOUNT_HASH_KEY", "not-a-key-but-secret"),
            ("HEADCOUNT_BUFFER_MB", "-1"),
            ("HEADCOUNT_REDIS_URL", "http://user:secret@redis:6379"),
            ("HEADCOUNT_LOG", "headcount=loud"),
            ("HEADCOUNT_CORS_ORIGINS", "https://shop.example/path"),
            ("HEADCOUNT_USER_HEADER", "X User"),
            ("HEADCOUNT_CONNECTIONS_MAX", "tcp://10.0.0.1:8080"),
        ]);
        let names: Vec<&str> = told.iter().map(|line| line.split(['=', ' ']).next().unwrap()).collect();
        for name in ["LISTEN", "SHARDS", "HASH_KEY", "BUFFER_MB", "REDIS_URL", "LOG", "CORS_ORIGINS", "USER_HEADER"] {
            assert!(names.contains(&format!("HEADCOUNT_{name}").as_str()), "{name}: {told:#?}");
        }
        assert_eq!(told.len(), 9, "{told:#?}");
        assert!(
            told.contains(&"HEADCOUNT_SHARDS=\"12\" must be a power of two from 1 to 1024".to_owned()),
            "{told:#?}"
        );
        let text = told.join("\n");
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("not a URL"), "{text}");
    }

    #[test]
    fn an_admin_listener_that_others_reach_needs_a_token() {
        let open = ("HEADCOUNT_ADMIN_LISTEN", "0.0.0.0:9090");
        assert_eq!(
            complaints(&[open]),
            [
                "HEADCOUNT_ADMIN_TOKEN must be set, because HEADCOUNT_ADMIN_LISTEN (0.0.0.0:9090) is not a loopback address"
            ]
        );
        assert!(complaints(&[open, ("HEADCOUNT_ADMIN_TOKEN", "0123456789abcdef")]).is_empty());
        assert!(complaints(&[("HEADCOUNT_ADMIN_LISTEN", "[::1]:9090")]).is_empty());
    }

    #[test]
    fn settings_of_a_forgotten_redis_do_not_start_an_embedded_store() {
        let told = complaints(&[("HEADCOUNT_REDIS_PASSWORD", "secret")]);
        assert_eq!(told, ["HEADCOUNT_REDIS_URL must be set, because HEADCOUNT_REDIS_PASSWORD is"]);
        assert_eq!(complaints(&[("HEADCOUNT_REDIS_URL", "rediss://redis")]).len(), 1);
    }

    #[test]
    fn replicas_to_wait_for_are_a_word_or_a_number() {
        let of = |text| {
            let pairs = [("HEADCOUNT_REDIS_URL", "redis://redis"), ("HEADCOUNT_CLAIM_REPLICAS", text)];
            match load(&environment(&pairs)).unwrap().config.store {
                StoreChoice::Redis(redis) => redis.claim_replicas,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(""), ClaimReplicas::Auto);
        assert_eq!(of("all"), ClaimReplicas::All);
        assert_eq!(of("2"), ClaimReplicas::Count(2));
        for bad in ["0", "some", "-1", "17"] {
            let rule = format!("HEADCOUNT_CLAIM_REPLICAS={bad:?} must be auto, all, or a number from 1 to 16");
            assert_eq!(complaints(&[("HEADCOUNT_CLAIM_REPLICAS", bad)]), [rule]);
        }
    }

    #[test]
    fn secrets_come_from_files_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "from-the-file\n").unwrap();
        let path = file.to_str().unwrap();
        let config = load(&environment(&[("HEADCOUNT_ADMIN_TOKEN_FILE", path)])).unwrap().config;
        assert_eq!(config.api.admin_token, Some(AdminToken::new("from-the-file".into())));
        let both = complaints(&[("HEADCOUNT_ADMIN_TOKEN_FILE", path), ("HEADCOUNT_ADMIN_TOKEN", "x")]);
        assert_eq!(both, ["HEADCOUNT_ADMIN_TOKEN must not be set beside HEADCOUNT_ADMIN_TOKEN_FILE"]);
        assert_eq!(complaints(&[("HEADCOUNT_HASH_KEY_FILE", "/nowhere/key")]).len(), 1);
    }

    #[test]
    fn what_is_shown_holds_no_secret_and_marks_defaults() {
        let loaded = load(&environment(&[
            ("HEADCOUNT_REDIS_URL", "redis://app:pass@redis:6379"),
            ("HEADCOUNT_ADMIN_TOKEN", "hunter2hunter2"),
            ("HEADCOUNT_SHARDS", "32"),
        ]))
        .unwrap();
        let line = |name: &str| loaded.effective.iter().find(|line| line.name == name).unwrap().clone();
        assert_eq!(line("HEADCOUNT_REDIS_URL").value, "redis://(secret)@redis:6379");
        assert_eq!(line("HEADCOUNT_ADMIN_TOKEN").value, "(secret)");
        assert!(!line("HEADCOUNT_SHARDS").is_default && line("HEADCOUNT_BUFFER_MB").is_default);
        let all = format!("{loaded:?}");
        assert!(!all.contains("hunter2"), "{all}");
    }

    #[test]
    fn unknown_names_are_told_with_the_nearest_and_kubernetes_is_not_blamed() {
        let pairs = [
            ("HEADCOUNT_SHARD", "8"),
            ("HEADCOUNT_COLOUR", "red"),
            ("HEADCOUNT_SHARDS_FILE", "/x"),
            ("HEADCOUNT_PORT", "tcp://10.0.0.1:80"),
            ("HEADCOUNT_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("HEADCOUNT_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("HEADCOUNT_SERVICE_HOST", "10.0.0.1"),
            ("HEADCOUNT_ADMIN_SERVICE_PORT_HTTP", "9090"),
            ("OTHER", "1"),
        ];
        let unknown = load(&environment(&pairs)).unwrap().unknown;
        let of = |name: &str| unknown.iter().find(|unknown| unknown.name == name).unwrap();
        assert_eq!(of("HEADCOUNT_SHARD").nearest, Some("HEADCOUNT_SHARDS"));
        let links = unknown.iter().filter(|unknown| unknown.is_service_link).count();
        assert_eq!((unknown.len(), links), (8, 5), "{unknown:#?}");
        assert!(!of("HEADCOUNT_COLOUR").is_service_link && !of("HEADCOUNT_SHARDS_FILE").is_service_link);
    }

    #[test]
    fn an_empty_value_is_no_value() {
        assert!(complaints(&[("HEADCOUNT_SHARDS", ""), ("HEADCOUNT_HASH_KEY", "")]).is_empty());
    }
}
