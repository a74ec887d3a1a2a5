//! Which master a user's shard is on, by the same arithmetic as the gateway's.

use headcount::adapters::redis::keys;
use headcount::domain::counter::{Counter, SketchAddress, Subject};
use headcount::domain::element::{HashKey, UserHashing};
use headcount::domain::id::{EventId, UserId};
use headcount::domain::period::Period;
use headcount::domain::ring::{Shards, ring_point};

use super::cluster::RedisCluster;
use super::crowd::FIXED_KEY;

/// The slot of a user's shard of an event with the default shards, under the fixed key.
pub fn slot_of(event: &str, user: &str) -> u16 {
    let hashing = UserHashing::Keyed(HashKey::from_hex(FIXED_KEY.1).unwrap());
    let position = Shards::DEFAULT.position_of(ring_point(&hashing.element(UserId::new(user).unwrap())));
    // All periods of one event and position share a slot.
    let subject = Subject::Event(EventId::new(event).unwrap());
    let counter = Counter { subject, generation: 0, period: Period::All }.into();
    keys::sketch(&SketchAddress { counter, position }).slot
}

/// Users apart by whether their shard is on a node.
pub fn on_node(cluster: &RedisCluster, node: usize, event: &str, users: Vec<String>) -> (Vec<String>, Vec<String>) {
    users.into_iter().partition(|user| cluster.owner_of(slot_of(event, user)) == Some(node))
}
