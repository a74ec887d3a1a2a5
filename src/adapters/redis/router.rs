//! Takes commands to the node that owns their slot, and through whatever a cluster answers on the way.
//!
//! ```text
//! reply                       what follows                                              did it run?
//! MOVED slot host             the map is patched; again there, at once                  no
//! ASK slot host               again there behind ASKING; the map stays                  no
//! NOSCRIPT                    again as EVAL on the same node                            no
//! TRYAGAIN, LOADING, …        again after a short pause, at the owner                   no
//! not sent                    again after a short pause, at the owner                   no
//! CLUSTERDOWN, timeout, IO    again if the call may be repeated, else Unavailable       perhaps
//! any other error             is the answer
//! ```
//!
//! All of it ends at the call's deadline. **When a command must be repeated, all that follow it are**, so that the order
//! of effects is the order of the commands, and a WAIT never stands for a script that was sent on. (Nor is a WAIT sent
//! again by itself: `Call::whole`.) Therefore only the first command of a call may be one that is not safe to repeat, and
//! it is given up on doubt.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::chance::jitter;
use super::node::Node;
use super::reply::{Command, NodeError, Redirect, Reply};
use super::settings::Role;
use super::topology::Topology;
use crate::store::error::StoreError;

/// Redirects followed without a pause. A slot may move on while it is followed; more than this is two nodes that each
/// say it is the other's.
const HOPS: u32 = 5;
/// Longest pause before a command that did not run is sent again: short against the deadline, long against a round trip.
const PAUSE: Duration = Duration::from_millis(20);
/// Commands of one batch that travel in one pipeline: at 12 KiB a sketch, under a megabyte of replies.
const BATCH: usize = 64;

/// What a caller wants done in one slot.
pub struct Call {
    pub slot: u16,
    pub role: Role,
    pub commands: Vec<Command>,
    /// False: the first command must not run twice.
    pub repeatable: bool,
    /// False: TRYAGAIN is an answer, because the caller has another slot to try.
    pub patient: bool,
    /// True: the commands count only together, on one connection. None is sent again without those before it: a WAIT on
    /// a new connection stands for nothing, and would be answered at once (docs/FAULTS.md A1).
    pub whole: bool,
}

impl Call {
    pub fn new(slot: u16, commands: Vec<Command>) -> Self {
        Self { slot, role: Role::Fast, commands, repeatable: true, patient: true, whole: false }
    }

    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }
}

pub struct Router {
    pub topology: Arc<Topology>,
    /// For a call, with all its redirects and pauses.
    pub deadline: Duration,
    /// For one command on one node.
    pub command_timeout: Duration,
}

/// What to do about an error.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Answer,
    Follow(Redirect),
    Ask(Redirect),
    SendSource,
    Pause,
    GiveUp,
}

fn step(error: &NodeError, repeatable: bool, patient: bool) -> Step {
    match error {
        NodeError::Moved(to) => Step::Follow(to.clone()),
        NodeError::Ask(to) => Step::Ask(to.clone()),
        NodeError::NoScript => Step::SendSource,
        NodeError::TryAgain if !patient => Step::GiveUp,
        NodeError::TryAgain | NodeError::NotNow(_) | NodeError::NotSent(_) => Step::Pause,
        NodeError::ClusterDown(_) | NodeError::Ambiguous(_) | NodeError::TimedOut(_) if repeatable => Step::Pause,
        NodeError::ClusterDown(_) | NodeError::Ambiguous(_) | NodeError::TimedOut(_) => Step::GiveUp,
        NodeError::LeftAlone(_) | NodeError::Overloaded(_) => Step::GiveUp,
        NodeError::WrongType(_)
        | NodeError::Corrupt(_)
        | NodeError::OutOfMemory(_)
        | NodeError::Denied(_)
        | NodeError::Refused(_) => Step::Answer,
    }
}

impl Router {
    /// Replies to all commands, or the first error.
    pub async fn call(&self, call: Call) -> Result<Vec<Reply>, StoreError> {
        self.call_each(call).await?.into_iter().map(|result| result.map_err(StoreError::from)).collect()
    }

    /// The reply to a single command.
    pub async fn ask(&self, slot: u16, command: Command) -> Result<Reply, StoreError> {
        self.call(Call::new(slot, vec![command])).await?.pop().ok_or_else(missing)
    }

