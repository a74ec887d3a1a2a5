//! Group commit: one thread that writes what is dirty, and answers everybody who waits for it.
//!
//! A writer (1) changes its row under the row's lock, (2) puts the key in the queue if the row was not dirty yet, and
//! itself as a waiter, (3) waits. The thread (4) takes the whole queue, (5) takes each row's bytes under its lock,
//! (6) commits, (7) marks the rows stored, (8) answers the waiters it took in (4).
//!
//! Why that is enough for a waiter who found its row already dirty and queued nothing: either the thread has not done
//! (5) for that row, and then (5) sees the waiter's change; or it has, and then the row was no longer dirty. And one
//! who only *saw* a row in flight is answered one batch later than that flight.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::batch::{Batch, Content, Dirty};
use super::file::{File, Reader, Snapshot};
use super::format::Key;
use super::pool_cells::{PoolCell, PoolCells, PoolState};
use super::rows::{Durability, Rows, Shard, lock};
use crate::store::error::StoreError;

/// How many entries of outboxes may be in memory only, per writer that may wait. More than a disk that works ever sees
/// together; one takes some hundred bytes.
const ENTRIES_PER_WAITER: usize = 16;

/// The rows and pools, and the thread that keeps them on disk.
pub struct Committer {
    shared: Arc<Shared>,
    reader: Reader,
    /// One per waiter: the bound on how many may wait.
    slots: Arc<Semaphore>,
    waiters_max: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    content: Content,
    /// Entries of outboxes that are in memory only.
    entries: AtomicUsize,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Why the last commit failed; None while the disk works.
    fault: Mutex<Option<String>>,
}

#[derive(Default)]
struct Queue {
    dirty: Vec<Dirty>,
    waiters: Vec<Waiter>,
    /// Rows to write though nobody waits: expired ones, and at the end.
    urged: bool,
    closing: bool,
}

struct Waiter {
    answer: oneshot::Sender<Result<(), StoreError>>,
    _slot: OwnedSemaphorePermit,
}

impl Committer {
    /// Starts the thread on a file whose content this is.
    pub fn start(file: File, content: Content, waiters_max: usize) -> io::Result<Self> {
        let dirty: Vec<Dirty> = content.pools.going().into_iter().map(Dirty::Pool).collect();
        let queue = Mutex::new(Queue { urged: !dirty.is_empty(), dirty, ..Queue::default() });
        let (wake, entries, fault) = (Condvar::new(), AtomicUsize::new(0), Mutex::default());
        let shared = Arc::new(Shared { content, entries, queue, wake, fault });
        let reader = file.reader();
        let of_thread = Ended(shared.clone());
        let thread = std::thread::Builder::new().name("embedded commit".to_owned());
        let thread = thread.spawn(move || run(&of_thread.0, file))?;
        let slots = Arc::new(Semaphore::new(waiters_max));
        Ok(Self { shared, reader, slots, waiters_max, thread: Mutex::new(Some(thread)) })
    }

    pub fn rows(&self) -> &Rows {
        &self.shared.content.rows
    }

    pub fn pools(&self) -> &PoolCells {
        &self.shared.content.pools
    }

    /// Reads rows that are only on disk.
    pub fn read<T>(&self, look: impl FnOnce(&Snapshot) -> Result<T, redb::Error>) -> Result<T, StoreError> {
        match self.reader.read(look) {
            Some(read) => read.map_err(|error| StoreError::Unavailable(format!("the disk does not answer: {error}"))),
            None => {
                // What could not be written is tried again, which opens the file.
                lock(&self.shared.queue).urged = true;
                self.shared.wake.notify_one();
                let why = self.fault().unwrap_or_else(|| "the file is closed".to_owned());
                Err(StoreError::Unavailable(why))
            }
        }
    }

    /// Changes one row and waits until the disk has all that `change` did and saw. `change` gets the locked part of the
    /// rows, and says what there is to wait for.
    pub async fn write<T>(
        &self,
        key: &Key,
        change: impl FnOnce(&mut Shard) -> Result<(T, Durability), StoreError>,
    ) -> Result<T, StoreError> {
        let slot = self.slot()?;
        let (value, committed) = {
            let mut shard = self.shared.content.rows.shard(key);
            let (value, durability) = change(&mut shard)?;
            if durability == Durability::Stored {
                return Ok(value);
            }
            let queued = (durability == Durability::Queued).then(|| Dirty::Row(key.clone()));
            (value, self.wait_in_queue(queued, slot)?)
        };
        committed.await.unwrap_or_else(|_| Err(closed())).map(|()| value)
    }

