//! `headcount reconcile`: a store compared with its ledger, or put right from it, as a person reads it.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

use serde::Deserialize;

use crate::ask::{NoAnswer, Question};

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    pub repair: bool,
    pub from_ledger: bool,
    pub accept_loss: bool,
}

/// One line of the answer of `POST /v1/campaigns/{id}/reconcile`.
#[derive(Deserialize)]
struct Line {
    progress: Option<String>,
    problem: Option<Problem>,
    report: Option<Report>,
}

#[derive(Deserialize)]
struct Problem {
    title: String,
    #[serde(default)]
    detail: String,
}

/// What came of it; fields that this version does not know are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    campaign: String,
    agrees: bool,
    claims: u64,
    missing_in_ledger: u64,
    missing_in_store: u64,
    different: u64,
    refunded_in_store: u64,
    refunded_in_ledger: u64,
    too_new: u64,
    repaired: u64,
    conflicts: u64,
    differences: Vec<Difference>,
    record_restored: bool,
    rebuilt: Vec<Rebuilt>,
}

#[derive(Clone, Debug, Deserialize)]
struct Difference {
    shard: u16,
    unit: u64,
    store: Option<String>,
    ledger: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Rebuilt {
    shard: u16,
    claims: u64,
    stock: u64,
    retired: u64,
    refunded: u64,
    ended: u64,
    brought: u64,
}

/// Asks, tells how far it is, and waits for the end.
pub fn ask(question: &Question, wanted: Wanted, tell: impl Fn(&str)) -> Result<Report, NoAnswer> {
    let Wanted { repair, from_ledger, accept_loss } = wanted;
    let mode = match (repair, from_ledger) {
        (true, _) => "repair",
        (_, true) => "from_ledger",
        _ => "compare",
    };
    let body = serde_json::json!({ "mode": mode, "accept_loss": accept_loss }).to_string();
    let mut end: Option<Result<Report, NoAnswer>> = None;
    question.lines("reconcile", body.into(), |line| match serde_json::from_slice::<Line>(line) {
        Ok(Line { progress: Some(text), .. }) => tell(&text),
        Ok(Line { report: Some(report), .. }) => end = Some(Ok(report)),
        Ok(Line { problem: Some(problem), .. }) => {
            end = Some(Err(NoAnswer::Other(format!("{}: {}", problem.title, problem.detail))));
        }
        _ => {}
    })?;
    end.unwrap_or_else(|| Err(NoAnswer::Other("the answer broke off: run it again".into())))
}

impl Report {
    /// What a script goes by.
    pub fn exit_code(&self) -> ExitCode {
        if self.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn is_good(&self) -> bool {
        // What was repaired was different before; another run shows that it is not now.
        let lacked = self.missing_in_ledger + self.different;
        let repaired = self.conflicts == 0 && self.missing_in_store == 0 && lacked > 0 && self.repaired >= lacked;
        self.agrees || repaired
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.record_restored {
            writeln!(f, "the campaign's record was put back from the ledger")?;
        }
        for pool in &self.rebuilt {
            let Rebuilt { shard, claims, stock, retired, refunded, ended, brought } = pool;
            writeln!(
                f,
                "shard {shard} rebuilt: {claims} claims, {stock} units in stock, {retired} retired, {refunded} refunded; \
                 {ended} claims had ended, {brought} rows were new to the ledger"
            )?;
        }
        for Difference { shard, unit, store, ledger } in &self.differences {
            let word = |state: &Option<String>| state.clone().unwrap_or_else(|| "nothing".into());
            writeln!(f, "shard {shard}, unit {unit}: store has {}, ledger has {}", word(store), word(ledger))?;
        }
        writeln!(f, "claims      {} compared, {} too new", self.claims, self.too_new)?;
        writeln!(
            f,
            "different   {} missing in the ledger, {} missing in the store, {} otherwise",
            self.missing_in_ledger, self.missing_in_store, self.different
        )?;
        writeln!(f, "refunded    {} in the store, {} in the ledger", self.refunded_in_store, self.refunded_in_ledger)?;
        if self.repaired + self.conflicts > 0 {
            writeln!(f, "repaired    {} rows; {} contradict others (ledger_conflicts)", self.repaired, self.conflicts)?;
        }
        writeln!(f)?;
        let verdict = match (self.agrees, self.is_good()) {
            (true, _) => "store and ledger agree.",
            (_, true) => "the ledger has been brought what it lacked.",
            _ => "store and ledger DIFFER; --repair brings the ledger what only the store has.",
        };
        writeln!(f, "{}: {verdict}", self.campaign)
    }
}
