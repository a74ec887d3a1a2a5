//! What callers send, checked into the words of the domain. Plain functions of bytes: the fuzz targets call them too.

use std::collections::HashMap;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::error::not_in_this_version;
use super::id::{campaign_named, event_named, user_named};
use super::json::{Text, object};
use super::problem::{Kind, Problem};
use super::query::{Known, Query};
use crate::domain::id::{CampaignId, EventId, UserId};
use crate::service::report::Days;
use crate::service::visit::NewVisit;

/// Users in one list: a body of 1 MiB holds them all.
pub const USERS_MAX: usize = 1_000;
/// Events in one batch of counts: at the default of 16 shards, 16,000 sketches to read.
pub const EVENTS_MAX: usize = 1_000;
/// Lines in one NDJSON body.
pub const LINES_MAX: usize = 10_000;
/// Rejected lines that an answer lists; it tells the number of all.
pub const REJECTED_LISTED_MAX: usize = 1_000;

const DIMS_LATER: &str = "this version does not count by dimension";

/// A visit or several at one time. Exactly one of `user` and `users`.
#[derive(Deserialize, ToSchema, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct VisitBody<'a> {
    /// 1 to 256 bytes, without control characters; any text of your own.
    #[serde(borrow)]
    #[schema(value_type = Option<String>, example = "u1")]
    user: Option<Text<'a>>,
    /// 1 to 1,000 users; the same one twice is fine.
    #[schema(value_type = Option<Vec<String>>)]
    users: Option<Vec<Text<'a>>>,
    /// When, RFC 3339; now if absent. Within the event's retention, at most 5 minutes ahead.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Text<'a>>,
    #[schema(ignore)]
    dims: Option<IgnoredAny>,
}

/// Who visited.
#[derive(Debug)]
pub enum Visitors<'a> {
    One(UserId<'a>),
    Many(Vec<UserId<'a>>),
}

impl<'a> Visitors<'a> {
    pub fn as_slice(&self) -> &[UserId<'a>] {
        match self {
            Visitors::One(user) => std::slice::from_ref(user),
            Visitors::Many(users) => users,
        }
    }
}

impl<'a> VisitBody<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Problem> {
        let body: Self = object(bytes)?;
        if body.dims.is_some() {
            return Err(not_in_this_version("dims", DIMS_LATER));
        }
        Ok(body)
    }

    pub fn at(&self) -> Result<Option<Timestamp>, Problem> {
        time(self.at.as_ref(), "at")
    }

    /// `by_ingress`: the user that a header names, where the deployment is set up so.
    pub fn visitors<'b>(&'b self, by_ingress: Option<UserId<'b>>) -> Result<Visitors<'b>, Problem> {
        match (&self.user, &self.users, by_ingress) {
            (Some(_), Some(_), _) => {
                Err(Problem::field(Kind::InvalidField, "users", "must not stand beside user; send one of them"))
            }
            (_, Some(_), Some(_)) => Err(lists_are_off("users")),
            (user, None, _) => one_user(user.as_ref(), by_ingress).map(Visitors::One),
            (None, Some(users), None) => {
                check_length("users", users.len(), USERS_MAX)?;
                let users = users.iter().enumerate();
                users
                    .map(|(i, user)| {
                        UserId::new(user.as_str()).map_err(|e| super::id::broken(format!("users[{i}]"), e))
                    })
                    .collect::<Result<_, _>>()
                    .map(Visitors::Many)
            }
        }
    }
}

/// A claim, or a question after one.
#[derive(Deserialize, ToSchema, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct ClaimBody<'a> {
    /// Only where the path does not name it.
    #[serde(borrow)]
    #[schema(value_type = Option<String>)]
    campaign: Option<Text<'a>>,
    #[schema(value_type = Option<String>, example = "u1")]
    user: Option<Text<'a>>,
}

