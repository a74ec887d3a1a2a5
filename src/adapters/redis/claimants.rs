//! Who has claimed in a pool: all of them, or those since a mark.
//!
//! ```text
//! a mark that the log still reaches back to   the grants of the log behind it
//! else published claimants                    their users, and the grants behind their mark
//! else, for one caller by lease               all claims, in pieces; published; and the grants behind
//! ```
//!
//! Where the log ends is read before the first piece, so that whoever is granted meanwhile is in one or the other, or in
//! both. A mark holds how many entries the log had ever had: if more were added since than can be read, some were
//! trimmed, or removed for a user who is forgotten, and the claims are read anew (docs/FAULTS.md F4). It holds too for one incarnation and one server only: a
//! promoted replica may lack the end of the log, and its clock, of which entries' ids are made, may be behind.

use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;

use super::chance::{jitter, random};
use super::keys::{self, CLAIMS, Key, LOG, STATE};
use super::pool_answers::record;
use super::reply::{Command, Reply, info_field};
use super::router::{Call, Router};
use super::scripts;
use super::settings::Role;
use crate::domain::quota::claim::UserKey;
use crate::store::error::StoreError;
use crate::store::pools::{Claimants, ClaimantsMark, ClaimsPage, PoolAddress};

/// Entries of the log that one script reads: about a millisecond of the server.
const ENTRIES: usize = 500;
/// Claims of one piece: some hundred microseconds of the server.
const PIECE: usize = 500;
/// How long claimants stay published. The log is not trimmed of what is younger.
pub const PUBLISHED_MS: u64 = 60_000;
/// For building them: a million claims take about a second.
const LEASE_MS: u64 = 5_000;
/// Between two looks whether another caller has built them.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A place in a pool's log.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    incarnation: u64,
    run: String,
    /// Of the last entry that was read.
    id: String,
    /// Entries ever added, up to that one.
    added: u64,
}

impl Place {
    fn mark(&self) -> ClaimantsMark {
        ClaimantsMark { incarnation: self.incarnation, place: format!("{}/{}/{}", self.run, self.id, self.added) }
    }

    fn read(incarnation: u64, place: &str) -> Option<Self> {
        let mut parts = place.split('/');
        let (run, id) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let added = parts.next()?.parse().ok()?;
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        (parts.next().is_none() && is_id).then_some(Self { incarnation, run, id, added })
    }
}

/// Who has claimed, since a mark if that still holds.
pub async fn claimants(
    router: &Router,
    pool: &PoolAddress,
    since: Option<&ClaimantsMark>,
) -> Result<Claimants, StoreError> {
    let of = OfPool { router, keys: keys::pool(pool), published: keys::pool_claimants(pool) };
    if let Some(place) = since.and_then(|mark| Place::read(mark.incarnation, &mark.place))
        && let Some((users, place)) = of.granted_since(place).await?
    {
        return Ok(Claimants { users, all: false, mark: place.mark() });
    }
    let lease = keys::pool_claimants_lease(pool);
    let end = Instant::now() + router.deadline;
    loop {
        if let Some((mut users, place)) = of.published().await?
            && let Some((more, place)) = of.granted_since(place).await?
        {
            users.extend(more);
            return Ok(Claimants { users, all: true, mark: place.mark() });
        }
        let ask = Command::new("SET").arg(lease.text.clone()).number(random());
        if router.ask(lease.slot, ask.arg("NX").arg("PX").number(LEASE_MS)).await? != Reply::Nil {
            let built = of.build().await;
            // Another's lease, if this one ran out: then two build, which does no harm.
            router.ask(lease.slot, Command::new("DEL").arg(lease.text.clone())).await?;
            built?;
        } else if Instant::now() >= end {
            return Err(StoreError::Unavailable("another process is still reading the claimants".into()));
        } else {
            tokio::time::sleep(LOOK_AGAIN + jitter(LOOK_AGAIN)).await;
        }
    }
}

/// One page of a pool's claims.
pub async fn claims(
    router: &Router,
    pool: &PoolAddress,
    cursor: Option<&str>,
    limit: usize,
) -> Result<ClaimsPage, StoreError> {
    let claims = &keys::pool(pool)[CLAIMS];
    let (run, at) = match cursor {
        None => ("", "0"),
        Some(cursor) => {
            let parts = cursor.split_once(':').filter(|(_, at)| at.parse::<u64>().is_ok());
            parts.ok_or_else(|| StoreError::Refused("this cursor is not one of ours".into()))?
        }
    };
    let mut piece = piece(router, claims, at, limit).await?;
    if cursor.is_some() && piece.run != run {
        // A cursor means nothing to another server, which has its own order: from the start.
        piece = self::piece(router, claims, "0", limit).await?;
    }
    let claims = piece.claims.into_iter().map(|(user, text)| {
        let text = std::str::from_utf8(&text).map_err(|_| StoreError::Corrupt("a claim that is no text".into()))?;
        Ok((user, record(text)?))
    });
    let next = (piece.next != "0").then(|| format!("{}:{}", piece.run, piece.next));
    Ok(ClaimsPage { claims: claims.collect::<Result<_, StoreError>>()?, next })
}

/// Part of a claims hash, as HSCAN gives it.
struct Piece {
    /// The server that gave it.
    run: String,
    next: String,
    claims: Vec<(UserKey, Bytes)>,
}

