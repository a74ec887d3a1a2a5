//! Scripts whose answer is told only when the replicas have what they wrote.
//!
//! Script and WAIT travel in one pipeline, and so again when either has to be sent again: a WAIT stands for what was
//! written before it on its connection, and counts only if that was answered. The script must write something on every
//! path, because a WAIT after a script that wrote nothing proves nothing (docs/FAULTS.md A1). How many replicas that is
//! says `replicas.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::address::Address;
use super::keys::Key;
use super::replicas::{Change, ClaimReplicas, Replicas};
use super::reply::{Command, NodeError, Reply};
use super::router::{Call, Router};
use super::scripts;
use super::settings::{Identity, Role};
use super::slots::Member;
use crate::runtime::tasks::Tasks;
use crate::store::error::StoreError;
use crate::store::pools::Safety;

/// How long WAIT waits. Redis looks at waiting clients ten times a second, so that this ends within 101 ms, well inside
/// a command's time (docs/FAULTS.md F18).
const WAIT: Duration = Duration::from_millis(50);
const WAIT_ENDS_WITHIN: Duration = Duration::from_millis(101);

pub struct Confirm {
    router: Arc<Router>,
    wanted: ClaimReplicas,
    tasks: Tasks,
    /// By the primary's cluster id.
    primaries: Mutex<HashMap<String, Replicas>>,
}

/// A script, and how it is confirmed.
pub struct Confirmed {
    pub role: Role,
    pub slot: u16,
    pub script: Command,
    /// Writes too; for a second WAIT.
    pub touch: Command,
    pub repeatable: bool,
}

/// Writes into a hash, by a field of it that is a number, and changes nothing.
pub fn touch(key: &Key, field: &'static str) -> Command {
    scripts::TOUCH.call([key].into_iter()).arg(field)
}

