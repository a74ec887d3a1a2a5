//! Child processes that cannot outlive the tests.
//!
//! Drop kills a child, also when a test panics. What drop cannot reach (the test binary itself is killed, or a server
//! lies in a static) the *watchdog* does: a shell that reads process ids from a pipe. The pipe closes when the test
//! binary is gone, however it went, and the shell kills whom it still knows and removes the folder of the run.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use super::PATIENCE;

const WATCHDOG: &str = r#"
trap '' INT TERM HUP
pids=''
while read -r what pid; do
  case $what in
    +) pids="$pids $pid" ;;
    -) rest=''; for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done; pids=$rest ;;
  esac
done
for p in $pids; do kill -9 "$p" 2>/dev/null; done
rm -rf "$1"
"#;

struct Watchdog {
    pipe: Mutex<ChildStdin>,
    root: PathBuf,
}

static RUN: LazyLock<Watchdog> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("headcount-tests-{}", std::process::id()));
    std::fs::create_dir_all(&root).expect("a folder for the run");
    #[allow(clippy::zombie_processes, reason = "it outlives this process: that is its purpose")]
    let mut shell = Command::new("sh")
        .args(["-c", WATCHDOG, "watchdog"])
        .arg(&root)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh, to watch over the servers");
    let pipe = shell.stdin.take().expect("the pipe asked for");
    Watchdog { pipe: Mutex::new(pipe), root }
});

impl Watchdog {
    fn tell(&self, what: char, pid: u32) {
        let mut pipe = self.pipe.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        writeln!(pipe, "{what} {pid}").expect("the watchdog to be there");
    }
}

/// A new folder that is gone after the run.
pub fn fresh_dir(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let dir = RUN.root.join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir_all(&dir).expect("a folder in the run's own");
    dir
}

/// A loopback port that nobody listens on, below those that the kernel gives to outgoing connections: so nobody takes
/// it in the moment before the server does. Test binaries that run at once begin at different places.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const PORTS: std::ops::Range<u32> = 15_000..32_000;
    loop {
        let scattered = std::process::id().wrapping_mul(613).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (PORTS.start + scattered % (PORTS.end - PORTS.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A child process and its log.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    log_lines_shown: usize,
}

impl Process {
    /// Starts a command; what it prints goes to a file, of which a failed test shows the end. Panics where it cannot be
    /// started.
    pub fn start(name: &str, command: &mut Command, log_lines_shown: usize) -> Self {
        let log = fresh_dir("log").join(format!("{name}.log"));
        let file = File::create(&log).expect("a log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            // A group of its own: Ctrl-C goes to the tests, which then clean up.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{command:?} cannot be started: {error}; try scripts/install-test-tools.sh")
            });
        RUN.tell('+', child.id());
        Self { name: name.to_owned(), child, log, log_lines_shown }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name: `TERM`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(sent.expect("kill").success(), "{} is gone, no {name} sent", self.name);
    }

    /// Ends it as the kernel would: at once, without a word. Works on a stopped one too.
    pub fn kill(&mut self) {
        if self.exited().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            RUN.tell('-', self.child.id());
        }
    }

    /// How it ended; None while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Waits for its end; panics if that does not come.
    pub async fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                RUN.tell('-', self.child.id());
                return status;
            }
            assert!(Instant::now() < deadline, "{} still runs", self.name);
            tokio::time::sleep(super::POLL).await;
        }
    }

    /// All it has printed.
    pub fn log(&self) -> String {
        read_log(&self.log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(self.log_lines_shown)..];
            eprintln!("--- {} (pid {}), last lines:\n{}", self.name, self.child.id(), shown.join("\n"));
        }
        // Not a polite SIGTERM first: nothing that it would still write is needed, and a Redis replica that writes its
        // first AOF ignores it.
        self.kill();
    }
}

fn read_log(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