    /// One result per command; errors among them are the server's answers to commands that reached their place.
    pub async fn call_each(&self, call: Call) -> Result<Vec<Result<Reply, NodeError>>, StoreError> {
        let result = self.travel(call).await;
        let outcome = match &result {
            Ok(_) => "ok",
            Err(StoreError::Overloaded(_)) => "overloaded",
            Err(_) => "unavailable",
        };
        metrics::counter!("headcount_store_calls_total", "outcome" => outcome).increment(1);
        result
    }

    async fn travel(&self, mut call: Call) -> Result<Vec<Result<Reply, NodeError>>, StoreError> {
        let end = Instant::now() + self.deadline;
        let mut results = Vec::with_capacity(call.commands.len());
        let mut hops = 0;
        // Where ASK led to, for the next try only.
        let mut asked: Option<Arc<Node>> = None;
        loop {
            let asking = asked.is_some();
            let Some(node) = asked.take().or_else(|| self.topology.view().owner(call.slot).cloned()) else {
                self.pause(end, &self.nobody(call.slot)).await?;
                continue;
            };
            let pending = &call.commands[results.len()..];
            let within = self.command_timeout.min(end.saturating_duration_since(Instant::now()));
            let mut obstacle = None;
            for answer in node.pipeline(call.role, pending, asking, within).await {
                match answer {
                    Err(error) if step(&error, call.repeatable, call.patient) != Step::Answer => {
                        obstacle = Some(error);
                        break;
                    }
                    answer => results.push(answer),
                }
            }
            let Some(error) = obstacle else { return Ok(results) };
            if call.whole && !results.is_empty() {
                if !call.repeatable {
                    return Err(error.into());
                }
                results.clear();
            }
            match self.react(step(&error, call.repeatable, call.patient), &node, hops) {
                Next::Owner => hops += 1,
                Next::Asking(target) => {
                    hops += 1;
                    asked = Some(target);
                }
                Next::Source => {
                    let next = results.len();
                    call.commands[next] = call.commands[next].clone().with_source();
                    // The node that asked for the text is the one that gets it, also behind ASKING.
                    asked = asking.then_some(node);
                }
                Next::Later => {
                    hops = 0;
                    self.pause(end, &error).await?;
                }
                Next::Never => {
                    self.topology.refresh();
                    return Err(error.into());
                }
            }
        }
    }

    fn nobody(&self, slot: u16) -> NodeError {
        NodeError::NotSent(if self.topology.contacted() {
            format!("no node is known to own slot {slot}")
        } else {
            let seed = self.topology.seed();
            format!("{} was not reached yet: {}", seed.address, seed.last_error())
        })
    }

    /// Takes a step, which `node` gave the reason for.
    fn react(&self, step: Step, node: &Node, hops: u32) -> Next {
        match step {
            Step::Follow(_) | Step::Ask(_) if hops >= HOPS => Next::Later,
            Step::Follow(to) => {
                metrics::counter!("headcount_store_redirects_total", "kind" => "moved").increment(1);
                let Some(target) = self.topology.target(&to, node) else { return Next::Later };
                self.topology.moved(&to, &target);
                Next::Owner
            }
            Step::Ask(to) => {
                metrics::counter!("headcount_store_redirects_total", "kind" => "ask").increment(1);
                self.topology.target(&to, node).map_or(Next::Later, Next::Asking)
            }
            Step::SendSource => Next::Source,
            Step::Pause => Next::Later,
            Step::GiveUp | Step::Answer => Next::Never,
        }
    }

