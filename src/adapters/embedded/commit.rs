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
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::file::File;
use super::format::Key;
use super::rows::{Durability, Row, Rows, Shard, lock};
use crate::store::error::StoreError;

/// The rows, and the thread that keeps them on disk.
pub struct Committer {
    shared: Arc<Shared>,
    /// One per waiter: the bound on how many may wait.
    slots: Arc<Semaphore>,
    waiters_max: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    rows: Rows,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Why the last commit failed; None while the disk works.
    fault: Mutex<Option<String>>,
}

#[derive(Default)]
struct Queue {
    dirty: Vec<Key>,
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
    /// Starts the thread on a file whose rows these are.
    pub fn start(file: File, rows: Rows, waiters_max: usize) -> io::Result<Self> {
        let shared = Shared { rows, queue: Mutex::default(), wake: Condvar::new(), fault: Mutex::default() };
        let shared = Arc::new(shared);
        let of_thread = Ended(shared.clone());
        let thread = std::thread::Builder::new().name("embedded commit".to_owned());
        let thread = thread.spawn(move || run(&of_thread.0, file))?;
        let slots = Arc::new(Semaphore::new(waiters_max));
        Ok(Self { shared, slots, waiters_max, thread: Mutex::new(Some(thread)) })
    }

    pub fn rows(&self) -> &Rows {
        &self.shared.rows
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
            let mut shard = self.shared.rows.shard(key);
            let (value, durability) = change(&mut shard)?;
            if durability == Durability::Stored {
                return Ok(value);
            }
            let queued = (durability == Durability::Queued).then(|| key.clone());
            (value, self.wait_in_queue(queued, slot)?)
        };
        match committed.await {
            Ok(result) => result.map(|()| value),
            Err(_) => Err(closed()),
        }
    }

    /// Admits one writer. While the disk refuses, rows stay dirty without a waiter, so they are bounded too.
    fn slot(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let mut queue = lock(&self.shared.queue);
        if queue.dirty.len() >= self.waiters_max {
            queue.urged = true;
            self.shared.wake.notify_one();
        } else if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(slot);
        }
        Err(StoreError::Overloaded(format!("{} writers wait for the disk", self.waiters_max)))
    }

    fn wait_in_queue(
        &self,
        queued: Option<Key>,
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
        let expired = self.shared.rows.sweep(now_ms);
        let mut queue = lock(&self.shared.queue);
        queue.dirty.extend(expired);
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
        let batch = snapshot(&shared.rows, queue.dirty);
        let result = if batch.is_empty() { Ok(()) } else { file.write(&batch) };
        let answer = match result {
            Ok(()) => {
                settle(&shared.rows, batch);
                recovered(shared);
                Ok(())
            }
            Err(error) => {
                requeue(shared, batch);
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

/// The bytes of each dirty row, as they are now.
fn snapshot(rows: &Rows, dirty: Vec<Key>) -> Vec<(Key, Option<Bytes>)> {
    let take = |key: Key| {
        let value = rows.shard(&key).get_mut(&key).map(Row::snapshot)?;
        Some((key, value))
    };
    dirty.into_iter().filter_map(take).collect()
}

fn settle(rows: &Rows, batch: Vec<(Key, Option<Bytes>)>) {
    for (key, value) in batch {
        let mut shard = rows.shard(&key);
        if shard.get_mut(&key).is_some_and(|row| row.settle(value)) {
            shard.remove(&key);
        }
    }
}

/// After a failed commit: what was in flight is dirty again, and goes with the next one.
fn requeue(shared: &Shared, batch: Vec<(Key, Option<Bytes>)>) {
    let in_flight = |key: &Key| shared.rows.shard(key).get_mut(key).is_some_and(Row::unsettle);
    let again: Vec<Key> = batch.into_iter().map(|(key, _)| key).filter(|key| in_flight(key)).collect();
    lock(&shared.queue).dirty.extend(again);
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
