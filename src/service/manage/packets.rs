//! What the packets of a new campaign are to hold.

use crate::domain::packets::Split;
use crate::runtime::random::random_bytes;
use crate::service::quota::packets::{Part, described};
use crate::store::documents::{PacketSource, PacketsDocument};

/// What packets are to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewPackets {
    Draw(Split),
    /// So many, which hold so much together; all of them now, or in parts later.
    List {
        count: u64,
        total_cents: i64,
        amounts: Option<Vec<i64>>,
    },
}

impl NewPackets {
    pub fn count(&self) -> u64 {
        match self {
            NewPackets::Draw(split) => split.count(),
            NewPackets::List { count, .. } => *count,
        }
    }
}

/// Whether a wish is for the packets that a campaign has. Seeds differ, and a list may still be on its way: that is left out.
pub fn same_packets(wish: Option<&NewPackets>, standing: Option<&PacketsDocument>) -> bool {
    match (wish, standing) {
        (None, None) => true,
        (Some(NewPackets::Draw(split)), Some(standing)) => match standing.source {
            PacketSource::Draw { min_cents, max_cents, .. } => {
                (split.total_cents(), split.count()) == (standing.total_cents, standing.count)
                    && (split.min_cents(), split.max_cents()) == (min_cents, max_cents)
            }
            PacketSource::List { .. } => false,
        },
        (Some(NewPackets::List { count, total_cents, amounts }), Some(standing)) => match &standing.source {
            PacketSource::List { parts } => {
                let same = |amounts: &Vec<i64>| {
                    parts.is_empty() || parts[..] == [described(&Part { first: 1, cents: amounts.clone() })]
                };
                (*count, *total_cents) == (standing.count, standing.total_cents) && amounts.as_ref().is_none_or(same)
            }
            PacketSource::Draw { .. } => false,
        },
        _ => false,
    }
}

/// The record's part of it, with a seed for a draw.
pub fn packets_document(packets: &NewPackets) -> PacketsDocument {
    match packets {
        NewPackets::Draw(split) => PacketsDocument {
            count: split.count(),
            total_cents: split.total_cents(),
            source: PacketSource::Draw {
                min_cents: split.min_cents(),
                max_cents: split.max_cents(),
                seed: data_encoding::HEXLOWER.encode(&random_bytes::<32>()),
            },
        },
        NewPackets::List { count, total_cents, .. } => PacketsDocument {
            count: *count,
            total_cents: *total_cents,
            source: PacketSource::List { parts: Vec::new() },
        },
    }
}
