//! `headcount audit`: a campaign's books, asked of a running gateway, as a person reads them.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

use serde::Deserialize;

use crate::ask::{NoAnswer, Question};

/// Ranges and duplicates that are printed; a screen's worth.
const SHOWN_MAX: usize = 40;

/// The answer of `GET /v1/campaigns/{id}/audit`; fields that this version does not know are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Books {
    campaign: String,
    balances: bool,
    settled: bool,
    operation_under_way: bool,
    quota: u64,
    issued: u64,
    found: u64,
    in_flight: u64,
    available: u64,
    cooling: u64,
    held: u64,
    confirmed: u64,
    retired: u64,
    refunded: u64,
    shards: Vec<Shard>,
    granted: Vec<(u64, u64)>,
    duplicates: Vec<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Shard {
    shard: u16,
    status: String,
    available: u64,
    cooling: u64,
    held: u64,
    confirmed: u64,
    retired: u64,
    refunded: u64,
    in_flight: u64,
    ver: u64,
    safe: String,
    replicas: u32,
}

/// Asks, and waits for the answer.
pub fn ask(question: &Question) -> Result<Books, NoAnswer> {
    let body = question.whole("audit")?;
    let strange =
        |error| NoAnswer::Other(format!("{} sent no books: {error}; is it a gateway's admin listener?", question.url));
    serde_json::from_slice(&body).map_err(strange)
}

impl Display for Books {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_table(f, &self.table())?;
        let (taken, units) =
            (self.held + self.confirmed, self.granted.iter().map(|(from, to)| to - from + 1).sum::<u64>());
        writeln!(f)?;
        writeln!(f, "issued      {}", self.issued)?;
        writeln!(
            f,
            "found       {} (available + cooling + held + confirmed + retired + refunded + in flight)",
            self.found
        )?;
        writeln!(f, "taken       {taken} of a quota of {} (held + confirmed)", self.quota)?;
        let granted =
            self.granted.iter().map(|(from, to)| if from == to { format!("{from}") } else { format!("{from}-{to}") });
        writeln!(f, "granted     {units} units: {}", shortened(granted, self.granted.len()))?;
        let duplicates = self.duplicates.iter().map(u64::to_string);
        writeln!(f, "duplicates  {}", shortened(duplicates, self.duplicates.len()))?;
        writeln!(f)?;
        writeln!(f, "{}", self.verdict(taken))
    }
}

