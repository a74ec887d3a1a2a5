//! The embedded store: the ports of `store/` served in this process, kept in one file by redb.
//!
//! Idea: all state but the outboxes lies in memory as *rows*, and each row knows two values: the **live** one, which
//! writers change, and the **stored** one, which is on disk. Writers answer only when a commit has covered what they
//! saw; readers see stored values only. So nothing that anybody was told can be lost by a kill -9, not even through a
//! reader who remembers what it read (a process's filter does).
//!
//! ```text
//!  add ──▶ live sketch ──▶ queue ──▶ one thread: takes all that is dirty, writes whole rows,
//!            (lock, µs)     │        one redb commit (fsync), stored := what was written
//!                           └──────◀ answers every waiter of the batch
//! ```
//!
//! A commit costs one fsync however many writers wait for it (a few hundred commits a second, 64 full sketches in
//! 2 ms), so throughput rises with the load. Why whole sketches and not single registers: `docs/decisions/0003`.
//!
//! # Pools
//!
//! The units of exact campaigns are the pure state machine of `domain/quota/`, run here as it is. A pool is a row to the
//! thread above, except that its bytes are many rows of the file, which one commit writes together (`pool_cells.rs`).
//! Its readers wait as its writers do; only its outbox is read from the file (`outbox.rs`).
//!
//! # The folder
//!
//! `headcount.redb` is the file; `headcount.lock` is locked by the one process that has it open. Tables and rows are in
//! `format.rs`. The schema number stands in the table `deployment`; a file of a newer schema is refused.
//!
//! # Faults
//!
//! - The disk refuses (full, read-only): waiting writers get `Refused`, readers go on, and the next write tries again
//!   with all that is still dirty.
//! - A row holds bytes that are none of ours: that row alone answers `Corrupt`; every other one is served.
//! - The file is none of redb's, or newer than this program: `open` fails with a sentence.

mod answers;
mod batch;
mod commit;
mod counters;
mod deployment;
pub mod file;
mod format;
mod outbox;
#[cfg(test)]
mod outbox_tests;
#[cfg(test)]
mod packets_tests;
mod pool_cells;
mod pool_changes;
mod pool_head;
mod pool_log;
mod pool_runs;
mod pools;
#[cfg(test)]
mod pools_crash;
#[cfg(test)]
mod pools_tests;
mod records;
mod rows;
#[cfg(test)]
mod test_disk;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use self::answers::Answers;
use self::batch::Content;
use self::commit::Committer;
use self::file::{File, Folder, OpenError};
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::store::Stores;

/// Settings of the embedded store.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Where the file lies; made if missing. One process at a time.
    pub dir: PathBuf,
    /// How many writers may wait for the disk; one more is told `Overloaded`. Each may hold one decoded sketch of 16 kB.
    /// Many commits' worth at any rate a machine can take, so only a disk that hangs or refuses fills it.
    pub waiters_max: usize,
    /// How often expired rows leave memory and file. They are invisible from their expiry on, so this only costs space.
    pub sweep_interval: Duration,
}

impl EmbeddedConfig {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), waiters_max: 16_384, sweep_interval: Duration::from_secs(60) }
    }
}

/// The store of a deployment that is one process.
pub struct EmbeddedStore {
    committer: Committer,
    answers: Answers,
    clock: Clock,
    config: EmbeddedConfig,
    /// The latest time that a pool was told, in microseconds: for pools the clock never goes back.
    told_us: AtomicI64,
    /// Never raised: what was acknowledged is on this disk, and stays.
    changes: watch::Sender<u64>,
}

impl EmbeddedStore {
    /// Opens the folder, or makes it, and reads all of it into memory. Blocks while it does.
    pub fn open(config: EmbeddedConfig, clock: Clock, tasks: Tasks) -> Result<Arc<Self>, OpenError> {
        let folder = Folder::lock(&config.dir)?;
        let (file, rows) = File::open(folder)?;
        Self::start(file, Content::new(rows), config, clock, &tasks)
    }

    fn start(
        file: File,
        content: Content,
        config: EmbeddedConfig,
        clock: Clock,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, OpenError> {
        let committer = Committer::start(file, content, config.waiters_max).map_err(OpenError::Thread)?;
        let sweep_interval = config.sweep_interval;
        let answers = Answers::default();
        let (told_us, changes) = (AtomicI64::new(0), watch::Sender::new(0));
        let store = Arc::new(Self { committer, answers, clock, config, told_us, changes });
        tasks.spawn("embedded sweep", sweep(Arc::downgrade(&store), sweep_interval, tasks.stop_signal()));
        Ok(store)
    }

    pub fn stores(self: &Arc<Self>) -> Stores {
        Stores {
            counters: self.clone(),
            records: self.clone(),
            deployment: self.clone(),
            pools: self.clone(),
            outbox: self.clone(),
        }
    }

    /// Commits what is left and closes the file; later writes are refused. For the end of the program: everything
    /// acknowledged is on disk already, but a file that was closed needs no repair when it is opened. Blocks.
    pub fn close(&self) {
        self.committer.close();
    }

    fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    fn sweep(&self) {
        let now_ms = self.now_ms();
        self.answers.sweep(now_ms);
        self.committer.sweep(now_ms);
    }
}

/// Ends with the program, or when nobody holds the store any more.
async fn sweep(store: Weak<EmbeddedStore>, interval: Duration, stop: tokio_util::sync::CancellationToken) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(store) = store.upgrade() else { return };
        store.sweep();
    }
}