async fn piece(router: &Router, claims: &Key, cursor: &str, count: usize) -> Result<Piece, StoreError> {
    let scan = Command::new("HSCAN").arg(claims.text.clone()).arg(cursor.to_owned()).arg("COUNT").number(count.max(1));
    let call = Call::new(claims.slot, vec![scan, Command::new("INFO").arg("server")]).role(Role::Bulk);
    let [scanned, server] = Reply::List(router.call(call).await?).into_array()?;
    let run = server.into_text().and_then(|text| info_field(&text, "run_id").map(str::to_owned));
    let [next, entries] = scanned.into_array()?;
    let (Some(run), Some(next)) = (run, next.into_text()) else {
        return Err(StoreError::Corrupt("a server without a name, or a scan without a cursor".into()));
    };
    let mut entries = entries.into_list()?.into_iter();
    let mut claims = Vec::new();
    while let (Some(user), Some(record)) = (entries.next(), entries.next()) {
        let (user, record) = (user.into_bytes()?.unwrap_or_default(), record.into_bytes()?.unwrap_or_default());
        // Anything shorter is the placeholder.
        if let Ok(user) = <[u8; 16]>::try_from(&user[..]) {
            claims.push((UserKey(user), record));
        }
    }
    Ok(Piece { run, next, claims })
}

struct OfPool<'a> {
    router: &'a Router,
    keys: [Key; 7],
    published: Key,
}

/// Where the log ended, and what was read of it.
struct Read {
    end: Place,
    count: u64,
    last: String,
    users: Vec<u64>,
}

impl OfPool<'_> {
    /// Reads entries of the log behind an id.
    async fn log(&self, after: &str, count: usize) -> Result<Read, StoreError> {
        let keys = [&self.keys[STATE], &self.keys[LOG]];
        let script = scripts::POOL_GRANTS.call(keys.into_iter()).arg(after.to_owned()).number(count);
        let call = Call::new(self.keys[STATE].slot, vec![script]).role(Role::Bulk);
        let [reply] = Reply::List(self.router.call(call).await?).into_array()?;
        if reply == Reply::Nil {
            return Err(StoreError::Refused("there is no such pool".into()));
        }
        let [incarnation, run, added, id, count, last, users] = reply.into_array()?;
        let text = |reply: Reply| reply.into_text().ok_or_else(|| StoreError::Corrupt("a log without an id".into()));
        let end =
            Place { incarnation: incarnation.unsigned()?, run: text(run)?, id: text(id)?, added: added.unsigned()? };
        let users = shorts(&users.into_bytes()?.unwrap_or_default());
        Ok(Read { end, count: count.unsigned()?, last: text(last)?, users })
    }

    /// Who was granted a unit behind a place, and the new place; None: that cannot be said any more.
    async fn granted_since(&self, mut place: Place) -> Result<Option<(Vec<u64>, Place)>, StoreError> {
        let mut users = Vec::new();
        loop {
            let read = self.log(&place.id, ENTRIES).await?;
            if (read.end.incarnation, &read.end.run) != (place.incarnation, &place.run) {
                return Ok(None);
            }
            users.extend(read.users);
            (place.id, place.added) = (read.last, place.added + read.count);
            if read.count < ENTRIES as u64 {
                return Ok((place.added == read.end.added).then_some((users, place)));
            }
        }
    }

    async fn published(&self) -> Result<Option<(Vec<u64>, Place)>, StoreError> {
        let get = Command::new("GET").arg(self.published.text.clone());
        let call = Call::new(self.published.slot, vec![get]).role(Role::Bulk);
        let [reply] = Reply::List(self.router.call(call).await?).into_array()?;
        let Some(value) = reply.into_bytes()? else { return Ok(None) };
        let read = || {
            let end = value.iter().position(|byte| *byte == b'\n')?;
            let (incarnation, place) = std::str::from_utf8(&value[..end]).ok()?.split_once('/')?;
            Some((shorts(&value[end + 1..]), Place::read(incarnation.parse().ok()?, place)?))
        };
        read()
            .map(Some)
            .ok_or_else(|| StoreError::Corrupt("published claimants are not as this version knows them".into()))
    }

    /// Reads all claims and publishes who made them.
    async fn build(&self) -> Result<(), StoreError> {
        let mut users: Vec<u8> = Vec::new();
        let end = self.log("0", 0).await?.end;
        let (mut cursor, mut run) = ("0".to_owned(), None);
        loop {
            let piece = piece(self.router, &self.keys[CLAIMS], &cursor, PIECE).await?;
            users.extend(piece.claims.iter().flat_map(|(user, _)| user.short().to_le_bytes()));
            if *run.get_or_insert_with(|| piece.run.clone()) != piece.run {
                return Err(StoreError::Unavailable("the pool moved while its claims were read".into()));
            }
            cursor = piece.next;
            if cursor == "0" {
                break;
            }
        }
        let mut value = format!("{}/{}\n", end.incarnation, end.mark().place).into_bytes();
        value.extend(users);
        let set = Command::new("SET").arg(self.published.text.clone()).arg(value);
        let call = Call::new(self.published.slot, vec![set.arg("PX").number(PUBLISHED_MS)]).role(Role::Bulk);
        self.router.call(call).await.map(drop)
    }
}

fn shorts(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|short| u64::from_le_bytes(short.try_into().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let place = Place { incarnation: 3, run: "abc".into(), id: "17-2".into(), added: 9 };
        let mark = place.mark();
        assert_eq!(Place::read(mark.incarnation, &mark.place), Some(place));
        for other in ["", "abc/17-2", "abc/17-2/x", "abc//9", "abc/17-2/9/1", "7"] {
            assert_eq!(Place::read(3, other), None, "{other}");
        }
    }
}