    /// As `write`, for a pool.
    pub async fn write_pool<T>(
        &self,
        cell: &Arc<PoolCell>,
        change: impl FnOnce(&mut PoolState) -> Result<(T, Durability), StoreError>,
    ) -> Result<T, StoreError> {
        let slot = self.slot()?;
        let (value, committed) = {
            let mut pool = cell.lock();
            let before = pool.entries();
            let (value, durability) = change(&mut pool)?;
            self.shared.entries.fetch_add(pool.entries() - before, Ordering::Relaxed);
            if durability == Durability::Stored {
                return Ok(value);
            }
            let queued = (durability == Durability::Queued).then(|| Dirty::Pool(cell.clone()));
            (value, self.wait_in_queue(queued, slot)?)
        };
        committed.await.unwrap_or_else(|_| Err(closed())).map(|()| value)
    }

    /// Admits one writer. While the disk refuses, rows and entries stay dirty without a waiter, so they are bounded too.
    fn slot(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let entries = self.shared.entries.load(Ordering::Relaxed);
        let mut queue = lock(&self.shared.queue);
        if queue.dirty.len() >= self.waiters_max || entries >= ENTRIES_PER_WAITER * self.waiters_max {
            queue.urged = true;
            self.shared.wake.notify_one();
        } else if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(slot);
        }
        Err(StoreError::Overloaded(format!("{} writers wait for the disk", self.waiters_max)))
    }

    fn wait_in_queue(
        &self,
        queued: Option<Dirty>,
        slot: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        let (answer, committed) = oneshot::channel();
        let mut queue = lock(&self.shared.queue);
        queue.dirty.extend(queued);
        if queue.closing {
            return Err(closed());
        }
        queue.waiters.push(Waiter { answer, _slot: slot });
        self.shared.wake.notify_one();
        Ok(committed)
    }

    /// Removes expired rows, from memory at once for readers and from the file with the next commit.
    pub fn sweep(&self, now_ms: i64) {
        let expired = self.shared.content.rows.sweep(now_ms);
        let mut queue = lock(&self.shared.queue);
        queue.dirty.extend(expired.into_iter().map(Dirty::Row));
        queue.urged = true;
        self.shared.wake.notify_one();
    }

    /// Why the disk refuses; None while it works.
    pub fn fault(&self) -> Option<String> {
        lock(&self.shared.fault).clone()
    }

    /// Commits what is dirty, ends the thread and closes the file. Blocks; a second call does nothing.
    pub fn close(&self) {
        lock(&self.shared.queue).closing = true;
        self.shared.wake.notify_one();
        if let Some(thread) = lock(&self.thread).take()
            && thread.join().is_err()
        {
            tracing::error!("the commit thread of the embedded store ended with a panic");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Held by the thread: however it ends, nobody waits for it afterwards.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.closing = true;
        queue.waiters.clear();
    }
}

fn closed() -> StoreError {
    StoreError::Refused("the embedded store is closed".to_owned())
}

fn run(shared: &Shared, mut file: File) {
    loop {
        let queue = next_batch(shared);
        let closing = queue.closing;
        let rows = &shared.content.rows;
        let mut batch = Batch::take(rows, queue.dirty);
        let broken = batch.broken.take();
        let answer = match batch.write(&mut file) {
            Ok(gone) => {
                let settled = batch.settle(rows, gone);
                shared.entries.fetch_sub(settled.entries, Ordering::Relaxed);
                go_on(shared, settled.again);
                recovered(shared);
                broken.map_or(Ok(()), Err)
            }
            Err(error) => {
                lock(&shared.queue).dirty.extend(batch.unsettle(rows));
                Err(failed(shared, &error))
            }
        };
        for waiter in queue.waiters {
            // A caller that went away does not need the answer.
            let _ = waiter.answer.send(answer.clone());
        }
        if closing {
            return;
        }
    }
}

/// Waits until somebody waits for a commit, or the end is near.
fn next_batch(shared: &Shared) -> Queue {
    let idle = |queue: &mut Queue| queue.waiters.is_empty() && !queue.urged && !queue.closing;
    let guard: MutexGuard<'_, Queue> = lock(&shared.queue);
    let mut queue = shared.wake.wait_while(guard, idle).unwrap_or_else(std::sync::PoisonError::into_inner);
    let closing = queue.closing;
    std::mem::replace(&mut *queue, Queue { closing, ..Queue::default() })
}

/// Removals that are not at their end need no caller.
fn go_on(shared: &Shared, again: Vec<Dirty>) {
    let mut queue = lock(&shared.queue);
    queue.urged |= !again.is_empty();
    queue.dirty.extend(again);
}

fn recovered(shared: &Shared) {
    if lock(&shared.fault).take().is_some() {
        tracing::info!("the embedded store can write again");
    }
}

fn failed(shared: &Shared, error: &redb::Error) -> StoreError {
    let text = match error {
        redb::Error::Io(cause) if cause.kind() == io::ErrorKind::StorageFull => "the disk is full".to_owned(),
        other => format!("the disk does not take it: {other}"),
    };
    if lock(&shared.fault).replace(text.clone()).is_none() {
        tracing::error!(error = %error, "the embedded store cannot write; reads go on, each write tries again");
    }
    StoreError::Refused(text)
}