impl Books {
    /// What a script goes by.
    pub fn exit_code(&self) -> ExitCode {
        if self.balances { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn table(&self) -> Vec<[String; 11]> {
        const HEAD: [&str; 11] = [
            "shard",
            "status",
            "available",
            "cooling",
            "held",
            "confirmed",
            "retired",
            "refunded",
            "in flight",
            "ver",
            "safe",
        ];
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.shards.iter().map(Shard::row));
        let numbers =
            [self.available, self.cooling, self.held, self.confirmed, self.retired, self.refunded, self.in_flight];
        let [available, cooling, held, confirmed, retired, refunded, in_flight] =
            numbers.map(|number| number.to_string());
        let (total, none) = ("total".to_owned(), String::new);
        rows.push([total, none(), available, cooling, held, confirmed, retired, refunded, in_flight, none(), none()]);
        rows
    }

    /// The last line: what it means, and what to do.
    fn verdict(&self, taken: u64) -> String {
        let campaign = &self.campaign;
        if self.balances {
            let moved = if self.settled { "" } else { " Units moved while this was read." };
            return format!(
                "{campaign} balances: every unit is in one place, and nobody's unit is anybody else's.{moved}"
            );
        }
        let mut reasons = Vec::new();
        if self.issued != self.found {
            reasons.push(format!("{} units were issued and {} found", self.issued, self.found));
        }
        if !self.duplicates.is_empty() {
            reasons.push(format!("{} units have two holders", self.duplicates.len()));
        }
        if taken > self.quota {
            reasons.push(format!("{taken} are taken of a quota of {}", self.quota));
        }
        let advice = if self.operation_under_way {
            "Stock is being laid out or changed just now, which may explain it: run this again in a minute."
        } else if !self.settled {
            "Units moved while this was read, which may explain it: run this again when fewer claims arrive."
        } else {
            "Nothing moved while this was read: pause the campaign, leave the store as it is, and see docs/OPERATIONS.md."
        };
        format!("{campaign} DOES NOT BALANCE: {}. {advice}", reasons.join("; "))
    }
}

impl Shard {
    fn row(&self) -> [String; 11] {
        let number = |number: u64| number.to_string();
        [
            self.shard.to_string(),
            self.status.clone(),
            number(self.available),
            number(self.cooling),
            number(self.held),
            number(self.confirmed),
            number(self.retired),
            number(self.refunded),
            number(self.in_flight),
            number(self.ver),
            if self.replicas == 0 { self.safe.clone() } else { format!("{} ({})", self.safe, self.replicas) },
        ]
    }
}

/// Words to the left, numbers to the right.
fn write_table(f: &mut Formatter<'_>, rows: &[[String; 11]]) -> fmt::Result {
    const WORDS: [usize; 2] = [1, 10];
    let widths: Vec<usize> =
        (0..11).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if WORDS.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// A list; of a long one its beginning, and how much more there is.
fn shortened(items: impl Iterator<Item = String>, count: usize) -> String {
    if count == 0 {
        return "none".to_owned();
    }
    let shown = items.take(SHOWN_MAX).collect::<Vec<_>>().join(", ");
    if count > SHOWN_MAX { format!("{shown} and {} more", count - SHOWN_MAX) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books(change: impl FnOnce(&mut serde_json::Value)) -> Books {
        let mut answer = serde_json::json!({
            "campaign": "sale", "balances": true, "settled": true, "operation_under_way": false,
            "quota": 10, "quota_target": 10, "issued": 10, "found": 10, "in_flight": 1,
            "available": 5, "cooling": 0, "held": 3, "confirmed": 1, "retired": 0, "refunded": 0,
            "shards": [
                { "shard": 0, "status": "open", "available": 5, "cooling": 0, "held": 3, "confirmed": 0, "retired": 0,
                  "refunded": 0, "in_flight": 1, "ver": 17, "incarnation": 1, "safe": "replicated", "replicas": 1 },
                { "shard": 12, "status": "open", "available": 0, "cooling": 0, "held": 0, "confirmed": 1, "retired": 0,
                  "refunded": 0, "in_flight": 0, "ver": 4, "incarnation": 1, "safe": "single", "replicas": 0 },
            ],
            "granted": [[1, 3], [7, 7]], "duplicates": [],
        });
        change(&mut answer);
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn a_balanced_campaign_is_a_table_with_both_sides() {
        let books = books(|_| {});
        let expected = "\
shard  status  available  cooling  held  confirmed  retired  refunded  in flight  ver  safe
    0  open            5        0     3          0        0         0          1   17  replicated (1)
   12  open            0        0     0          1        0         0          0    4  single
total                  5        0     3          1        0         0          1

issued      10
found       10 (available + cooling + held + confirmed + retired + refunded + in flight)
taken       4 of a quota of 10 (held + confirmed)
granted     4 units: 1-3, 7
duplicates  none

sale balances: every unit is in one place, and nobody's unit is anybody else's.
";
        assert_eq!(books.to_string(), expected);
        assert_eq!(books.exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn one_that_does_not_balance_says_why_and_what_to_do() {
        let lost = |settled: bool| {
            books(|answer| {
                for (field, value) in [("balances", false.into()), ("settled", settled.into()), ("found", 9.into())] {
                    answer[field] = value;
                }
            })
        };
        assert_eq!(lost(true).exit_code(), ExitCode::FAILURE);
        let text = lost(true).to_string();
        assert!(text.contains("DOES NOT BALANCE: 10 units were issued and 9 found. Nothing moved"), "{text}");
        assert!(lost(false).to_string().contains("run this again when fewer claims arrive"));
        let twice = books(|answer| {
            answer["balances"] = false.into();
            answer["duplicates"] = serde_json::json!([7]);
        });
        let text = twice.to_string();
        assert!(text.contains("duplicates  7\n") && text.contains("1 units have two holders"), "{text}");
    }

    #[test]
    fn many_ranges_are_shortened() {
        let many =
            books(|answer| answer["granted"] = (0..1000).map(|i| serde_json::json!([3 * i, 3 * i + 1])).collect());
        let text = many.to_string();
        let line = text.lines().find(|line| line.starts_with("granted")).unwrap();
        assert!(line.starts_with("granted     2000 units: 0-1, 3-4, ") && line.ends_with(" and 960 more"), "{line}");
    }
}
