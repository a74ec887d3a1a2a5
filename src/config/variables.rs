//! The table of environment variables.

use super::variable::Variable;

/// All variables, in the order in which a reader wants them. An empty default: not set.
pub const VARIABLES: &[Variable] = &[
    Variable::plain("HEADCOUNT_LISTEN", "0.0.0.0:8080", "Address and port for visits, counts, claims."),
    Variable::plain(
        "HEADCOUNT_ADMIN_LISTEN",
        "127.0.0.1:9090",
        "Address and port for management, probes and metrics. Loopback, so that nobody reaches it by accident; any other address needs a token.",
    ),
    Variable::secret(
        "HEADCOUNT_ADMIN_TOKEN",
        "Bearer token of the admin listener; probes and metrics need none. Not set: no token is asked for.",
    ),
    Variable::url(
        "HEADCOUNT_REDIS_URL",
        "`redis://` or `rediss://` of any one node of a Redis or Valkey, cluster or single. Not set: the embedded store.",
    ),
    Variable::plain("HEADCOUNT_REDIS_USERNAME", "", "ACL user, in place of the URL's."),
    Variable::secret("HEADCOUNT_REDIS_PASSWORD", "Password, in place of the URL's."),
    Variable::plain(
        "HEADCOUNT_REDIS_CA_FILE",
        "",
        "PEM file of the certificate authority that signed the servers' certificates. `rediss://` needs it: no other authority is trusted.",
    ),
    Variable::plain(
        "HEADCOUNT_REDIS_TIMEOUT_MS",
        "250",
        "For one command; a call with its redirects and retries takes at most twice as long. Longer than a healthy server's pauses (a fork, a slow script), short enough to buffer a visit while its caller waits.",
    ),
    Variable::plain("HEADCOUNT_REDIS_CONNECT_TIMEOUT_MS", "500", "For a connection with its handshakes."),
    Variable::plain(
        "HEADCOUNT_REDIS_CALLS_PER_NODE",
        "512",
        "Calls under way per node and kind; more are refused. A node answers so many in a few milliseconds.",
    ),
    Variable::plain(
        "HEADCOUNT_CLAIM_REPLICAS",
        "auto",
        "Replicas of a primary that must have a claim before it is told. `auto`: all that can be promoted; where only some acknowledge for 3 s, those, at least one. `all`: without that fall, so that a replica that hangs stops claims. A number: so many; outside of a cluster, where only replicas with a live link are seen, the safer choice.",
    ),
    Variable::plain("HEADCOUNT_DATA_DIR", "headcount-data", "Folder of the embedded store, and of its ledger."),
    Variable::url(
        "HEADCOUNT_LEDGER_URL",
        "Database of the ledger of hard campaigns and packets: `postgres://`, `mysql://` (MariaDB too) or `sqlite:` with a file; `off`: none. Not set: with the embedded store a SQLite file beside it; with Redis none, because a file of one process would be the ledger of nobody.",
    ),
    Variable::plain(
        "HEADCOUNT_LEDGER_ALARM_S",
        "60",
        "The ledger being so far behind is an error in the log. Some restarts of a database long.",
    ),
    Variable::plain(
        "HEADCOUNT_SHARDS",
        "16",
        "Shards of an event or campaign that says nothing: a power of two from 1 to 1024. 16 spreads one hot event over every node of a small cluster and quarters the error of one sketch.",
    ),
    Variable::plain(
        "HEADCOUNT_RETENTION_DAYS",
        "35",
        "Days that counts are kept after a day's end, where an event says nothing. Five weeks: a month, and some days to look back at it.",
    ),
    Variable::secret(
        "HEADCOUNT_HASH_KEY",
        "32 hex digits, the same for all processes: the secret under which users are hashed. Not set: made once and kept in the store.",
    ),
    Variable::plain(
        "HEADCOUNT_USER_HASHING",
        "keyed",
        "`keyed`, or `plain` to share sketches with other programs; whoever chooses ids can then bend counts.",
    ),
    Variable::plain(
        "HEADCOUNT_USER_HEADER",
        "",
        "Header in which the ingress names the user. Set: a body may not name another one, and lists of users are refused.",
    ),
    Variable::plain(
        "HEADCOUNT_COUNT_REFRESH_MS",
        "200",
        "Age up to which a count is served as it is. Five merges a second for a hot event in the whole cluster. Hard campaigns freeze it when they are made: \"sold out\" is said from memory for so long, and units that come back can be claimed after twice as long.",
    ),
    Variable::plain(
        "HEADCOUNT_CLAIM_WAIT_MS",
        "1000",
        "A claim on a hard campaign waits so long for units that are on their way to the user's shard; then 503. About what a user bears.",
    ),
    Variable::plain(
        "HEADCOUNT_GATE_WAIT_MS",
        "150",
        "The same for `/gate` and `/check`, which deny then. Below the ingress's own limit: Envoy's is 200 ms.",
    ),
    Variable::plain(
        "HEADCOUNT_GATE_DENY_STATUS",
        "403",
        "What `/gate` and `/check` deny with. nginx knows 401 and 403, and turns all else into a 500; Traefik and Envoy pass on any, 429 for example.",
    ),
    Variable::plain(
        "HEADCOUNT_MERGE",
        "auto",
        "Where unions of sketches are computed: `redis`, `gateway`, or `auto` (soft campaigns in Redis, checks of plain counts in the gateway).",
    ),
    Variable::plain(
        "HEADCOUNT_MERGES_PER_S",
        "200",
        "Merges that this process starts in a second; with more hot events readings grow older, as `age_ms` says.",
    ),
    Variable::plain(
        "HEADCOUNT_SKETCH_CACHE_MB",
        "256",
        "Memory for registers known to be stored: what makes a repeated visit cost nothing. Some 20,000 dense sketches.",
    ),
    Variable::plain(
        "HEADCOUNT_BUFFER_MB",
        "128",
        "Memory for visits that the store does not have yet. Full: visits get 503.",
    ),
    Variable::plain(
        "HEADCOUNT_COALESCE_MS",
        "0",
        "How long a first visit waits for others to the same sketch; they share one command. 0: to the next tick of the millisecond timer. Whoever comes while a batch is on its way shares the next one, so that batches grow with the crowd; longer only saves commands of a thin one.",
    ),
    Variable::plain("HEADCOUNT_COALESCE_ELEMENTS_MAX", "512", "Users in one command; a full one goes at once."),
    Variable::plain(
        "HEADCOUNT_PUSH_INTERVAL_S",
        "30",
        "Time between two rounds in which what the store lacks is pushed again, where nothing has happened.",
    ),
    Variable::plain(
        "HEADCOUNT_PUSH_SKETCHES_PER_S",
        "1000",
        "Sketches compared in a second of a round. Higher: sooner whole after a failover, more load on the node that has just taken over.",
    ),
    Variable::plain(
        "HEADCOUNT_DRAIN_MS",
        "5000",
        "After SIGTERM `/readyz` says no and everything is still served for so long: the time in which load balancers notice.",
    ),
    Variable::plain(
        "HEADCOUNT_STOP_DEADLINE_MS",
        "20000",
        "From the end of the drain to the exit, whatever is left. Drain and this together must stay below Kubernetes' grace period (30 s).",
    ),
    Variable::plain(
        "HEADCOUNT_CONNECTIONS_MAX",
        "15000",
        "Open connections of the public listener; the next one waits. Must stay below the limit of open files.",
    ),
    Variable::plain(
        "HEADCOUNT_REQUESTS_MAX",
        "10000",
        "Requests under way on the public listener; more get 503 at once.",
    ),
    Variable::plain(
        "HEADCOUNT_HEADER_TIMEOUT_MS",
        "75000",
        "For a request's header, and for an idle connection. Longer than ingresses keep theirs (60 s), or they would reuse one that is being closed.",
    ),
    Variable::plain("HEADCOUNT_BODY_TIMEOUT_MS", "10000", "For a request's body; 8 MiB at 7 Mbit/s."),
    Variable::plain(
        "HEADCOUNT_CORS_ORIGINS",
        "",
        "Origins whose pages may call the public listener, comma-separated: `https://shop.example`. `*`: all.",
    ),
    Variable::plain(
        "HEADCOUNT_LOG",
        "info,fred=error",
        "What is logged: `info`, `warn`, `headcount=debug,warn`. The Redis client repeats each lost connection several times; the store tells it once.",
    ),
    Variable::plain("HEADCOUNT_LOG_FORMAT", "text", "`text` or `json`."),
    Variable::plain("HEADCOUNT_WORKERS", "0", "Threads that serve; 0: one per core."),
];