impl<'a> ClaimBody<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Problem> {
        object(bytes)
    }

    /// The campaign, from the path or, where that names none, from here.
    pub fn campaign(&self, in_path: Option<CampaignId>) -> Result<CampaignId, Problem> {
        match (in_path, &self.campaign) {
            (Some(id), None) => Ok(id),
            (None, Some(text)) => campaign_named(text.as_str()),
            (Some(_), Some(_)) => {
                Err(Problem::field(Kind::InvalidField, "campaign", "must not stand in the body when the path names it"))
            }
            (None, None) => Err(Problem::field(Kind::InvalidField, "campaign", "is required")),
        }
    }

    pub fn user<'b>(&'b self, by_ingress: Option<UserId<'b>>) -> Result<UserId<'b>, Problem> {
        one_user(self.user.as_ref(), by_ingress)
    }
}

/// Counts of many events over the same days.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct CountsBody<'a> {
    /// 1 to 1,000 events.
    #[serde(borrow)]
    #[schema(value_type = Vec<String>)]
    events: Vec<Text<'a>>,
    /// `day`, the only period of this version.
    #[schema(value_type = Option<String>, example = "day")]
    period: Option<Text<'a>>,
    /// One day; today if neither it nor `from` and `to` are given.
    #[schema(value_type = Option<String>, format = Date)]
    date: Option<Text<'a>>,
    #[schema(value_type = Option<String>, format = Date)]
    from: Option<Text<'a>>,
    #[schema(value_type = Option<String>, format = Date)]
    to: Option<Text<'a>>,
    #[schema(ignore)]
    dim: Option<IgnoredAny>,
}

impl<'a> CountsBody<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<(Vec<EventId>, Option<Days>), Problem> {
        let body: Self = object(bytes)?;
        if body.dim.is_some() {
            return Err(not_in_this_version("dim", DIMS_LATER));
        }
        check_length("events", body.events.len(), EVENTS_MAX)?;
        let events = body.events.iter().enumerate();
        let events = events
            .map(|(i, event)| EventId::new(event.as_str()).map_err(|e| super::id::broken(format!("events[{i}]"), e)))
            .collect::<Result<_, _>>()?;
        let text = |field: &Option<Text<'_>>| field.as_ref().map(|text| text.as_str().to_owned());
        let [period, date, from, to] = [&body.period, &body.date, &body.from, &body.to].map(text);
        let days = days(period.as_deref(), date.as_deref(), from.as_deref(), to.as_deref())?;
        Ok((events, days))
    }
}

/// The query of a count.
pub const COUNT_QUERY: Known = Known {
    names: &["period", "date", "from", "to"],
    later: &["dim", "dims", "breakdown", "series", "exact", "hour", "week", "month"],
};

pub fn days_of(query: &Query) -> Result<Option<Days>, Problem> {
    days(query.get("period"), query.get("date"), query.get("from"), query.get("to"))
}

fn days(
    period: Option<&str>,
    day: Option<&str>,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Option<Days>, Problem> {
    match period {
        None | Some("day") => {}
        Some("hour" | "week" | "month" | "all") => {
            return Err(not_in_this_version("period", "this version counts days, and ranges of days"));
        }
        Some(_) => return Err(Problem::field(Kind::InvalidField, "period", "must be day")),
    }
    match (day, from, to) {
        (None, None, None) => Ok(None),
        (Some(day), None, None) => {
            let day = date(day, "date")?;
            Ok(Some(Days { from: day, to: day }))
        }
        (None, Some(from), Some(to)) => {
            let days = Days { from: date(from, "from")?, to: date(to, "to")? };
            if days.to < days.from {
                return Err(Problem::field(Kind::InvalidField, "to", "must not be before from"));
            }
            Ok(Some(days))
        }
        (Some(_), _, _) => {
            Err(Problem::field(Kind::InvalidField, "date", "must not stand beside from and to; send one or the other"))
        }
        (None, Some(_), None) => Err(Problem::field(Kind::InvalidField, "to", "is required beside from")),
        (None, None, Some(_)) => Err(Problem::field(Kind::InvalidField, "from", "is required beside to")),
    }
}

/// One line of an NDJSON body.
#[derive(Deserialize, ToSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct VisitLine<'a> {
    #[serde(borrow)]
    #[schema(value_type = String, example = "/index.html")]
    event: Text<'a>,
    #[schema(value_type = String, example = "u1")]
    user: Text<'a>,
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Text<'a>>,
    #[schema(ignore)]
    dims: Option<IgnoredAny>,
}