impl Confirm {
    pub fn new(router: Arc<Router>, wanted: ClaimReplicas, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { router, wanted, tasks, primaries: Mutex::default() })
    }

    /// Runs a script and waits for the replicas. Its reply; Unconfirmed where they do not acknowledge in time.
    pub async fn run(self: &Arc<Self>, confirmed: Confirmed) -> Result<Reply, StoreError> {
        let Confirmed { role, slot, script, touch, repeatable } = confirmed;
        let (started, server) = (Instant::now(), self.server(slot));
        let (reply, whole) = self.attempt(role, slot, script, repeatable).await?;
        if whole {
            self.probe(slot, &touch);
            return Ok(reply);
        }
        // The connection may be another one than before, whose WAIT would stand for nothing: hence the touch. And what
        // another server acknowledges says nothing of what this one was told.
        let in_time = started.elapsed() + WAIT_ENDS_WITHIN < self.router.deadline;
        if in_time && self.attempt(role, slot, touch, true).await?.1 && server.is_some() && self.server(slot) == server
        {
            return Ok(reply);
        }
        metrics::counter!("headcount_store_unconfirmed_total").increment(1);
        Err(StoreError::Unconfirmed("the replicas did not acknowledge it in time".into()))
    }

    /// How far what is written in this slot is kept from loss.
    pub fn safety(&self, slot: u16) -> Safety {
        self.of_owner(slot, |replicas| replicas.safety()).unwrap_or(Safety::Single)
    }

    /// The script's reply, and whether enough replicas have it.
    async fn attempt(
        &self,
        role: Role,
        slot: u16,
        script: Command,
        repeatable: bool,
    ) -> Result<(Reply, bool), StoreError> {
        let asked = self.needed(slot);
        let commands = if asked > 0 { vec![script, wait(asked)] } else { vec![script] };
        let mut call = Call::new(slot, commands).role(role);
        call.repeatable = repeatable;
        call.whole = true;
        let mut results = self.router.call_each(call).await?.into_iter();
        let reply = results.next().ok_or_else(|| StoreError::Unavailable("a reply is missing".into()))??;
        let count = acknowledged(results.next());
        if asked > 0 {
            self.heard(slot, asked, count);
        }
        // The slot may have moved meanwhile, to a primary with more replicas.
        Ok((reply, count >= asked && count >= self.needed(slot)))
    }

    /// Who owns the slot, and which run of it: a connection is used only after its server said so.
    fn server(&self, slot: u16) -> Option<(Address, Identity)> {
        let view = self.router.topology.view();
        let node = view.owner(slot)?;
        Some((node.address.clone(), node.identity()?))
    }

    /// Replicas that must acknowledge what is written in this slot.
    pub fn needed(&self, slot: u16) -> u32 {
        self.of_owner(slot, |replicas| replicas.needed()).unwrap_or(0)
    }

    /// Whether a WAIT for so many, sent to this slot's owner, was answered with enough; takes note of the answer.
    pub fn is_enough(&self, slot: u16, asked: u32, waited: Option<Result<Reply, NodeError>>) -> bool {
        if asked == 0 {
            return true;
        }
        let Some(Ok(_)) = &waited else { return false };
        let count = acknowledged(waited);
        self.heard(slot, asked, count);
        count >= asked
    }

    fn heard(&self, slot: u16, asked: u32, count: u32) {
        let change = self.of_owner(slot, |replicas| replicas.heard(Instant::now(), asked, count)).flatten();
        let Some(change) = change else { return };
        self.show_degraded();
        match change {
            Change::Fell { to, of } => {
                tracing::warn!(slot, "only {to} of {of} replicas acknowledge: claims are told with so many");
            }
            Change::Rose { to } => tracing::info!(slot, "all {to} replicas acknowledge claims again"),
        }
    }

    /// While fewer replicas than all are waited for: asks now and then for all, beside the calls.
    pub fn probe(self: &Arc<Self>, slot: u16, touch: &Command) {
        let Some(all) = self.of_owner(slot, |replicas| replicas.probe(Instant::now())).flatten() else { return };
        let (confirm, commands) = (self.clone(), vec![touch.clone(), wait(all)]);
        self.tasks.spawn("redis replica probe", async move {
            let mut call = Call::new(slot, commands).role(Role::Confirm);
            call.whole = true;
            if let Ok(results) = confirm.router.call_each(call).await
                && let [Ok(_), waited] = &results[..]
            {
                confirm.heard(slot, all, acknowledged(Some(waited.clone())));
            }
        });
    }

    /// None: nobody is known to own the slot.
    fn of_owner<T>(&self, slot: u16, ask: impl FnOnce(&mut Replicas) -> T) -> Option<T> {
        let view = self.router.topology.view();
        let member = &view.map.members[view.map.owner(slot)?];
        let mut primaries = self.primaries();
        let known = primaries.get(name(member)).map(Replicas::listed);
        let replicas =
            primaries.entry(name(member).to_owned()).or_insert_with(|| Replicas::new(self.wanted, member.replicas));
        replicas.follow(member.replicas);
        let asked = ask(replicas);
        drop(primaries);
        if known != Some(member.replicas) {
            if known.is_some_and(|before| before > 0) && member.replicas == 0 {
                tracing::warn!(node = %member.address, "no replica is left to wait for: claims are in one server's memory");
            }
            self.show_degraded();
        }
        Some(asked)
    }

    /// Counts primaries of now only: one that lost its slots is no risk.
    fn show_degraded(&self) {
        let view = self.router.topology.view();
        let primaries = self.primaries();
        let of = |member: &Member| primaries.get(name(member)).is_some_and(Replicas::is_degraded);
        let degraded = view.map.members.iter().filter(|member| member.primary && of(member)).count();
        metrics::gauge!("headcount_store_primaries_degraded").set(degraded as f64);
    }

    fn primaries(&self) -> MutexGuard<'_, HashMap<String, Replicas>> {
        // Each change of a primary's numbers is whole before the lock is given back.
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A primary's name in `primaries`; a server outside of a cluster is the only one.
fn name(member: &Member) -> &str {
    &member.id
}

pub fn wait(replicas: u32) -> Command {
    Command::new("WAIT").number(replicas).number(WAIT.as_millis())
}

/// Replicas that a WAIT has counted.
fn acknowledged(waited: Option<Result<Reply, NodeError>>) -> u32 {
    match waited {
        Some(Ok(Reply::Number(count))) => u32::try_from(count).unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_only_if_it_was_answered() {
        assert_eq!(acknowledged(Some(Ok(Reply::Number(1)))), 1);
        assert_eq!(acknowledged(Some(Err(NodeError::NoScript))), 0);
        assert_eq!(acknowledged(Some(Ok(Reply::Nil))), 0);
        assert_eq!(acknowledged(None), 0);
    }
}
