//! SQLite files, and PostgreSQL and MariaDB servers of our own: never one that the machine runs.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{AnyConnection, Connection};

use super::eventually;
use super::process::{Process, free_port, fresh_dir};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Brand {
    Sqlite,
    Postgres,
    MariaDb,
}

/// Whether a server waits for the disk. What it wrote outlives its own death either way, so only measurements want it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disk {
    Ignored,
    Awaited,
}

/// A server, or a folder for SQLite's files. Each test makes databases of its own in it.
pub struct Databases {
    pub brand: Brand,
    dir: PathBuf,
    port: u16,
    disk: Disk,
    process: Mutex<Option<Process>>,
}

impl Databases {
    pub async fn start(brand: Brand, disk: Disk) -> Self {
        sqlx::any::install_default_drivers();
        let dir = fresh_dir("database");
        match brand {
            Brand::Sqlite => {}
            Brand::Postgres => init_postgres(&dir),
            Brand::MariaDb => init_mariadb(&dir),
        }
        let databases = Self { brand, dir, port: free_port(), disk, process: Mutex::new(None) };
        databases.go_on().await;
        databases
    }

    /// The URL of a new, empty database.
    pub async fn fresh(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ledger{}", NEXT.fetch_add(1, Ordering::Relaxed));
        if self.brand != Brand::Sqlite {
            execute(&self.admin(), &format!("CREATE DATABASE {name}")).await;
        }
        self.url(&name)
    }

    /// Ends the server at once, as a crash does. Not for SQLite.
    pub fn stop(&self) {
        self.process().as_mut().expect("a server").kill();
    }

    /// Starts the server again, on its port and folder, and waits for it.
    pub async fn go_on(&self) {
        if self.brand == Brand::Sqlite {
            return;
        }
        self.launch();
        eventually(&format!("{:?} on port {}", self.brand, self.port), async || {
            // Processes of a PostgreSQL that was killed may live a moment longer, and it will not start beside them.
            let ended = self.process().as_mut().is_none_or(|process| process.exited().is_some());
            if ended {
                self.launch();
            }
            AnyConnection::connect(&self.admin()).await.is_ok()
        })
        .await;
    }

    /// Sends the server a signal: STOP, CONT.
    pub fn signal(&self, name: &str) {
        self.process().as_ref().expect("a server").signal(name);
    }

    fn launch(&self) {
        let process = match self.brand {
            Brand::Sqlite => return,
            Brand::Postgres => self.launch_postgres(),
            Brand::MariaDb => self.launch_mariadb(),
        };
        *self.process() = Some(process);
    }

    fn admin(&self) -> String {
        self.url(if self.brand == Brand::Postgres { "postgres" } else { "mysql" })
    }

    fn url(&self, name: &str) -> String {
        match self.brand {
            Brand::Sqlite => format!("sqlite:{}", self.dir.join(name).display()),
            Brand::Postgres => format!("postgres://headcount@127.0.0.1:{}/{name}", self.port),
            Brand::MariaDb => format!("mysql://root@127.0.0.1:{}/{name}", self.port),
        }
    }

    fn launch_postgres(&self) -> Process {
        let mut command = as_somebody(&postgres_program("postgres"));
        command.arg("-D").arg(self.dir.join("data")).args(["-p", &self.port.to_string(), "-k", ""]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "dynamic_shared_memory_type=mmap"]);
        if self.disk == Disk::Ignored {
            command.args(["-c", "fsync=off"]);
        }
        Process::start("postgres", &mut command, 20)
    }

    fn launch_mariadb(&self) -> Process {
        let mut command = Command::new(first_there(&["/usr/sbin/mariadbd"], "mariadbd"));
        command.arg("--no-defaults").arg(format!("--datadir={}", self.dir.join("data").display()));
        command.arg(format!("--socket={}", self.dir.join("socket").display()));
        command.args([
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
        ]);
        command.arg(format!("--port={}", self.port));
        if is_root() {
            command.arg("--user=root");
        }
        if self.disk == Disk::Ignored {
            command.args(["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"]);
        }
        Process::start("mariadbd", &mut command, 20)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// PostgreSQL is told to end, since one that is killed leaves a piece of shared memory that nobody else removes.
impl Drop for Databases {
    fn drop(&mut self) {
        if let (Brand::Postgres, Some(process)) = (self.brand, self.process().as_mut()) {
            let started = Instant::now();
            let pid = process.pid().to_string();
            if process.exited().is_none() && Command::new("kill").args(["-QUIT", &pid]).status().is_ok() {
                while process.exited().is_none() && started.elapsed() < Duration::from_secs(5) {
                    std::thread::sleep(super::POLL);
                }
            }
        }
    }
}

/// One statement on a connection of its own.
pub async fn execute(url: &str, statement: &str) {
    let mut connection = AnyConnection::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let statement = sqlx::AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    connection.close().await.expect("a connection to close");
}

fn init_postgres(dir: &Path) {
    if let Some((user, group)) = somebody() {
        chown(dir, Some(user), Some(group)).expect("a folder of ours");
    }
    let mut command = as_somebody(&postgres_program("initdb"));
    command.arg("-D").arg(dir.join("data"));
    run(command.args(["-U", "headcount", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]));
}

fn init_mariadb(dir: &Path) {
    let mut command = Command::new("mariadb-install-db");
    command.arg("--no-defaults").arg(format!("--datadir={}", dir.join("data").display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-name-resolve", "--skip-test-db"]);
    // Smaller files than the usual are made sooner.
    command.args(["--innodb-log-file-size=8M", "--innodb-flush-method=nosync"]);
    if is_root() {
        command.arg("--user=root");
    }
    run(&mut command);
}

fn run(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}; try scripts/install-test-tools.sh"));
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", told(&output.stdout), told(&output.stderr));
}

/// PostgreSQL refuses to run as root, so root becomes somebody else. The process id stays that of the command.
fn as_somebody(program: &Path) -> Command {
    let Some((user, group)) = somebody() else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]).arg(program);
    command
}

/// Whom root becomes; None: this is not root.
fn somebody() -> Option<(u32, u32)> {
    let ids = |name: &str| Some((id(&["-u", name])?, id(&["-g", name])?));
    is_root().then(|| ids("postgres").or_else(|| ids("nobody")).expect("a user postgres or nobody"))
}

fn is_root() -> bool {
    id(&["-u"]) == Some(0)
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// Debian keeps each version in a folder of its own: the highest.
fn postgres_program(name: &str) -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = folders.map(|folder| folder.path().join("bin").join(name)).filter(|path| path.exists());
    let version = |path: &PathBuf| path.iter().nth(4).and_then(|version| version.to_str()?.parse::<u32>().ok());
    found.max_by_key(version).unwrap_or_else(|| PathBuf::from(name))
}

/// Users other than root do not have the folder of servers on their path.
fn first_there(places: &[&str], name: &str) -> PathBuf {
    places.iter().map(PathBuf::from).find(|place| place.exists()).unwrap_or_else(|| PathBuf::from(name))
}
