//! Campaigns, packets, and questions about both and about claims.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::dialect::Dialect;
use super::error::Fault;
use super::rows::{self, COLUMNS, unsigned};
use super::statement::{ROWS_MAX, Statement, Value, signed};
use crate::domain::id::CampaignId;
use crate::domain::quota::claim::UserKey;
use crate::store::ledger::{LedgerCampaign, Progress, RowsPage};

const CAMPAIGN_COLUMNS: &str =
    "version, admission, phase, quota, total_cents, hold_s, opens_ms, closes_ms, created_ms, fingerprint, document";

/// Questions and small changes, on one connection.
pub(super) struct Desk<'a> {
    pub(super) on: &'a mut AnyConnection,
    pub(super) dialect: Dialect,
}

impl Desk<'_> {
    pub(super) async fn enter(&mut self, entered: &LedgerCampaign) -> Result<(), Fault> {
        let (name, version) = (Value::from(entered.campaign.as_str()), signed(entered.version)?);
        let standing = Statement::new("SELECT version FROM ledger_campaigns WHERE campaign = ?", [name.clone()]);
        let standing = self.rows(standing).await?;
        let statement = match standing.first() {
            None => {
                let mut row = vec![name];
                row.extend(campaign_values(entered)?);
                Statement::insert("ledger_campaigns", &format!("campaign, {CAMPAIGN_COLUMNS}"), row)
            }
            Some(row) if row.try_get::<i64, _>(0)? < version => {
                let columns = CAMPAIGN_COLUMNS.replace(", ", " = ?, ");
                // Another process may have written a newer one since.
                let text = format!("UPDATE ledger_campaigns SET {columns} = ? WHERE campaign = ? AND version < ?");
                let mut update = Statement::new(&text, campaign_values(entered)?);
                update.bind("", [name, version.into()]);
                update
            }
            Some(_) => return Ok(()),
        };
        statement.run(self.on, self.dialect).await?;
        Ok(())
    }

    pub(super) async fn add_packets(&mut self, campaign: &CampaignId, first: u64, cents: &[i64]) -> Result<(), Fault> {
        let mut first = signed(first)?;
        for chunk in cents.chunks(ROWS_MAX) {
            let next = first + chunk.len() as i64;
            let there = Statement::new(
                "SELECT unit FROM ledger_packets WHERE campaign = ? AND unit >= ? AND unit < ?",
                [campaign.as_str().into(), first.into(), next.into()],
            );
            let there = self.rows(there).await?;
            let there = there.iter().map(|row| row.try_get(0)).collect::<Result<BTreeSet<i64>, sqlx::Error>>()?;
            let rows: Vec<Vec<Value>> = (first..next)
                .zip(chunk)
                .filter(|(unit, _)| !there.contains(unit))
                .map(|(unit, cents)| vec![campaign.as_str().into(), unit.into(), (*cents).into()])
                .collect();
            for insert in Statement::inserts("ledger_packets", "campaign, unit, cents", rows) {
                insert.run(self.on, self.dialect).await?;
            }
            first = next;
        }
        Ok(())
    }

    pub(super) async fn campaign(&mut self, campaign: &CampaignId) -> Result<Option<LedgerCampaign>, Fault> {
        let text = format!("SELECT {CAMPAIGN_COLUMNS} FROM ledger_campaigns WHERE campaign = ?");
        let rows = self.rows(Statement::new(&text, [campaign.as_str().into()])).await?;
        rows.first().map(|row| read_campaign(campaign, row)).transpose()
    }

    /// Ends before the first number that is missing: after it, the place would no longer tell the number.
    pub(super) async fn packets(&mut self, campaign: &CampaignId, first: u64, limit: usize) -> Result<Vec<i64>, Fault> {
        let text = "SELECT unit, cents FROM ledger_packets WHERE campaign = ? AND unit >= ? ORDER BY unit LIMIT ?";
        let first = signed(first)?;
        let rows = self.rows(Statement::new(text, [campaign.as_str().into(), first.into(), limit_of(limit)])).await?;
        let mut cents = Vec::with_capacity(rows.len());
        for (expected, row) in (first..).zip(&rows) {
            if row.try_get::<i64, _>(0)? != expected {
                break;
            }
            cents.push(row.try_get(1)?);
        }
        Ok(cents)
    }

    pub(super) async fn progress(&mut self, campaign: &CampaignId) -> Result<Vec<(u16, Progress)>, Fault> {
        let text = "SELECT shard, incarnation, ver, behind, at_ms FROM ledger_drains WHERE campaign = ? ORDER BY shard";
        let rows = self.rows(Statement::new(text, [campaign.as_str().into()])).await?;
        let read = |row: &AnyRow| {
            let shard = unsigned(row, 0)?;
            let shard = u16::try_from(shard).map_err(|_| Fault::Corrupt(format!("{shard} is no shard")))?;
            let (incarnation, ver, behind) = (unsigned(row, 1)?, unsigned(row, 2)?, unsigned(row, 3)?);
            Ok((shard, Progress { incarnation, ver, behind, at_ms: row.try_get(4)? }))
        };
        rows.iter().map(read).collect()
    }

    /// The cursor is the last row's unit and turn, which never change.
    pub(super) async fn page(
        &mut self,
        campaign: &CampaignId,
        shard: u16,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<RowsPage, Fault> {
        let (unit, turn) = cursor.map_or(Ok((-1, -1)), read_cursor)?;
        let text = format!(
            "SELECT {COLUMNS} FROM ledger_claims WHERE campaign = ? AND shard = ? AND unit >= ? \
             AND (unit > ? OR turn > ?) ORDER BY unit, turn LIMIT ?"
        );
        let limit = limit.max(1);
        let values = [campaign.as_str().into(), shard.into(), unit.into(), unit.into(), turn.into(), limit_of(limit)];
        let found = self.rows(Statement::new(&text, values)).await?;
        let rows = found.iter().map(rows::read).collect::<Result<Vec<_>, Fault>>()?;
        let full = rows.len() == limit;
        let next = rows.last().filter(|_| full).map(|last| format!("{}.{}", last.unit().number, last.unit().turn));
        Ok(RowsPage { rows, next })
    }

    pub(super) async fn conflicts(&mut self, campaign: &CampaignId) -> Result<u64, Fault> {
        let text = "SELECT COUNT(*) FROM ledger_conflicts WHERE campaign = ?";
        let rows = self.rows(Statement::new(text, [campaign.as_str().into()])).await?;
        rows.first().map_or(Ok(0), |row| unsigned(row, 0))
    }

    /// In the two tables that have names.
    pub(super) async fn rename(&mut self, user: UserKey, alias: &str) -> Result<u64, Fault> {
        let values = || [alias.into(), rows::hex(user).into()];
        let conflicts = "UPDATE ledger_conflicts SET user_name = ? WHERE user_key = ?";
        Statement::new(conflicts, values()).run(self.on, self.dialect).await?;
        let claims = "UPDATE ledger_claims SET user_name = ? WHERE user_key = ?";
        Statement::new(claims, values()).run(self.on, self.dialect).await
    }

    async fn rows(&mut self, statement: Statement) -> Result<Vec<AnyRow>, Fault> {
        statement.rows(self.on, self.dialect).await
    }
}