    /// Waits a little before the next try, while the slot map is looked at again; the error is the answer if there is no
    /// time for one.
    async fn pause(&self, end: Instant, error: &NodeError) -> Result<(), StoreError> {
        self.topology.refresh();
        let pause = PAUSE / 4 + jitter(PAUSE * 3 / 4);
        if Instant::now() + pause >= end {
            return Err(error.clone().into());
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Read-only commands in any slots, one result each in their order: one pipeline per node and 64 commands, all nodes
    /// at once. What was sent on goes on the same way, so that a slot's move does not turn one pipeline into hundreds of
    /// calls; a node's loss fails only what it owns.
    pub async fn batch(&self, role: Role, commands: Vec<(u16, Command)>) -> Vec<Result<Reply, StoreError>> {
        let mut results: Vec<_> = commands.iter().map(|_| Err(missing())).collect();
        let mut pending: Vec<Pending> = (0..commands.len()).map(|index| Pending { index, asked: None }).collect();
        let mut hops = 0;
        // A long batch may take longer than a call; its second tries may not.
        let mut end = None;
        loop {
            let mut later = None;
            for (one, node, answer) in self.round(role, &commands, std::mem::take(&mut pending)).await {
                let (index, error) = match answer {
                    Ok(reply) => {
                        results[one.index] = Ok(reply);
                        continue;
                    }
                    Err(error) => (one.index, error),
                };
                results[index] = Err(error.clone().into());
                let next = node.map_or(Next::Later, |node| self.react(step(&error, true, true), &node, hops));
                match next {
                    Next::Never => {}
                    Next::Asking(target) => pending.push(Pending { index, asked: Some(target) }),
                    Next::Owner | Next::Source => pending.push(Pending { index, asked: None }),
                    Next::Later => {
                        pending.push(Pending { index, asked: None });
                        later = Some(error);
                    }
                }
            }
            hops = if later.is_some() { 0 } else { hops + 1 };
            let end = *end.get_or_insert_with(|| Instant::now() + self.deadline);
            let in_time = match later {
                Some(error) => self.pause(end, &error).await.is_ok(),
                None => Instant::now() < end,
            };
            if pending.is_empty() || !in_time {
                break;
            }
        }
        let outcome = if results.iter().all(Result::is_ok) { "ok" } else { "partial" };
        metrics::counter!("headcount_store_calls_total", "outcome" => outcome).increment(1);
        results
    }

    /// Sends each command to its node, in as few pipelines as there are nodes.
    async fn round(
        &self,
        role: Role,
        commands: &[(u16, Command)],
        pending: Vec<Pending>,
    ) -> Vec<(Pending, Option<Arc<Node>>, Result<Reply, NodeError>)> {
        let view = self.topology.view().clone();
        let mut groups: HashMap<_, (Option<Arc<Node>>, Vec<Pending>)> = HashMap::new();
        for one in pending {
            let asking = one.asked.is_some();
            let node = one.asked.clone().or_else(|| view.owner(commands[one.index].0).cloned());
            let name = node.as_ref().map(|node| Arc::as_ptr(node) as usize);
            groups.entry((name, asking)).or_insert_with(|| (node, Vec::new())).1.push(one);
        }
        let asked = groups.into_iter().map(async |((_, asking), (node, group))| {
            let mut answers = Vec::with_capacity(group.len());
            for chunk in group.chunks(BATCH) {
                let pipeline: Vec<Command> = chunk.iter().map(|one| commands[one.index].1.clone()).collect();
                match &node {
                    Some(node) => answers.extend(node.pipeline(role, &pipeline, asking, self.command_timeout).await),
                    None => answers.extend(chunk.iter().map(|one| Err(self.nobody(commands[one.index].0)))),
                }
            }
            group.into_iter().zip(answers).map(move |(one, answer)| (one, node.clone(), answer)).collect::<Vec<_>>()
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}

/// A command of a batch without its answer.
struct Pending {
    index: usize,
    /// Where ASK led to, for the next try only.
    asked: Option<Arc<Node>>,
}

/// Where the next try goes.
enum Next {
    Owner,
    Asking(Arc<Node>),
    /// To the same node, with the script's text.
    Source,
    /// To the owner, after a pause.
    Later,
    Never,
}

/// A reply that the protocol promises is not there. Not reached as long as one result per command holds.
fn missing() -> StoreError {
    StoreError::Unavailable("a reply is missing".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_run_is_repeated_only_where_that_is_harmless() {
        let to = Redirect { slot: 1, host: "h".into(), port: 2 };
        let text = || "text".to_string();
        for repeatable in [true, false] {
            let next = |error| step(&error, repeatable, true);
            assert_eq!(next(NodeError::Moved(to.clone())), Step::Follow(to.clone()));
            assert_eq!(next(NodeError::Ask(to.clone())), Step::Ask(to.clone()));
            assert_eq!(next(NodeError::NoScript), Step::SendSource);
            assert_eq!(next(NodeError::TryAgain), Step::Pause);
            assert_eq!(next(NodeError::NotNow(text())), Step::Pause);
            assert_eq!(next(NodeError::NotSent(text())), Step::Pause);
            assert_eq!(next(NodeError::LeftAlone(text())), Step::GiveUp);
            assert_eq!(next(NodeError::Overloaded(text())), Step::GiveUp);
            assert_eq!(next(NodeError::WrongType(text())), Step::Answer);
            for in_doubt in [NodeError::Ambiguous(text()), NodeError::TimedOut(text()), NodeError::ClusterDown(text())]
            {
                assert_eq!(next(in_doubt), if repeatable { Step::Pause } else { Step::GiveUp });
            }
        }
        assert_eq!(step(&NodeError::TryAgain, true, false), Step::GiveUp);
    }
}
