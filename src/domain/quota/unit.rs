//! Units: what a campaign hands out. A number is issued once; its turn counts how often it came back.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A unit of a hard campaign, or a packet. Written `17#2`: number 17, which has come back twice; a packet `17#2:500`,
/// which is 5.00 of the campaign's money.
///
/// Number and turn together are never granted twice, so that a ledger can be keyed by them (docs/FAULTS.md A6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unit {
    /// From 1; below 2^53, so that Lua counts it exactly.
    pub number: u64,
    pub turn: u32,
    /// What a packet holds: whole cents, at least 1. None: not a packet.
    pub cents: Option<i64>,
}

impl Unit {
    pub fn new(number: u64) -> Self {
        Self { number, turn: 0, cents: None }
    }

    pub fn packet(number: u64, cents: i64) -> Self {
        Self { number, turn: 0, cents: Some(cents) }
    }

    /// The same unit once it has come back.
    #[must_use]
    pub fn returned(self) -> Self {
        Self { turn: self.turn + 1, ..self }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.number, self.turn)?;
        self.cents.map_or(Ok(()), |cents| write!(f, ":{cents}"))
    }
}

impl FromStr for Unit {
    type Err = NotAUnit;

    fn from_str(text: &str) -> Result<Self, NotAUnit> {
        fn number<T: FromStr>(text: &str) -> Result<T, NotAUnit> {
            text.parse().map_err(|_| NotAUnit)
        }
        let (name, rest) = text.split_once('#').ok_or(NotAUnit)?;
        let (turn, cents) = rest.split_once(':').map_or((rest, None), |(turn, cents)| (turn, Some(cents)));
        Ok(Self { number: number(name)?, turn: number(turn)?, cents: cents.map(number).transpose()? })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a unit: expected number#turn or number#turn:cents")]
pub struct NotAUnit;

/// The text of some units, joined by commas: how they travel and what their digest is made of.
pub fn joined(units: &[Unit]) -> String {
    units.iter().map(Unit::to_string).collect::<Vec<_>>().join(",")
}

pub fn split(text: &str) -> Result<Vec<Unit>, NotAUnit> {
    text.split(',').map(str::parse).collect()
}

/// A unit that may not be claimed before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cooling {
    pub ready_ms: i64,
    pub unit: Unit,
}

/// By time; within a millisecond by the unit's text, which is how a Redis sorted set has it.
impl Ord for Cooling {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.ready_ms.cmp(&other.ready_ms);
        by_time.then_with(|| self.unit.to_string().cmp(&other.unit.to_string()))
    }
}

impl PartialOrd for Cooling {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Sorted numbers as ranges, both ends included: `[1,2,3,7]` is `[(1,3),(7,7)]`.
pub fn ranges(sorted: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last == number || *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_they_are_written() {
        let unit = Unit { number: 17, turn: 2, cents: None };
        assert_eq!((unit.to_string().as_str(), unit.to_string().parse()), ("17#2", Ok(unit)));
        let packet = Unit { cents: Some(500), ..unit };
        assert_eq!((packet.to_string().as_str(), packet.to_string().parse()), ("17#2:500", Ok(packet)));
        assert_eq!(split(&joined(&[unit, packet])), Ok(vec![unit, packet]));
        for bad in ["", "17", "#1", "1#", "-1#0", "1#x", "1#0:", "1#0:1:1"] {
            assert_eq!(bad.parse::<Unit>(), Err(NotAUnit), "{bad:?}");
        }
        assert_eq!(unit.returned().to_string(), "17#3");
    }

    #[test]
    fn ranges_join_neighbours() {
        assert_eq!(ranges([1, 2, 3, 7, 9, 10]), [(1, 3), (7, 7), (9, 10)]);
        assert_eq!(ranges([]), []);
    }

    #[test]
    fn cooling_units_have_the_order_of_a_sorted_set() {
        let at = |ready_ms, number| Cooling { ready_ms, unit: Unit::new(number) };
        assert!(at(1, 9) < at(2, 1) && at(1, 10) < at(1, 9), "10#0 comes before 9#0");
    }
}
