//! Convoys: steps that leave for one primary at about the same time share one pipeline and one WAIT.
//!
//! A primary keeps many pools of a campaign, and each has a batch of claims ready every millisecond. Sent one by one they
//! cost two commands each; together the WAIT is paid once, and the server is spoken to once.
//!
//! It is a shortcut, nothing more: a step whose script was answered, with enough replicas behind it, is done. All others
//! (moved slots, forgotten scripts, a WAIT that fell short, a node that is away) take the long way through `confirm.rs`,
//! which may run them a second time; every step can be repeated.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::address::Address;
use super::confirm::{Confirm, wait};
use super::node::Node;
use super::reply::{Command, Reply};
use super::router::Router;
use super::settings::Role;
use crate::runtime::tasks::Tasks;

/// Scripts in one pipeline: with 64 claims each, some ten milliseconds of the server's time.
const SCRIPTS_MAX: usize = 16;
/// A convoy leaves when the one before is back, so that many travel together; but one that is slow (a WAIT may take
/// 0.1 s) is not waited for any longer than this: a round trip with its replication takes a millisecond or two.
const SLOW: Duration = Duration::from_millis(10);
/// Convoys under way to a primary, the slow ones included.
const UNDER_WAY_MAX: u32 = 8;

pub struct Convoys {
    router: Arc<Router>,
    confirm: Arc<Confirm>,
    tasks: Tasks,
    primaries: Mutex<HashMap<Address, Arc<Mutex<Queue>>>>,
}

#[derive(Default)]
struct Queue {
    scripts: Vec<Member>,
    under_way: u32,
    /// Of these, convoys that nobody waits for any more.
    slow: u32,
}

struct Member {
    slot: u16,
    script: Command,
    /// The script's reply, if it is confirmed.
    reply: oneshot::Sender<Reply>,
}

impl Convoys {
    pub fn new(router: Arc<Router>, confirm: Arc<Confirm>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { router, confirm, tasks, primaries: Mutex::default() })
    }

    /// Takes a script along. None: it is not known to have run and to be replicated; take the long way.
    pub async fn take(self: &Arc<Self>, slot: u16, script: Command) -> Option<Reply> {
        let node = self.router.topology.view().owner(slot)?.clone();
        let queue = lock(&self.primaries).entry(node.address.clone()).or_default().clone();
        let (reply, answered) = oneshot::channel();
        let start = {
            let mut queue = lock(&queue);
            queue.scripts.push(Member { slot, script, reply });
            let start = queue.under_way == queue.slow && queue.under_way < UNDER_WAY_MAX;
            queue.under_way += u32::from(start);
            start
        };
        if start {
            self.tasks.spawn("redis convoy", self.clone().carry(node, queue));
        }
        answered.await.ok()
    }

    /// Serves a primary's queue until it is empty. Boxed, because it starts another one of its own kind.
    fn carry(self: Arc<Self>, node: Arc<Node>, queue: Arc<Mutex<Queue>>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.drain(node, queue))
    }

    async fn drain(self: Arc<Self>, node: Arc<Node>, queue: Arc<Mutex<Queue>>) {
        loop {
            let members: Vec<Member> = {
                let mut queue = lock(&queue);
                let count = queue.scripts.len().min(SCRIPTS_MAX);
                if count == 0 {
                    queue.under_way -= 1;
                    return;
                }
                queue.scripts.drain(..count).collect()
            };
            let mut sending = std::pin::pin!(self.send(&node, members));
            if timeout(SLOW, &mut sending).await.is_ok() {
                continue;
            }
            let replaced = {
                let mut queue = lock(&queue);
                queue.slow += 1;
                let replaced = queue.under_way < UNDER_WAY_MAX && !queue.scripts.is_empty();
                queue.under_way += u32::from(replaced);
                replaced
            };
            if replaced {
                self.tasks.spawn("redis convoy behind a slow one", self.clone().carry(node.clone(), queue.clone()));
            }
            sending.await;
            lock(&queue).slow -= 1;
        }
    }

    /// One round trip. Whoever is not answered here finds the channel closed.
    async fn send(&self, node: &Arc<Node>, members: Vec<Member>) {
        // The slots may have moved since, each to a primary with replicas of its own number.
        let needed = members.iter().map(|member| self.confirm.needed(member.slot)).max().unwrap_or(0);
        let mut commands: Vec<Command> = members.iter().map(|member| member.script.clone()).collect();
        if needed > 0 {
            commands.push(wait(needed));
        }
        let mut answers = node.pipeline(Role::Pool, &commands, false, self.router.command_timeout).await;
        let waited = if needed > 0 { answers.pop() } else { None };
        if !self.confirm.is_enough(members[0].slot, needed, waited) {
            return;
        }
        for (member, answer) in members.into_iter().zip(answers) {
            if let Ok(reply) = answer
                && self.confirm.needed(member.slot) <= needed
            {
                // A caller that went away does not need it.
                drop(member.reply.send(reply));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these hold is whole after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
