//! Writing a batch: everything within one transaction, which the caller opens and commits.
//!
//! The first statement locks the shard's row of `ledger_drains`. So two drainers of one shard, which a lost lease may
//! leave for moments, write one after the other, and what was read here is still true when it is written. Drainers of
//! different shards only meet where the news contradict each other; there one of them fails on a unique key, and its
//! whole batch is tried again.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AnyConnection, Row};

use super::dialect::Dialect;
use super::error::Fault;
use super::rows::{self, COLUMNS};
use super::statement::{ROWS_MAX, Statement, Value, fill_up, signed};
use crate::domain::id::CampaignId;
use crate::domain::ledger::entry::Entry;
use crate::domain::ledger::settle::{Conflict, settle};
use crate::domain::quota::claim::UserKey;
use crate::store::ledger::{LedgerBatch, Progress, Written};

/// An UPDATE looks each row up in its lists of cases, so its cost rises with the square of this.
const UPDATED_MAX: usize = 64;

/// Names an entry among those of a shard: incarnation, version, unit.
type Name = (i64, i64, i64);

pub(super) struct Writer<'a> {
    pub(super) on: &'a mut AnyConnection,
    pub(super) dialect: Dialect,
    pub(super) batch: &'a LedgerBatch,
}

impl Writer<'_> {
    pub(super) async fn write(&mut self) -> Result<Written, Fault> {
        self.lock_shard().await?;
        let fresh = self.fresh().await?;
        let standing = self.standing().await?;
        let settled = settle(standing, &self.batch.entries);
        self.insert_claims(&settled.insert).await?;
        self.update_claims(&settled.update).await?;
        self.insert_entries(&fresh).await?;
        for conflict in &settled.conflicts {
            self.keep_conflict(conflict).await?;
        }
        self.move_progress(&self.batch.progress).await?;
        let rows = (settled.insert.len() + settled.update.len()) as u64;
        Ok(Written { fresh: fresh.len() as u64, rows, conflicts: settled.conflicts })
    }

    async fn lock_shard(&mut self) -> Result<(), Fault> {
        let lock = "UPDATE ledger_drains SET at_ms = at_ms WHERE campaign = ? AND shard = ?";
        let (campaign, shard) = self.shard();
        if self.run(Statement::new(lock, [campaign.clone(), shard.clone()])).await? == 0 {
            let zero = || Value::from(0i64);
            let row = vec![campaign, shard, zero(), zero(), zero(), zero()];
            self.run(Statement::insert("ledger_drains", "campaign, shard, incarnation, ver, behind, at_ms", row))
                .await?;
        }
        Ok(())
    }

    /// Never back: a drainer that was slow may come after one that knows more.
    async fn move_progress(&mut self, progress: &Progress) -> Result<(), Fault> {
        let (incarnation, ver) = (signed(progress.incarnation)?, signed(progress.ver)?);
        let (campaign, shard) = self.shard();
        let update = "UPDATE ledger_drains SET incarnation = ?, ver = ?, behind = ?, at_ms = ? \
                      WHERE campaign = ? AND shard = ? AND (incarnation < ? OR (incarnation = ? AND (ver < ? OR \
                      (ver = ? AND at_ms <= ?))))";
        let values = [
            incarnation.into(),
            ver.into(),
            signed(progress.behind)?.into(),
            progress.at_ms.into(),
            campaign,
            shard,
            incarnation.into(),
            incarnation.into(),
            ver.into(),
            ver.into(),
            progress.at_ms.into(),
        ];
        self.run(Statement::new(update, values)).await?;
        Ok(())
    }

    /// Entries that the journal does not have, each once.
    async fn fresh(&mut self) -> Result<Vec<Entry>, Fault> {
        let mut known: BTreeSet<Name> = BTreeSet::new();
        for chunk in self.batch.entries.chunks(ROWS_MAX) {
            let names = chunk.iter().map(name).collect::<Result<Vec<Name>, Fault>>()?;
            let (campaign, shard) = self.shard();
            let mut select = Statement::new(
                "SELECT incarnation, ver, unit FROM ledger_entries WHERE campaign = ? AND shard = ? AND incarnation IN ",
                [campaign, shard],
            );
            select.keys(each(names.iter().map(|name| name.0)));
            select.push(" AND ver IN ");
            select.keys(each(names.iter().map(|name| name.1)));
            for row in select.rows(self.on, self.dialect).await? {
                known.insert((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            }
        }
        let mut fresh = Vec::new();
        for entry in &self.batch.entries {
            if known.insert(name(entry)?) {
                fresh.push(entry.clone());
            }
        }
        Ok(fresh)
    }

    /// All rows that have a key of an entry; some more may be among them, which changes nothing.
    async fn standing(&mut self) -> Result<Vec<Entry>, Fault> {
        let mut standing: BTreeMap<(u64, u32), Entry> = BTreeMap::new();
        for chunk in self.batch.entries.chunks(ROWS_MAX) {
            let units = chunk.iter().map(|entry| signed(entry.unit().number)).collect::<Result<Vec<i64>, Fault>>()?;
            let turns = chunk.iter().map(|entry| i64::from(entry.unit().turn));
            let mut by_unit = self.select_claims("unit");
            by_unit.keys(each(units));
            by_unit.push(" AND turn IN ");
            by_unit.keys(each(turns));
            let mut selects = vec![by_unit];
            let claims: Vec<(UserKey, u32)> = chunk.iter().filter_map(Entry::claim).collect();
            if !claims.is_empty() {
                let users: BTreeSet<UserKey> = claims.iter().map(|(user, _)| *user).collect();
                let mut by_claim = self.select_claims("user_key");
                by_claim.keys(users.into_iter().map(|user| rows::hex(user).into()));
                by_claim.push(" AND claim_no IN ");
                by_claim.keys(each(claims.iter().map(|(_, number)| i64::from(*number))));
                selects.push(by_claim);
            }
            for select in selects {
                for row in select.rows(self.on, self.dialect).await? {
                    let entry = rows::read(&row)?;
                    standing.insert((entry.unit().number, entry.unit().turn), entry);
                }
            }
        }
        Ok(standing.into_values().collect())
    }

    fn select_claims(&self, key: &str) -> Statement {
        let text = format!("SELECT {COLUMNS} FROM ledger_claims WHERE campaign = ? AND {key} IN ");
        Statement::new(&text, [self.batch.campaign.as_str().into()])
    }

    async fn insert_claims(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        let mut rows = Vec::with_capacity(entries.len());
        for entry in entries {
            let (campaign, shard) = self.shard();
            let mut row = vec![campaign, shard];
            row.extend(rows::values(entry, self.batch.shard)?);
            rows.push(row);
        }
        self.insert("ledger_claims", &format!("campaign, shard, {COLUMNS}"), rows).await
    }

    /// Many rows in one statement that all three databases take: a list of cases for each column.
    async fn update_claims(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        let mut by_turn: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
        for entry in entries {
            by_turn.entry(entry.unit().turn).or_default().push(entry);
        }
        for (turn, entries) in by_turn {
            for chunk in entries.chunks(UPDATED_MAX) {
                let updated = self.run(update(&self.batch.campaign, turn, chunk)?).await?;
                if updated != chunk.len() as u64 {
                    return Err(Fault::Again("rows of the ledger vanished while they were written".to_owned()));
                }
            }
        }
        Ok(())
    }

    async fn insert_entries(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        let columns = "campaign, shard, incarnation, ver, unit, turn, cents, kind, user_key, claim_no, at_ms";
        let mut rows = Vec::with_capacity(entries.len());
        for entry in entries {
            let (campaign, shard) = self.shard();
            let (incarnation, ver, unit) = name(entry)?;
            rows.push(vec![
                campaign,
                shard,
                incarnation.into(),
                ver.into(),
                unit.into(),
                entry.unit().turn.into(),
                entry.unit().cents.into(),
                entry.kind.as_str().into(),
                entry.claim().map(|(user, _)| rows::hex(user)).into(),
                entry.claim().map(|(_, number)| i64::from(number)).into(),
                entry.at_ms.into(),
            ]);
        }
        self.insert("ledger_entries", columns, rows).await
    }

    async fn insert(&mut self, table: &str, columns: &str, rows: Vec<Vec<Value>>) -> Result<(), Fault> {
        for statement in Statement::inserts(table, columns, rows) {
            self.run(statement).await?;
        }
        Ok(())
    }

    /// Once, however often it is told.
    async fn keep_conflict(&mut self, conflict: &Conflict) -> Result<(), Fault> {
        let Conflict { entry, standing } = conflict;
        let (campaign, shard) = self.shard();
        let (incarnation, ver, unit) = name(entry)?;
        let (stands_incarnation, stands_ver, stands_unit) = name(standing)?;
        let user_of = |entry: &Entry| entry.claim().map(|(user, _)| rows::hex(user));
        let number_of = |entry: &Entry| entry.claim().map(|(_, number)| i64::from(number));
        let key: Vec<Value> = vec![
            campaign,
            shard,
            incarnation.into(),
            ver.into(),
            unit.into(),
            entry.unit().turn.into(),
            entry.kind.as_str().into(),
            user_of(entry).unwrap_or_default().into(),
        ];
        let known = "SELECT ver FROM ledger_conflicts WHERE campaign = ? AND shard = ? AND incarnation = ? AND ver = ? \
                     AND unit = ? AND turn = ? AND kind = ? AND user_key = ?";
        if !Statement::new(known, key.clone()).rows(self.on, self.dialect).await?.is_empty() {
            return Ok(());
        }
        let mut row = key;
        row.extend([
            entry.user_raw().map(str::to_owned).into(),
            number_of(entry).into(),
            entry.unit().cents.into(),
            rows::claim_id(entry, self.batch.shard)?.into(),
            entry.at_ms.into(),
            user_of(standing).into(),
            number_of(standing).into(),
            stands_unit.into(),
            standing.unit().turn.into(),
            rows::state(standing).into(),
            stands_incarnation.into(),
            stands_ver.into(),
        ]);
        let columns = "campaign, shard, incarnation, ver, unit, turn, kind, user_key, user_name, claim_no, cents, \
                       claim_id, at_ms, stands_user_key, stands_claim_no, stands_unit, stands_turn, stands_state, \
                       stands_incarnation, stands_ver";
        self.run(Statement::insert("ledger_conflicts", columns, row)).await?;
        Ok(())
    }

    fn shard(&self) -> (Value, Value) {
        (self.batch.campaign.as_str().into(), self.batch.shard.into())
    }

    async fn run(&mut self, statement: Statement) -> Result<u64, Fault> {
        statement.run(self.on, self.dialect).await
    }
}

fn name(entry: &Entry) -> Result<Name, Fault> {
    Ok((signed(entry.incarnation)?, signed(entry.ver)?, signed(entry.unit().number)?))
}

/// Each number once.
fn each(numbers: impl IntoIterator<Item = i64>) -> impl Iterator<Item = Value> {
    let numbers: BTreeSet<i64> = numbers.into_iter().collect();
    numbers.into_iter().map(Value::from)
}

/// One UPDATE of rows that have this turn. What a claim is (whose, which unit, its id) never changes; a name that is
/// there stays, so that one put in its place meanwhile is not undone.
fn update(campaign: &CampaignId, turn: u32, entries: &[&Entry]) -> Result<Statement, Fault> {
    let mut entries = entries.to_vec();
    fill_up(&mut entries);
    let units = entries.iter().map(|entry| signed(entry.unit().number)).collect::<Result<Vec<i64>, Fault>>()?;
    let of_each = |value: &dyn Fn(&Entry) -> Result<Value, Fault>| -> Result<Vec<Value>, Fault> {
        let mut values = Vec::with_capacity(2 * entries.len());
        for (entry, unit) in entries.iter().zip(&units) {
            values.extend([Value::from(*unit), value(entry)?]);
        }
        Ok(values)
    };
    let cases = format!("CASE unit {}END", "WHEN ? THEN ? ".repeat(entries.len()));
    let mut update = Statement::new("UPDATE ledger_claims SET ", []);
    update.bind(&format!("state = {cases}"), of_each(&|entry| Ok(rows::state(entry).into()))?);
    update.bind(&format!(", kind = {cases}"), of_each(&|entry| Ok(entry.kind.as_str().into()))?);
    update.bind(&format!(", idem = {cases}"), of_each(&|entry| Ok(rows::idem(entry).into()))?);
    update.bind(&format!(", claimed_ms = {cases}"), of_each(&|entry| Ok(rows::claimed_ms(entry).into()))?);
    update.bind(&format!(", deadline_ms = {cases}"), of_each(&|entry| Ok(rows::deadline_ms(entry).into()))?);
    update.bind(&format!(", changed_ms = {cases}"), of_each(&|entry| Ok(entry.at_ms.into()))?);
    update.bind(&format!(", incarnation = {cases}"), of_each(&|entry| Ok(signed(entry.incarnation)?.into()))?);
    update.bind(&format!(", ver = {cases}"), of_each(&|entry| Ok(signed(entry.ver)?.into()))?);
    let name = of_each(&|entry| Ok(entry.user_raw().map(str::to_owned).into()))?;
    update.bind(&format!(", user_name = COALESCE(user_name, {cases})"), name);
    update.bind(" WHERE campaign = ? AND turn = ? AND unit IN ", [campaign.as_str().into(), turn.into()]);
    update.keys(units.into_iter().map(Value::from));
    Ok(update)
}
