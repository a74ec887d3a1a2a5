//! Units in few bytes: runs of consecutive numbers with the same turn, in the order in which the pool has them.
//!
//! `1-1000000#0,17#2` are the first million units and then number 17, which has come back twice. Cooling units come by
//! the time they are ready at: `1764500000000:1-5#1;1764500001000:9#0`.
//!
//! Runs of packets end with a colon: `1-1000000#0:,17#2:`. What each holds stands in a table of its own, written when it
//! came into the pool: here it would be some bytes for every packet, with every commit.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Write;

use crate::domain::quota::unit::{Cooling, Unit};

/// More units than this are not one pool's: without a bound a few foreign bytes could claim all memory.
const UNITS_MAX: u64 = 1 << 28;

/// What packets hold, by their numbers.
pub type Amounts = HashMap<u64, i64>;

pub fn runs<'a>(units: impl IntoIterator<Item = &'a Unit>) -> String {
    let mut text = String::new();
    let mut run: Option<(Unit, u64)> = None;
    for unit in units {
        match &mut run {
            Some((first, last)) if is_next(first, *last, unit) => *last = unit.number,
            _ => end_run(&mut text, run.replace((*unit, unit.number))),
        }
    }
    end_run(&mut text, run);
    text
}

fn is_next(first: &Unit, last: u64, unit: &Unit) -> bool {
    first.turn == unit.turn && last + 1 == unit.number && first.cents.is_some() == unit.cents.is_some()
}

fn end_run(text: &mut String, run: Option<(Unit, u64)>) {
    let Some((Unit { number, turn, cents }, last)) = run else { return };
    let comma = if text.is_empty() { "" } else { "," };
    let packets = if cents.is_some() { ":" } else { "" };
    // Writing to a String cannot fail.
    let _ = if last == number {
        write!(text, "{comma}{number}#{turn}{packets}")
    } else {
        write!(text, "{comma}{number}-{last}#{turn}{packets}")
    };
}

/// None where this is not what `runs` writes, or a packet's amount is unknown.
pub fn units_of(text: &str, amounts: &Amounts) -> Option<VecDeque<Unit>> {
    let mut units = VecDeque::new();
    for run in text.split(',').filter(|_| !text.is_empty()) {
        let (numbers, turn) = run.split_once('#')?;
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let (turn, packets) = turn.strip_suffix(':').map_or((turn, false), |turn| (turn, true));
        let turn = turn.parse().ok()?;
        if last < first || last - first >= UNITS_MAX - units.len() as u64 {
            return None;
        }
        for number in first..=last {
            let cents = if packets { Some(*amounts.get(&number)?) } else { None };
            units.push_back(Unit { number, turn, cents });
        }
    }
    Some(units)
}

pub fn cooling_runs(cooling: &BTreeSet<Cooling>) -> String {
    // The set's order within a millisecond is that of texts, which would tear runs apart.
    let mut sorted: Vec<(i64, Unit)> = cooling.iter().map(|one| (one.ready_ms, one.unit)).collect();
    sorted.sort_unstable_by_key(|(ready_ms, unit)| (*ready_ms, unit.turn, unit.number));
    let by_time = sorted.chunk_by(|(one, _), (other, _)| one == other);
    let groups = by_time.map(|group| format!("{}:{}", group[0].0, runs(group.iter().map(|(_, unit)| unit))));
    groups.collect::<Vec<_>>().join(";")
}

pub fn cooling_of(text: &str, amounts: &Amounts) -> Option<BTreeSet<Cooling>> {
    let mut cooling = BTreeSet::new();
    for group in text.split(';').filter(|_| !text.is_empty()) {
        let (ready_ms, units) = group.split_once(':')?;
        let ready_ms = ready_ms.parse().ok()?;
        cooling.extend(units_of(units, amounts)?.into_iter().map(|unit| Cooling { ready_ms, unit }));
    }
    Some(cooling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(number: u64, turn: u32) -> Unit {
        Unit { number, turn, cents: None }
    }

    fn none() -> Amounts {
        Amounts::new()
    }

    #[test]
    fn packets_are_runs_whose_amounts_are_elsewhere() {
        let packet = |number, turn| Unit { number, turn, cents: Some(number as i64 * 10) };
        let amounts: Amounts = (1..10).map(|number| (number, number as i64 * 10)).collect();
        let units = [packet(1, 0), packet(2, 0), unit(3, 0), packet(4, 0), packet(5, 1)];
        assert_eq!(runs(&units), "1-2#0:,3#0,4#0:,5#1:");
        assert_eq!(units_of(&runs(&units), &amounts).unwrap(), units);
        assert_eq!(units_of("1-2#0:,10#0:", &amounts), None, "no amount");
        let cooling = [packet(6, 1), packet(7, 1)].map(|unit| Cooling { ready_ms: 5, unit }).into();
        assert_eq!(cooling_runs(&cooling), "5:6-7#1:");
        assert_eq!(cooling_of("5:6-7#1:", &amounts), Some(cooling));
    }

    #[test]
    fn runs_are_few_bytes_and_keep_the_order() {
        let units = [unit(3, 0), unit(4, 0), unit(5, 0), unit(5, 1), unit(6, 1), unit(2, 0), unit(9, 0)];
        assert_eq!(runs(&units), "3-5#0,5-6#1,2#0,9#0");
        assert_eq!(units_of("3-5#0,5-6#1,2#0,9#0", &none()).unwrap(), units);
        assert_eq!((runs([]).as_str(), units_of("", &none())), ("", Some(VecDeque::new())));
    }

    #[test]
    fn cooling_units_are_runs_by_time() {
        let all: BTreeSet<Cooling> = (1..=100)
            .map(|number| Cooling { ready_ms: 5, unit: unit(number, 0) })
            .chain([Cooling { ready_ms: 7, unit: unit(3, 1) }, Cooling { ready_ms: 7, unit: unit(200, 0) }])
            .collect();
        assert_eq!(cooling_runs(&all), "5:1-100#0;7:200#0,3#1");
        assert_eq!(cooling_of(&cooling_runs(&all), &none()), Some(all));
        assert_eq!(cooling_of("", &none()), Some(BTreeSet::new()));
    }

    #[test]
    fn foreign_text_is_no_units() {
        for bad in
            [",", "1", "1#", "#1", "2-1#0", "1-99999999999#0", "1-268435457#0", "1#0,1-268435456#0", "1#0;2#0", "1#0::"]
        {
            assert_eq!(units_of(bad, &none()), None, "{bad}");
        }
        for bad in ["1#0", "5:1#0;", "x:1#0", "5:1"] {
            assert_eq!(cooling_of(bad, &none()), None, "{bad}");
        }
    }
}
