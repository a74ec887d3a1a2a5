//! Convoys: steps that leave for one primary at about the same time share one pipeline and one WAIT.
//!
//! A primary keeps many pools of a campaign, and each has a batch of claims ready every millisecond. Sent one by one they
//! cost two commands each; together the WAIT is paid once, and the server is spoken to once.
//!
//! It is a shortcut, nothing more: a step whose script was answered, with enough replicas behind it, is done. All others
//! (moved slots, forgotten scripts, a WAIT that fell short, a node that is away) take the long way through `confirm.rs`,
//! which may run them a second time; every step can be repeated.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::address::Address;
use super::confirm::{Confirm, wait};
use super::node::Node;
use super::reply::{Command, Reply};
use super::router::Router;
use super::settings::Role;
use crate::runtime::batches::{Batches, Pace};
use crate::runtime::tasks::Tasks;

const PACE: Pace = Pace {
    // With 64 claims each, some ten milliseconds of the server's time.
    batch_max: 16,
    // Whoever waits here is bounded by the requests that are let in.
    waiting_max: usize::MAX,
    // A WAIT may take 0.1 s; a round trip with its replication takes a millisecond or two.
    slow: Duration::from_millis(10),
    under_way_max: 8,
};

pub struct Convoys {
    router: Arc<Router>,
    confirm: Arc<Confirm>,
    tasks: Tasks,
    primaries: Mutex<HashMap<Address, Arc<Batches<Member>>>>,
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
        let convoy = {
            // Entries are whole after each statement.
            let mut primaries = self.primaries.lock().unwrap_or_else(PoisonError::into_inner);
            primaries.entry(node.address.clone()).or_insert_with(|| Arc::new(Batches::new(PACE))).clone()
        };
        let (reply, answered) = oneshot::channel();
        let sender = self.clone();
        let send = move |members| sender.clone().send(node.clone(), members);
        convoy.add(Member { slot, script, reply }, (&self.tasks, "redis convoy"), send);
        answered.await.ok()
    }

    /// One round trip. Whoever is not answered here finds the channel closed.
    async fn send(self: Arc<Self>, node: Arc<Node>, members: Vec<Member>) {
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
