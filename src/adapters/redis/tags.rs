//! Hash tags: how a position on the ring becomes a place in a Redis Cluster.
//!
//! A cluster has 16,384 slots; the slot of a key is CRC16 of what stands between `{` and `}`. The ring has 1,024
//! positions. So there is one short tag for each bucket of 16 slots, and position p of an event whose phase is f has the
//! tag of bucket (p + f) mod 1024:
//!
//! ```text
//! slots     0 … 15   16 … 31   32 … 47            16368 … 16383
//! bucket       0         1         2       …           1023
//! tag        "4pw"     ...       ...                   ...       the shortest text whose CRC16 falls into the bucket
//! ```
//!
//! Masters own ranges of slots, so evenly spaced positions lie evenly on the masters: 16 shards on three masters are
//! 5, 5 and 6 for every phase. Tags such as `{event:07}` would be spread at random and leave masters empty.

use std::sync::LazyLock;

use crate::domain::ring::{POSITIONS, Position};

/// Slots of a cluster, by Redis's own definition.
pub const SLOTS: u16 = 16_384;
const BUCKETS: usize = POSITIONS as usize;
const BUCKET_SLOTS: u16 = SLOTS / POSITIONS;
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A hash tag and the slot it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    text: [u8; 3],
    length: u8,
    pub slot: u16,
}

impl Tag {
    pub fn as_str(&self) -> &str {
        // Only bytes of ALPHABET are ever stored, and they are ASCII.
        std::str::from_utf8(&self.text[..usize::from(self.length)]).unwrap_or_default()
    }
}

/// The tag of a position, for a subject whose shards start at `phase`.
pub fn tag(position: Position, phase: u16) -> Tag {
    TABLE[(usize::from(position.get()) + usize::from(phase)) % BUCKETS]
}

/// Found once per process in about a millisecond. Stored keys depend on it, so the order of the search must never
/// change: a test freezes the result.
static TABLE: LazyLock<[Tag; BUCKETS]> = LazyLock::new(|| {
    let mut table = [None; BUCKETS];
    let mut missing = BUCKETS;
    for text in candidates() {
        let slot = slot_of_tag(text.as_bytes());
        let place = &mut table[usize::from(slot / BUCKET_SLOTS)];
        if place.is_none() {
            let mut bytes = [0; 3];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            *place = Some(Tag { text: bytes, length: text.len() as u8, slot });
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    // Texts of up to three letters fill all buckets after 5,137 tries; the frozen test holds this.
    table.map(|tag| tag.expect("every bucket has a tag of at most three letters"))
});

/// Texts over the alphabet, shortest first.
fn candidates() -> impl Iterator<Item = String> {
    (1..=3u32).flat_map(|length| {
        (0..36usize.pow(length)).map(move |number| {
            (0..length).rev().map(|digit| char::from(ALPHABET[number / 36usize.pow(digit) % 36])).collect()
        })
    })
}

/// The slot of a key whose tag this is: CRC16 (XMODEM) mod 16384, as in the Redis Cluster specification.
pub fn slot_of_tag(tag: &[u8]) -> u16 {
    let crc = tag.iter().fold(0u16, |crc, &byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use twox_hash::XxHash3_64;

    use super::*;
    use crate::domain::ring::Shards;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of_tag(b"123456789"), 0x31c3 % SLOTS);
    }

    #[test]
    fn the_table_is_frozen() {
        let text: String = TABLE.iter().map(|tag| format!("{}\n", tag.as_str())).collect();
        assert_eq!(text.lines().count(), 1024);
        assert_eq!(XxHash3_64::oneshot(text.as_bytes()), 7_531_044_077_046_982_684, "stored keys would be lost");
        for (bucket, tag) in TABLE.iter().enumerate() {
            assert_eq!(usize::from(tag.slot / BUCKET_SLOTS), bucket);
            assert_eq!(slot_of_tag(tag.as_str().as_bytes()), tag.slot);
        }
    }

    /// Who owns each slot after `redis-cli --cluster create` with so many masters.
    fn default_owners(masters: usize) -> Vec<usize> {
        let per_master = f64::from(SLOTS) / masters as f64;
        let mut owners = vec![0; usize::from(SLOTS)];
        let (mut first, mut cursor) = (0usize, 0.0);
        for master in 0..masters {
            let last = if master == masters - 1 {
                usize::from(SLOTS) - 1
            } else {
                (cursor + per_master - 1.0f64).round() as usize
            };
            owners[first..=last].fill(master);
            first = last + 1;
            cursor += per_master;
        }
        owners
    }

    #[test]
    fn every_phase_spreads_its_shards_evenly_over_the_masters() {
        for masters in [3, 6, 16] {
            let owners = default_owners(masters);
            for shards in [8, 16, 32, 64] {
                if (shards, masters) == (8, 16) {
                    continue; // eight shards cannot reach sixteen masters
                }
                let positions = Shards::new(shards).unwrap().positions();
                for phase in 0..POSITIONS {
                    let mut load = vec![0; masters];
                    for position in positions.clone() {
                        load[owners[usize::from(tag(position, phase).slot)]] += 1;
                    }
                    let (least, most) = (load.iter().min().unwrap(), load.iter().max().unwrap());
                    assert!(most - least <= 1, "{shards} shards on {masters} masters, phase {phase}: {load:?}");
                }
            }
        }
    }
}
