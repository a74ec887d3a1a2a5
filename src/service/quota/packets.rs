//! What the packets of a campaign hold: worked out again from its record, or sent in parts by its owner.
//!
//! A part is known by the number of its first packet. The record names a part, by a digest of its amounts, before the
//! first of its packets is in a pool; so the same part can be sent again after any fault and goes on where it stopped,
//! and another one in its place is refused. Amounts stand nowhere but in pools and ledger: a part that was begun can be
//! finished only by who has them, its sender.

use std::borrow::Cow;
use std::fmt::Write as _;

use twox_hash::XxHash3_64;

use crate::domain::packets::{Split, check_amounts};
use crate::service::error::ServiceError;
use crate::service::quota::plan;
use crate::store::documents::{CampaignDocument, HardDocument, Operation, PacketSource, PacketsDocument, PartDocument};
use crate::store::error::StoreError;

/// Parts of one list: each is a line in the campaign's record.
pub const PARTS_MAX: usize = 1000;
/// Packets of one part.
pub const PART_PACKETS_MAX: usize = 100_000;

/// A part as its owner sends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The number of its first packet.
    pub first: u64,
    pub cents: Vec<i64>,
}

/// What the new units of an operation hold.
pub enum Holdings<'a> {
    /// They are no packets.
    Nothing,
    Cents(Cow<'a, [i64]>),
    /// Only the sender of their part knows.
    Unknown,
}

/// What an operation of this campaign brings. `part`: what the caller has in hand.
pub fn holdings<'a>(
    hard: &HardDocument,
    operation: &Operation,
    part: Option<&'a Part>,
) -> Result<Holdings<'a>, ServiceError> {
    let Some(packets) = &hard.packets else { return Ok(Holdings::Nothing) };
    if operation.fresh == 0 {
        return Ok(Holdings::Nothing);
    }
    match &packets.source {
        PacketSource::Draw { .. } => Ok(Holdings::Cents(drawn(packets)?.into())),
        PacketSource::List { parts } => {
            let same = |part: &&Part| parts.last().is_some_and(|last| *last == described(part));
            Ok(part.filter(same).map_or(Holdings::Unknown, |part| Holdings::Cents(Cow::Borrowed(&part.cents))))
        }
    }
}

/// The packets of a draw, as the record's seed gives them.
pub fn drawn(packets: &PacketsDocument) -> Result<Vec<i64>, ServiceError> {
    let corrupt = |what: String| ServiceError::Refused(StoreError::Corrupt(what));
    let PacketSource::Draw { min_cents, max_cents, seed } = &packets.source else { return Ok(Vec::new()) };
    let seed = data_encoding::HEXLOWER.decode(seed.as_bytes()).ok().and_then(|seed| seed.try_into().ok());
    let seed = seed.ok_or_else(|| corrupt("the seed of a draw is not 64 hex digits".to_owned()))?;
    let split = Split::new(packets.total_cents, packets.count, *min_cents, *max_cents);
    Ok(split.map_err(|rule| corrupt(format!("a draw that cannot be: {rule}")))?.draw(seed))
}

pub fn described(part: &Part) -> PartDocument {
    let text = part.cents.iter().fold(String::new(), |mut text, cents| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{cents},");
        text
    });
    PartDocument {
        first: part.first,
        count: part.cents.len() as u64,
        cents: part.cents.iter().sum(),
        digest: format!("{:016x}", XxHash3_64::oneshot(text.trim_end_matches(',').as_bytes())),
    }
}

/// The record in which a part is begun. None: it is in already, or under way as it was sent before.
pub fn with_part(document: &CampaignDocument, part: &Part) -> Result<Option<CampaignDocument>, ServiceError> {
    let hard = document.hard.as_ref().ok_or(ServiceError::NotKeptBySoft)?;
    let packets = hard.packets.as_ref().ok_or_else(not_a_list)?;
    let PacketSource::List { parts } = &packets.source else { return Err(not_a_list()) };
    check_amounts(&part.cents)?;
    let described = described(part);
    if let Some(standing) = parts.iter().find(|standing| standing.first == part.first) {
        if *standing == described {
            return Ok(None);
        }
        return Err(ServiceError::Conflict(format!(
            "the part from packet {} on was sent before with other amounts: parts cannot be changed",
            part.first
        )));
    }
    if document.closed {
        return Err(ServiceError::Conflict("the campaign is closed for good: create another one".into()));
    }
    let rule = |field, rule| Err(ServiceError::Invalid { field, rule });
    let loaded = packets.loaded();
    if hard.running.is_some() {
        return Err(ServiceError::Conflict(format!(
            "the part from packet {} on is not complete: send it again first",
            parts.last().map_or(1, |part| part.first)
        )));
    }
    if part.first != loaded + 1 {
        return rule("first", format!("must be {}, the next packet", loaded + 1));
    }
    if parts.len() >= PARTS_MAX {
        return rule("body", format!("must bring all that is left: a list has at most {PARTS_MAX} parts"));
    }
    let (count, cents) = (loaded + described.count, packets.loaded_cents() + described.cents);
    if count > packets.count {
        return rule("body", format!("must bring at most {} packets: all that are left", packets.count - loaded));
    }
    // Those to come hold a cent at least.
    let spare = packets.total_cents - cents - (packets.count - count) as i64;
    if spare < 0 || (count == packets.count && spare != 0) {
        return rule(
            "body",
            format!("must fit packets.total_cents ({}): with it all are {cents}", packets.total_cents),
        );
    }
    Ok(Some(begun(document, hard, packets, parts, described)))
}

fn begun(
    document: &CampaignDocument,
    hard: &HardDocument,
    packets: &PacketsDocument,
    parts: &[PartDocument],
    part: PartDocument,
) -> CampaignDocument {
    let number = hard.operations + 1;
    let hard = HardDocument {
        operations: number,
        running: Some(plan::fill_part(usize::from(document.shards), number, part.first, part.count)),
        next_unit: part.first + part.count,
        packets: Some(PacketsDocument {
            source: PacketSource::List { parts: parts.iter().cloned().chain([part]).collect() },
            ..packets.clone()
        }),
        ..hard.clone()
    };
    CampaignDocument { hard: Some(hard), ..document.clone() }
}

fn not_a_list() -> ServiceError {
    ServiceError::Conflict("only campaigns whose packets are a list take them in parts".into())
}
