//! Campaigns: limited offers, and whether a claim may be admitted. Soft admission only in this version.

use jiff::Timestamp;

/// What a campaign's calendar and switches allow at an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CampaignState {
    NotOpen,
    Open,
    Paused,
    Closed,
}

impl CampaignState {
    /// The word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            CampaignState::NotOpen => "not_open",
            CampaignState::Open => "open",
            CampaignState::Paused => "paused",
            CampaignState::Closed => "closed",
        }
    }
}

/// The opening hours and switches of a campaign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    pub opens_at: Timestamp,
    pub closes_at: Option<Timestamp>,
    pub paused: bool,
    /// Closed by hand: for good.
    pub closed: bool,
}

impl Schedule {
    /// Closing wins over pausing, pausing over the opening: the answer a client can do least about comes first.
    pub fn state(&self, now: Timestamp) -> CampaignState {
        if self.closed || self.closes_at.is_some_and(|end| now >= end) {
            CampaignState::Closed
        } else if self.paused {
            CampaignState::Paused
        } else if now < self.opens_at {
            CampaignState::NotOpen
        } else {
            CampaignState::Open
        }
    }
}

/// How many claims one process may admit on one reading of a soft campaign.
///
/// The places left are shared evenly among the processes that admit, at least one each, so that readings that are
/// one age old together promise no more than what was left (docs/FAULTS.md F10).
pub fn admissions_per_reading(places_left: u64, admitting_processes: u32) -> u64 {
    if places_left == 0 { 0 } else { (places_left / u64::from(admitting_processes.max(1))).max(1) }
}

/// By how many places a soft campaign may be overshot, given this reading: four standard errors of the estimate at
/// the quota, and what the other admitting processes may still admit on a reading as old as this one.
pub fn overshoot_places(quota: u64, relative_standard_error: f64, places_left: u64, admitting_processes: u32) -> u64 {
    let of_estimate = (4.0 * relative_standard_error * quota as f64).ceil() as u64;
    let others = u64::from(admitting_processes.saturating_sub(1));
    of_estimate + others * admissions_per_reading(places_left, admitting_processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_says_what_a_client_can_do_least_about() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let open = Schedule {
            opens_at: at("2026-01-01T00:00:00Z"),
            closes_at: Some(at("2026-01-02T00:00:00Z")),
            paused: false,
            closed: false,
        };
        assert_eq!(open.state(at("2025-12-31T23:59:59Z")), CampaignState::NotOpen);
        assert_eq!(open.state(at("2026-01-01T00:00:00Z")), CampaignState::Open);
        assert_eq!(open.state(at("2026-01-02T00:00:00Z")), CampaignState::Closed);
        let paused = Schedule { paused: true, ..open };
        assert_eq!(paused.state(at("2025-12-31T23:59:59Z")), CampaignState::Paused);
        assert_eq!(Schedule { closed: true, ..paused }.state(at("2026-01-01T00:00:00Z")), CampaignState::Closed);
    }

    #[test]
    fn readings_of_one_age_promise_no_more_than_was_left() {
        for processes in 1..9 {
            for left in [0u64, 1, 7, 8, 1000] {
                let promised = u64::from(processes) * admissions_per_reading(left, processes);
                assert!(promised <= left.max(u64::from(processes) * left.min(1)), "{processes} {left}");
            }
        }
    }

    #[test]
    fn the_overshoot_shrinks_to_the_estimates_error() {
        assert_eq!(overshoot_places(10_000, 0.0014, 10_000, 2), 56 + 5_000);
        assert_eq!(overshoot_places(10_000, 0.0014, 0, 2), 56);
        assert_eq!(overshoot_places(10_000, 0.0014, 10_000, 1), 56);
    }
}
