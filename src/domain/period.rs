//! Periods: the stretches of time over which different users are counted.
//!
//! This version counts days and `all`; hours, weeks and months are reserved in the key text
//! (`h2015-05-17T10`, `w2015-W21`, `m2015-05`) so that they need no migration.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Visits this far ahead of our clock are taken as now's; beyond it a caller's clock is wrong.
pub const AHEAD_MAX: Duration = Duration::from_secs(5 * 60);

/// One stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Period {
    Day(Date),
    /// A campaign's whole life.
    All,
}

impl fmt::Display for Period {
    /// The text that stands in keys: `d2015-05-17`, `all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Day(date) => write!(f, "d{date}"),
            Period::All => f.write_str("all"),
        }
    }
}

/// How long a counter is kept after its period has ended, in whole days.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention(u32);

impl Retention {
    /// Five weeks: a month and some days to look back at it.
    pub const DEFAULT: Retention = Retention(35);
    /// A century; above it the year arithmetic of stores is not tested.
    pub const DAYS_MAX: u32 = 36_500;

    pub fn days(days: u32) -> Option<Self> {
        (1..=Self::DAYS_MAX).contains(&days).then_some(Self(days))
    }

    pub fn get(self) -> u32 {
        self.0
    }
}

/// Why a time cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    #[error("must not be more than 5 minutes ahead of the server's clock ({now})")]
    Ahead { now: Timestamp },
    #[error("must lie within the retention of {days} days; the oldest day kept is {oldest}")]
    TooOld { days: u32, oldest: Date },
}

/// Days as the deployment's time zone has them.
#[derive(Clone, Debug)]
pub struct Calendar {
    zone: TimeZone,
}

impl Calendar {
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC }
    }

    /// The zone's name as recorded in the store: pods with another one would cut other days.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    pub fn day_of(&self, at: Timestamp) -> Date {
        self.zone.to_datetime(at).date()
    }

    /// First instant of a day, and the first instant after it.
    pub fn bounds(&self, day: Date) -> (Timestamp, Timestamp) {
        (self.start_of(day), day.tomorrow().map_or(Timestamp::MAX, |next| self.start_of(next)))
    }

    /// The day a visit at `at` counts for, if it may still be counted at `now`.
    pub fn day_to_count(&self, at: Timestamp, now: Timestamp, retention: Retention) -> Result<Date, PeriodError> {
        if at > later(now, AHEAD_MAX) {
            return Err(PeriodError::Ahead { now });
        }
        let day = self.day_of(at);
        let oldest = self.oldest_day(now, retention);
        if day < oldest {
            return Err(PeriodError::TooOld { days: retention.get(), oldest });
        }
        Ok(day)
    }

    /// The oldest day that is kept: its end lies less than the retention ago.
    pub fn oldest_day(&self, now: Timestamp, retention: Retention) -> Date {
        let days = jiff::Span::new().days(i64::from(retention.get()));
        self.day_of(now).checked_sub(days).unwrap_or(Date::MIN)
    }

    /// When a counter's keys go: end of the period, the retention, and a day for late readers. Absolute, so that all
    /// shards go together and a late write cannot bring an old day back (docs/FAULTS.md B5). None: kept until removed.
    pub fn expires_at(&self, period: Period, retention: Retention) -> Option<Timestamp> {
        let Period::Day(day) = period else { return None };
        let (_, end) = self.bounds(day);
        Some(later(end, Duration::from_secs(86_400 * (u64::from(retention.get()) + 1))))
    }

    fn start_of(&self, day: Date) -> Timestamp {
        self.zone.to_timestamp(day.at(0, 0, 0, 0)).unwrap_or(Timestamp::MAX)
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_visit_counts_for_its_own_day_within_the_retention() {
        let calendar = Calendar::utc();
        let now = at("2026-11-30T10:00:00Z");
        let retention = Retention::days(2).unwrap();
        let day = |text| calendar.day_to_count(at(text), now, retention);
        assert_eq!(day("2026-11-28T00:00:00Z").unwrap().to_string(), "2026-11-28");
        assert!(matches!(day("2026-11-27T23:59:59Z"), Err(PeriodError::TooOld { days: 2, .. })));
        assert!(day("2026-11-30T10:05:00Z").is_ok());
        assert!(matches!(day("2026-11-30T10:05:01Z"), Err(PeriodError::Ahead { .. })));
    }

    #[test]
    fn all_shards_of_a_day_go_at_one_instant() {
        let calendar = Calendar::utc();
        let day = Period::Day("2015-05-17".parse().unwrap());
        let gone = calendar.expires_at(day, Retention::days(30).unwrap());
        assert_eq!(gone, Some(at("2015-06-18T00:00:00Z")));
        assert_eq!(calendar.expires_at(Period::All, Retention::DEFAULT), None);
    }

    #[test]
    fn key_texts_are_frozen() {
        assert_eq!(Period::Day("2015-05-07".parse().unwrap()).to_string(), "d2015-05-07");
        assert_eq!(Period::All.to_string(), "all");
    }
}
