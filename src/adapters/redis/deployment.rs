//! The port of the deployment on Redis. Its facts lie in 16 copies, one in each bucket of the registry, so that no one
//! node's loss makes the deployment forget its hash key's fingerprint, time zone or schema.

use std::sync::Arc;

use bytes::Bytes;

use super::confirm::{Confirm, Confirmed};
use super::counters::read_time;
use super::keys::{self, REGISTRY_BUCKETS};
use super::reply::{Command, Reply};
use super::router::{Call, Router};
use super::scripts;
use super::settings::Role;
use super::topology::members;
use crate::domain::element::{HashKey, UserHashing};
use crate::store::StoreFuture;
use crate::store::deployment::{Deployment, Facts, Health, NodeHealth};
use crate::store::error::StoreError;

pub struct RedisDeployment {
    router: Arc<Router>,
    confirm: Arc<Confirm>,
}

impl RedisDeployment {
    pub fn new(router: Arc<Router>, confirm: Arc<Confirm>) -> Self {
        Self { router, confirm }
    }

    async fn key(&self, proposed: [u8; 16]) -> Result<[u8; 16], StoreError> {
        let key = keys::hash_key();
        let standing = self.router.ask(key.slot, Command::new("GET").arg(key.text.clone())).await?;
        if standing == Reply::Nil {
            self.allow_new(proposed).await?;
        }
        let hex: String = proposed.iter().map(|byte| format!("{byte:02x}")).collect();
        let script = scripts::HASH_KEY.call([&key].into_iter()).arg(hex);
        let touch = script.clone();
        let write = Confirmed { role: Role::Confirm, slot: key.slot, script, touch, repeatable: true };
        let key_again = self.confirm.run(write).await?;
        let text = key_again.into_bytes()?.unwrap_or_default();
        let read = std::str::from_utf8(&text).ok().and_then(HashKey::from_hex);
        read.map(|key| *key.as_bytes())
            .ok_or_else(|| StoreError::Corrupt("the stored hash key is not 32 hex digits".into()))
    }

    /// A new key is made only where no copy of the facts names another one, and all copies could be asked: a copy out
    /// of reach may be the one that does. Writing back the key that the copies name needs one of them.
    async fn allow_new(&self, proposed: [u8; 16]) -> Result<(), StoreError> {
        let commands = (0..REGISTRY_BUCKETS)
            .map(keys::facts)
            .map(|key| (key.slot, Command::new("HGET").arg(key.text).arg("fingerprint")));
        let mine = UserHashing::Keyed(HashKey::from_bytes(proposed)).fingerprint().0;
        let (mut unreachable, mut named) = (None, false);
        for reply in self.router.batch(Role::Fast, commands.collect()).await {
            match reply.and_then(Reply::into_bytes) {
                Ok(None) => {}
                Ok(Some(text)) => match read_fingerprint(&text)? {
                    0 => {}
                    found if found == mine => named = true,
                    _ => {
                        return Err(StoreError::Refused(
                            "the hash key is gone from the store, but records made with it stand: configure it, or start with an empty store".into(),
                        ));
                    }
                },
                Err(error) => unreachable = Some(error),
            }
        }
        match unreachable {
            Some(error) if !named => Err(error),
            _ => Ok(()),
        }
    }

    async fn agree_on(&self, mine: &Facts) -> Result<Facts, StoreError> {
        let fingerprint = format!("{:016x}", mine.fingerprint);
        let asked = (0..REGISTRY_BUCKETS).map(|bucket| {
            let key = keys::facts(bucket);
            let script = scripts::FACTS_AGREE
                .call([&key].into_iter())
                .number(mine.schema)
                .arg(mine.zone.clone())
                .arg(fingerprint.clone());
            self.router.call(Call::new(key.slot, vec![script]))
        });
        let mut answer = Err(StoreError::Unavailable("no copy of the deployment's facts is within reach".into()));
        for replies in futures_util::future::join_all(asked).await {
            match replies.map(Reply::List) {
                Ok(replies) => {
                    let [copy] = replies.into_array()?;
                    let copy = read_facts(copy)?;
                    if copy != *mine {
                        return Ok(copy);
                    }
                    answer = Ok(copy);
                }
                // A copy out of reach is written when a process starts, or writes back, after it is back.
                Err(error @ StoreError::Unavailable(_)) if answer.is_err() => answer = Err(error),
                Err(StoreError::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
        }
        answer
    }

    /// The time of the first primary that tells it, the one of slot 0 first: all calls should hear the same clock.
    async fn time(&self) -> Result<i64, StoreError> {
        let first = self.router.ask(0, Command::new("TIME")).await;
        let Err(error) = first else { return read_time(first?) };
        let view = self.router.topology.view().clone();
        for node in view.primaries() {
            let answer =
                node.pipeline(Role::Fast, &[Command::new("TIME")], false, self.router.command_timeout).await.pop();
            if let Some(Ok(time)) = answer {
                return read_time(time);
            }
        }
        Err(error)
    }
}

impl Deployment for RedisDeployment {
    fn hash_key(&self, proposed: [u8; 16]) -> StoreFuture<'_, [u8; 16]> {
        Box::pin(self.key(proposed))
    }

    fn agree<'a>(&'a self, mine: &'a Facts) -> StoreFuture<'a, Facts> {
        Box::pin(self.agree_on(mine))
    }

    fn now_ms(&self) -> StoreFuture<'_, i64> {
        Box::pin(self.time())
    }

    fn health(&self) -> Health {
        let topology = &self.router.topology;
        let view = topology.view();
        let slots = view.map.slots_of_members();
        let mut nodes: Vec<NodeHealth> = view
            .map
            .members
            .iter()
            .zip(&view.nodes)
            .zip(slots)
            .map(|((member, node), slots)| {
                let role = if member.primary { format!("primary of {slots} slots") } else { "replica".into() };
                let up = node.is_up();
                let detail = if up { role } else { format!("{role}; {}", node.last_error()) };
                NodeHealth { name: node.address.to_string(), up, detail }
            })
            .collect();
        if nodes.is_empty() {
            let seed = topology.seed();
            nodes.push(NodeHealth { name: seed.address.to_string(), up: false, detail: seed.last_error() });
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Health { nodes, warnings: topology.warnings() }
    }

    fn contacted(&self) -> bool {
        self.router.topology.contacted()
    }

    fn describe(&self) -> String {
        let topology = &self.router.topology;
        let seed = &topology.seed().address;
        match members(&topology.view()) {
            known if known.is_empty() => format!("Redis at {seed}, not reached yet"),
            known => format!("Redis at {seed}: {known}"),
        }
    }
}

fn read_fingerprint(text: &Bytes) -> Result<u64, StoreError> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or_else(|| StoreError::Corrupt("a stored fingerprint is not 16 hex digits".into()))
}

fn read_facts(copy: Reply) -> Result<Facts, StoreError> {
    let [schema, zone, fingerprint] = copy.into_array()?;
    let text = |reply: Reply| reply.into_bytes().map(Option::unwrap_or_default);
    Ok(Facts {
        schema: u32::try_from(schema.unsigned()?)
            .map_err(|_| StoreError::Corrupt("a stored schema out of range".into()))?,
        zone: String::from_utf8_lossy(&text(zone)?).into_owned(),
        fingerprint: read_fingerprint(&text(fingerprint)?)?,
    })
}
