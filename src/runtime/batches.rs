//! Batches that follow one another: what arrives while one is under way makes the next one, so batches grow with the load
//! and nobody waits for others to come. A slow batch is not waited for any longer than a moment: the next one leaves
//! beside it. Batches are tasks of their own: whoever put something in may go away.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::tasks::Tasks;

/// How batches travel.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// In one batch.
    pub batch_max: usize,
    /// Waiting for one; more are refused.
    pub waiting_max: usize,
    /// A batch that takes longer than this is slow.
    pub slow: Duration,
    /// Batches under way at one time, the slow ones included.
    pub under_way_max: u32,
}

/// Things on their way, in batches.
pub struct Batches<T> {
    queue: Mutex<Queue<T>>,
    pace: Pace,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    under_way: u32,
    /// Of these, batches that nobody waits for any more.
    slow: u32,
}

impl<T: Send + 'static> Batches<T> {
    pub fn new(pace: Pace) -> Self {
        Self { queue: Mutex::new(Queue { waiting: VecDeque::new(), under_way: 0, slow: 0 }), pace }
    }

    /// Takes one thing in, to be sent with whatever else is there by then. False: too many wait, and it is dropped.
    pub fn add<S, F>(self: &Arc<Self>, one: T, (tasks, name): (&Tasks, &'static str), send: S) -> bool
    where
        S: Fn(Vec<T>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let start = {
            let mut queue = self.lock();
            if queue.waiting.len() >= self.pace.waiting_max {
                return false;
            }
            queue.waiting.push_back(one);
            let start = queue.under_way == queue.slow && queue.under_way < self.pace.under_way_max;
            queue.under_way += u32::from(start);
            start
        };
        if start {
            tasks.spawn(name, self.clone().serve(tasks.clone(), name, send));
        }
        true
    }

    /// Boxed, because it starts another one of its own kind.
    fn serve<S, F>(
        self: Arc<Self>,
        tasks: Tasks,
        name: &'static str,
        send: S,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>>
    where
        S: Fn(Vec<T>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Box::pin(self.drain(tasks, name, send))
    }

    /// Sends batches until nothing waits.
    async fn drain<S, F>(self: Arc<Self>, tasks: Tasks, name: &'static str, send: S)
    where
        S: Fn(Vec<T>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(batch) = self.next() {
            let mut sending = std::pin::pin!(send(batch));
            if timeout(self.pace.slow, &mut sending).await.is_ok() {
                continue;
            }
            let replaced = {
                let mut queue = self.lock();
                queue.slow += 1;
                let replaced = queue.under_way < self.pace.under_way_max && !queue.waiting.is_empty();
                queue.under_way += u32::from(replaced);
                replaced
            };
            if replaced {
                tasks.spawn(name, self.clone().serve(tasks.clone(), name, send.clone()));
            }
            sending.await;
            self.lock().slow -= 1;
        }
    }

    fn next(&self) -> Option<Vec<T>> {
        let mut queue = self.lock();
        let count = queue.waiting.len().min(self.pace.batch_max);
        if count == 0 {
            queue.under_way -= 1;
            return None;
        }
        Some(queue.waiting.drain(..count).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing under this lock panics but a failed allocation.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    const PACE: Pace = Pace { batch_max: 3, waiting_max: 5, slow: Duration::from_millis(20), under_way_max: 2 };

    #[tokio::test(start_paused = true)]
    async fn what_arrives_meanwhile_travels_together_and_a_slow_batch_is_passed() {
        let (batches, tasks) = (Arc::new(Batches::new(PACE)), Tasks::new());
        let (sent, mut seen) = mpsc::unbounded_channel();
        let add = |number: u32, takes_ms: u64| {
            let sent = sent.clone();
            batches.add(number, (&tasks, "test"), move |batch: Vec<u32>| {
                let sent = sent.clone();
                async move {
                    sent.send(batch).unwrap();
                    tokio::time::sleep(Duration::from_millis(takes_ms)).await;
                }
            })
        };
        assert!(add(1, 100));
        assert_eq!(seen.recv().await, Some(vec![1]));
        assert!((2..7).all(|number| add(number, 0)), "five may wait");
        assert!(!add(7, 0), "one more is refused");
        let before = tokio::time::Instant::now();
        assert_eq!(seen.recv().await, Some(vec![2, 3, 4]));
        assert_eq!(before.elapsed().as_millis(), 20, "beside the slow one");
        assert!(tasks.finish(Duration::from_secs(1)).await);
        assert_eq!(seen.try_recv(), Ok(vec![5, 6]));
    }
}