fn limit_of(limit: usize) -> Value {
    i64::try_from(limit).unwrap_or(i64::MAX).into()
}

fn read_cursor(text: &str) -> Result<(i64, i64), Fault> {
    let parts = text.split_once('.').and_then(|(unit, turn)| Some((unit.parse().ok()?, turn.parse().ok()?)));
    parts.ok_or_else(|| Fault::Refused(format!("{text:?} is no place in the ledger's rows")))
}

/// The values of `CAMPAIGN_COLUMNS`.
fn campaign_values(campaign: &LedgerCampaign) -> Result<Vec<Value>, Fault> {
    Ok(vec![
        signed(campaign.version)?.into(),
        campaign.admission.as_str().into(),
        campaign.phase.as_str().into(),
        signed(campaign.quota)?.into(),
        campaign.total_cents.into(),
        signed(campaign.hold_s)?.into(),
        campaign.opens_at.as_millisecond().into(),
        campaign.closes_at.map(Timestamp::as_millisecond).into(),
        campaign.created_at.as_millisecond().into(),
        campaign.fingerprint.as_str().into(),
        campaign.document.as_str().into(),
    ])
}

fn read_campaign(campaign: &CampaignId, row: &AnyRow) -> Result<LedgerCampaign, Fault> {
    let time = |ms: i64| {
        Timestamp::from_millisecond(ms).map_err(|_| Fault::Corrupt(format!("campaign {campaign:?}: {ms} is no time")))
    };
    Ok(LedgerCampaign {
        campaign: campaign.clone(),
        version: unsigned(row, 0)?,
        admission: row.try_get(1)?,
        phase: row.try_get(2)?,
        quota: unsigned(row, 3)?,
        total_cents: row.try_get(4)?,
        hold_s: unsigned(row, 5)?,
        opens_at: time(row.try_get(6)?)?,
        closes_at: row.try_get::<Option<i64>, _>(7)?.map(time).transpose()?,
        created_at: time(row.try_get(8)?)?,
        fingerprint: row.try_get(9)?,
        document: row.try_get(10)?,
    })
}
