//! The port of outboxes on Redis: a stream for each pool, read by the consumer group `ledger` (lua/outbox_prelude.lua).
//!
//! What is read goes out with a WAIT behind it, like a pool's steps: a failover would take back what only the old primary
//! knew, and another user would get the unit that the ledger has under the first one's name (docs/FAULTS.md A5).
//! Acknowledgements do not wait: one that is lost costs a second reading.

use std::sync::Arc;

use super::claimants::PUBLISHED_MS;
use super::confirm::{Confirm, Confirmed, touch};
use super::keys::{self, Key, LOG, STATE};
use super::pool_answers::{number, text};
use super::reply::{Command, Reply};
use super::router::{Call, Router};
use super::scripts::{self, Script};
use super::settings::Role;
use crate::domain::ledger::entry::{Entry, NotAnEntry};
use crate::domain::quota::claim::UserKey;
use crate::store::StoreFuture;
use crate::store::error::StoreError;
use crate::store::outbox::{Outbox, OutboxBatch, OutboxLag};
use crate::store::pools::PoolAddress;

/// Entries that one script reads or acknowledges: some milliseconds of the server.
const MOST: usize = 1000;
/// Entries in which one script looks for a name.
const PIECE: usize = 500;
/// How long acknowledged entries stay: whoever follows the log of grants, from published claimants on, finds them all.
const KEPT_MS: u64 = PUBLISHED_MS;

pub struct RedisOutbox {
    router: Arc<Router>,
    confirm: Arc<Confirm>,
}

impl RedisOutbox {
    pub fn new(router: Arc<Router>, confirm: Arc<Confirm>) -> Self {
        Self { router, confirm }
    }

    async fn batch(&self, pool: &PoolAddress, limit: usize) -> Result<Option<OutboxBatch>, StoreError> {
        let keys = keys::pool(pool);
        let script = call(&scripts::OUTBOX_READ, &keys).number(limit.min(MOST)).number(KEPT_MS);
        let reply = self.confirmed(&keys[STATE], script).await?;
        if reply == Reply::Nil {
            return Ok(None);
        }
        let [incarnation, ver, behind, entries] = reply.into_array()?;
        Ok(Some(OutboxBatch {
            entries: entries.into_list()?.into_iter().map(entry).collect::<Result<_, _>>()?,
            behind: behind.unsigned()?,
            incarnation: incarnation.unsigned()?,
            ver: ver.unsigned()?,
        }))
    }

    async fn accept(&self, pool: &PoolAddress, entries: &[String]) -> Result<(), StoreError> {
        let log = &keys::pool(pool)[LOG];
        if let Some(foreign) = entries.iter().find(|id| instant(id).is_none()) {
            return Err(StoreError::Refused(format!("{foreign} is not the name of an entry")));
        }
        for some in entries.chunks(MOST) {
            let script = scripts::OUTBOX_ACKNOWLEDGE.call([log].into_iter()).number(KEPT_MS);
            let script = some.iter().fold(script, |script, id| script.arg(id.clone()));
            self.ask(log, script).await?;
        }
        Ok(())
    }

    async fn behind(&self, pool: &PoolAddress) -> Result<Option<OutboxLag>, StoreError> {
        let keys = keys::pool(pool);
        let reply = self.ask(&keys[STATE], call(&scripts::OUTBOX_LAG, &keys)).await?;
        if reply == Reply::Nil {
            return Ok(None);
        }
        let [entries, age_ms] = reply.into_array()?;
        Ok(Some(OutboxLag { entries: entries.unsigned()?, age_ms: age_ms.unsigned()? }))
    }

    /// Piece by piece, each whole by itself: whoever dies between two leaves no entry out, and the next one goes on. A
    /// piece that is sent twice counts less the second time.
    async fn replace(&self, pool: &PoolAddress, user: &str, alias: &str) -> Result<u64, StoreError> {
        // Copies would be found again, without end.
        if user == alias {
            return Ok(0);
        }
        let keys = keys::pool(pool);
        let (mut all, mut after) = (0, "0".to_owned());
        loop {
            let script = call(&scripts::OUTBOX_RENAME, &keys).arg(after).number(PIECE);
            let script = script.arg(user.to_owned()).arg(alias.to_owned());
            let [renamed, read, last] = self.confirmed(&keys[STATE], script).await?.into_array()?;
            all += renamed.unsigned()?;
            after = text(last)?;
            if read.unsigned()? < PIECE as u64 {
                return Ok(all);
            }
        }
    }

    async fn confirmed(&self, state: &Key, script: Command) -> Result<Reply, StoreError> {
        let touch = touch(state, "touch");
        self.confirm.run(Confirmed { role: Role::Confirm, slot: state.slot, script, touch, repeatable: true }).await
    }

    async fn ask(&self, key: &Key, script: Command) -> Result<Reply, StoreError> {
        let call = Call::new(key.slot, vec![script]).role(Role::Bulk);
        let [reply] = Reply::List(self.router.call(call).await?).into_array()?;
        Ok(reply)
    }
}

fn call(script: &'static Script, keys: &[Key; 7]) -> Command {
    script.call([&keys[STATE], &keys[LOG]].into_iter())
}

/// When an entry was added, by its id `milliseconds-number`.
fn instant(id: &str) -> Option<i64> {
    let (ms, order) = id.split_once('-')?;
    order.parse::<u64>().ok().and(ms.parse().ok())
}

/// Reads `{id, {field, value, …}}`.
fn entry(reply: Reply) -> Result<(String, Entry), StoreError> {
    let [id, fields] = reply.into_array()?;
    let id = text(id)?;
    let corrupt = |_: NotAnEntry| StoreError::Corrupt(format!("entry {id} of a pool's log is none of this version"));
    // Logs of pools that were made before incarnations were written down are of the first one.
    let (mut incarnation, mut ver, mut said) = (1, 0, None);
    let (mut kind, mut user, mut user_raw, mut record) = (String::new(), None, None, String::new());
    let mut items = fields.into_list()?.into_iter();
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        match text(name)?.as_str() {
            "i" => incarnation = value.unsigned()?,
            "v" => ver = value.unsigned()?,
            "k" => kind = text(value)?,
            "w" => user_raw = Some(text(value)?),
            "r" => record = text(value)?,
            "t" => said = Some(number(&text(value)?)?),
            "u" => {
                let key = value.into_bytes()?.unwrap_or_default();
                user = Some(UserKey(<[u8; 16]>::try_from(&key[..]).map_err(|_| corrupt(NotAnEntry))?));
            }
            _ => {}
        }
    }
    let at_ms = said.or(instant(&id)).ok_or(NotAnEntry).map_err(corrupt)?;
    let entry = Entry::read((incarnation, ver), &kind, at_ms, (user, user_raw), &record).map_err(corrupt)?;
    Ok((id, entry))
}

impl Outbox for RedisOutbox {
    fn read<'a>(&'a self, pool: &'a PoolAddress, limit: usize) -> StoreFuture<'a, Option<OutboxBatch>> {
        Box::pin(self.batch(pool, limit))
    }

    fn acknowledge<'a>(&'a self, pool: &'a PoolAddress, entries: &'a [String]) -> StoreFuture<'a, ()> {
        Box::pin(self.accept(pool, entries))
    }

    fn lag<'a>(&'a self, pool: &'a PoolAddress) -> StoreFuture<'a, Option<OutboxLag>> {
        Box::pin(self.behind(pool))
    }

    fn rename<'a>(&'a self, pool: &'a PoolAddress, user: &'a str, alias: &'a str) -> StoreFuture<'a, u64> {
        Box::pin(self.replace(pool, user, alias))
    }
}
