//! All units of a pool, read in pieces: for putting other pools right, also from a pool that serves nobody.

use std::collections::HashMap;

use futures_util::future::try_join3;

use super::keys::{self, COOLING, Key, RETIRED, STATE, STOCK};
use super::pool_answers::{number, parcel, status, text};
use super::reply::{Command, Reply};
use super::router::{Call, Router};
use super::settings::Role;
use crate::domain::quota::inventory::Inventory;
use crate::domain::quota::unit::Unit;
use crate::store::error::StoreError;
use crate::store::pools::PoolAddress;

/// Units of one piece: some hundred microseconds of the server.
const PIECE: usize = 1000;

/// What a pool has; None: its state is not there.
pub async fn inventory(router: &Router, pool: &PoolAddress) -> Result<Option<Inventory>, StoreError> {
    let keys = keys::pool(pool);
    let state = fields(ask(router, &keys[STATE], Command::new("HGETALL").arg(keys[STATE].text.clone())).await?)?;
    let Some(word) = state.get("status") else { return Ok(None) };
    let number_of = |name: &str| number::<u64>(state.get(name).map_or("0", String::as_str));
    let (mut out, mut came) = (Vec::new(), Vec::new());
    for (name, value) in &state {
        if let Some(home) = name.strip_prefix("o:") {
            out.push((number(home)?, parcel(value)?));
        } else if let Some(donor) = name.strip_prefix("i:") {
            came.push((number(donor)?, number(value.split('|').next().unwrap_or(""))?));
        }
    }
    out.sort_by_key(|(home, _)| *home);
    came.sort_unstable();
    let (stock, cooling, retired) = try_join3(
        units(router, &keys[STOCK], "LRANGE"),
        units(router, &keys[COOLING], "ZRANGE"),
        units(router, &keys[RETIRED], "LRANGE"),
    )
    .await?;
    Ok(Some(Inventory {
        status: status(word)?,
        fenced: number_of("fenced")? == 1,
        incarnation: number_of("incarnation")?,
        ver: number_of("ver")?,
        seen: number_of("seen")?,
        seq: number_of("seq")?,
        stock,
        cooling,
        retired,
        refunded: number_of("refunded")?,
        refunded_cents: number(state.get("refunded_cents").map_or("0", String::as_str))?,
        out,
        came,
    }))
}

async fn units(router: &Router, key: &Key, range: &'static str) -> Result<Vec<Unit>, StoreError> {
    let mut units = Vec::new();
    for start in (0..).step_by(PIECE) {
        let piece = Command::new(range).arg(key.text.clone()).number(start).number(start + PIECE - 1);
        let piece = ask(router, key, piece).await?.into_list()?;
        let is_last = piece.len() < PIECE;
        for unit in piece {
            let unit = text(unit)?;
            // Each has a placeholder.
            if unit != "_" {
                units.push(unit.parse().map_err(|_| StoreError::Corrupt(format!("not a unit: {unit}")))?);
            }
        }
        if is_last {
            break;
        }
    }
    Ok(units)
}

fn fields(reply: Reply) -> Result<HashMap<String, String>, StoreError> {
    let mut items = reply.into_list()?.into_iter();
    let mut fields = HashMap::new();
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        fields.insert(text(name)?, text(value)?);
    }
    Ok(fields)
}

async fn ask(router: &Router, key: &Key, command: Command) -> Result<Reply, StoreError> {
    let [reply] = Reply::List(router.call(Call::new(key.slot, vec![command]).role(Role::Bulk)).await?).into_array()?;
    Ok(reply)
}