/// An NDJSON body, read whole; what cannot be read of it is kept beside what can.
#[derive(Debug)]
pub struct VisitLines<'a>(Vec<(usize, Result<VisitLine<'a>, Problem>)>);

/// Visits with the line each came from, and the lines that are none.
pub struct CheckedLines<'a> {
    pub visits: Vec<NewVisit<'a>>,
    /// The line (from 1) of each visit.
    pub lines: Vec<usize>,
    pub rejected: Vec<(usize, Problem)>,
}

impl<'a> VisitLines<'a> {
    /// Splits and reads the lines. Blank ones are skipped, and counted.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Problem> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let mut lines = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if index == LINES_MAX {
                return Err(Problem::field_with_detail(
                    Kind::TooLarge,
                    "body",
                    format!("must be at most {LINES_MAX} lines"),
                    "Nothing was counted; send the same in several requests.",
                ));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                lines.push((index + 1, object(line)));
            }
        }
        Ok(Self(lines))
    }

    /// Checks each line into a visit.
    pub fn check(&self) -> CheckedLines<'_> {
        let mut checked =
            CheckedLines { visits: Vec::with_capacity(self.0.len()), lines: Vec::new(), rejected: Vec::new() };
        // Lines are mostly of few events: each name is checked and kept once.
        let mut events: HashMap<&str, EventId> = HashMap::new();
        for (number, line) in &self.0 {
            match line.as_ref().map_err(Problem::clone).and_then(|line| line.check(&mut events)) {
                Ok(visit) => {
                    checked.visits.push(visit);
                    checked.lines.push(*number);
                }
                Err(problem) => checked.rejected.push((*number, problem)),
            }
        }
        checked
    }
}

impl<'a> VisitLine<'a> {
    fn check<'b>(&'b self, events: &mut HashMap<&'b str, EventId>) -> Result<NewVisit<'b>, Problem> {
        if self.dims.is_some() {
            return Err(not_in_this_version("dims", DIMS_LATER));
        }
        let event = match events.get(self.event.as_str()) {
            Some(event) => event.clone(),
            None => {
                let event = event_named(self.event.as_str())?;
                events.insert(self.event.as_str(), event.clone());
                event
            }
        };
        Ok(NewVisit { event, user: user_named(self.user.as_str(), "user")?, at: time(self.at.as_ref(), "at")? })
    }
}

/// Lists and lines name many users; behind an ingress that names the user, that would be a way around it.
pub fn lists_are_off(field: &'static str) -> Problem {
    Problem::field(Kind::InvalidField, field, "must not be sent here: the ingress names the user of each request")
}

fn one_user<'b>(body: Option<&'b Text<'_>>, by_ingress: Option<UserId<'b>>) -> Result<UserId<'b>, Problem> {
    let user = body.map(|text| user_named(text.as_str(), "user")).transpose()?;
    match (user, by_ingress) {
        (Some(user), None) => Ok(user),
        (None, Some(user)) => Ok(user),
        (Some(user), Some(named)) if user == named => Ok(user),
        (Some(_), Some(_)) => {
            Err(Problem::field(Kind::InvalidField, "user", "must be absent or the user that the ingress names"))
        }
        (None, None) => Err(Problem::field(Kind::InvalidField, "user", "is required")),
    }
}

/// 1 to `max` items.
fn check_length(field: &'static str, length: usize, max: usize) -> Result<(), Problem> {
    if (1..=max).contains(&length) {
        return Ok(());
    }
    Err(Problem::field(Kind::InvalidField, field, format!("must hold 1 to {max} items, got {length}")))
}

pub fn time(text: Option<&Text<'_>>, field: &'static str) -> Result<Option<Timestamp>, Problem> {
    let parse = |text: &Text<'_>| {
        text.as_str().parse().map_err(|_| {
            Problem::field(Kind::InvalidField, field, "must be an RFC 3339 time with a zone, like 2026-11-11T00:00:00Z")
        })
    };
    text.map(parse).transpose()
}

fn date(text: &str, field: &'static str) -> Result<Date, Problem> {
    let plain = text.len() == 10;
    text.parse()
        .ok()
        .filter(|_| plain)
        .ok_or_else(|| Problem::field(Kind::InvalidField, field, "must be a date like 2015-05-17"))
}
