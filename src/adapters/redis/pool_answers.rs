//! What a pool's script replies, read as the step's answer. Anything else is `Corrupt`: a script of another version, or
//! foreign bytes.

use std::str::FromStr;
use std::vec::IntoIter;

use super::reply::Reply;
use crate::domain::quota::claim::{ClaimAnswer, ClaimRecord};
use crate::domain::quota::marks::{Floor, OpMark, Parcel};
use crate::domain::quota::step::{Answer, ConfirmAnswer, CreditAnswer, DebitAnswer, ReleaseAnswer, Step, Stepped};
use crate::domain::quota::terms::{PoolReading, PoolStatus};
use crate::domain::quota::unit::split;
use crate::store::error::StoreError;

/// Reads `{how, now_us, incarnation, version, …}`.
pub fn stepped(step: &Step, reply: Reply) -> Result<Stepped, StoreError> {
    let mut items = Items::of(reply)?;
    let how = items.text()?;
    let now_us = items.next().number()?;
    let at = Floor { incarnation: items.unsigned()?, ver: items.unsigned()? };
    let answer = match how.as_str() {
        "absent" => Answer::Absent,
        "fenced" => Answer::Fenced,
        "admitting" => Answer::Admitting,
        "frozen" => Answer::Frozen,
        "ok" => answer(step, &mut items)?,
        _ => return Err(unexpected("a pool's answer")),
    };
    Ok(Stepped { now_us, at, answer })
}

/// A claim's record as it stands in a pool.
pub fn record(text: &str) -> Result<ClaimRecord, StoreError> {
    text.parse().map_err(|_| unexpected("a claim's record"))
}

fn answer(step: &Step, items: &mut Items) -> Result<Answer, StoreError> {
    Ok(match step {
        Step::Create { .. }
        | Step::Reschedule(_)
        | Step::Restock { .. }
        | Step::Ack { .. }
        | Step::Finish
        | Step::Mend(_) => Answer::Done(items.next().number()? == 1),
        Step::Retire { .. } => Answer::Retired(items.small()?),
        Step::Close { .. } => Answer::Left(items.unsigned()?),
        Step::Claim { .. } => Answer::Claims(claims(items.next())?),
        Step::Look { .. } => Answer::Record(items.optional_text()?.map(|text| record(&text)).transpose()?),
        Step::Confirm { .. } => Answer::Confirm(match items.text()?.as_str() {
            "confirmed" => ConfirmAnswer::Confirmed(items.record()?),
            "late" => ConfirmAnswer::Late(items.record()?),
            "unknown" => ConfirmAnswer::Unknown,
            _ => return Err(unexpected("what confirming came to")),
        }),
        Step::Release { .. } => Answer::Release(match items.text()?.as_str() {
            "released" => ReleaseAnswer::Released(items.record()?),
            "ended" => ReleaseAnswer::Ended(items.record()?),
            "confirmed" => ReleaseAnswer::Confirmed(items.record()?),
            "unknown" => ReleaseAnswer::Unknown,
            _ => return Err(unexpected("what releasing came to")),
        }),
        Step::Reap { .. } => Answer::Reaped(items.small()?),
        Step::Debit { .. } => Answer::Debit(match items.text()?.as_str() {
            "new" => DebitAnswer::New(parcel(&items.text()?)?),
            "open" => DebitAnswer::Open(parcel(&items.text()?)?),
            "none" => DebitAnswer::None,
            "closing" => DebitAnswer::Closing,
            _ => return Err(unexpected("what debiting came to")),
        }),
        Step::Credit { .. } => {
            let how = match items.text()?.as_str() {
                "credited" => CreditAnswer::Credited,
                "refunded" => CreditAnswer::Refunded,
                "known" => CreditAnswer::Known,
                "conflict" => CreditAnswer::Conflict,
                _ => return Err(unexpected("what crediting came to")),
            };
            Answer::Credit(how, claims(items.next())?)
        }
        Step::Collect { .. } => Answer::Reading(Box::new(reading(items)?)),
    })
}

fn claims(reply: Reply) -> Result<Vec<ClaimAnswer>, StoreError> {
    reply.into_list()?.into_iter().map(|reply| claim(&text(reply)?)).collect()
}

/// A letter, and the record where there is one (`grant` in lua/pool_prelude.lua).
fn claim(text: &str) -> Result<ClaimAnswer, StoreError> {
    let (letter, rest) = text.split_at_checked(1).ok_or_else(|| unexpected("an answer to a wish"))?;
    Ok(match letter {
        "g" => ClaimAnswer::Granted(record(rest)?),
        "a" => ClaimAnswer::Already(record(rest)?),
        "e" => ClaimAnswer::Ended(record(rest)?),
        "v" => ClaimAnswer::Voided(record(rest)?),
        "d" => ClaimAnswer::Dry,
        "n" => ClaimAnswer::NotOpen,
        "p" => ClaimAnswer::Paused,
        "c" => ClaimAnswer::Closed,
        _ => return Err(unexpected("an answer to a wish")),
    })
}

fn reading(items: &mut Items) -> Result<PoolReading, StoreError> {
    Ok(PoolReading {
        status: status(&items.text()?)?,
        schedule_version: items.unsigned()?,
        run: items.text()?,
        sver: items.unsigned()?,
        avail: items.unsigned()?,
        cooling: items.unsigned()?,
        ready_ms: items.optional_time()?,
        held: items.unsigned()?,
        deadline_ms: items.optional_time()?,
        confirmed: items.unsigned()?,
        retired: items.unsigned()?,
        refunded: items.unsigned()?,
        taken_cents: items.next().number()?,
        refunded_cents: items.next().number()?,
        op: OpMark { operation: items.unsigned()?, chunk: items.unsigned()? },
        op_total: items.unsigned()?,
        out: by_shard(items.next(), |text| parcel(&text))?,
        came: by_shard(items.next(), |text| number(&text))?,
    })
}

pub fn status(word: &str) -> Result<PoolStatus, StoreError> {
    Ok(match word {
        "open" => PoolStatus::Open,
        "closing" => PoolStatus::Closing,
        "closed" => PoolStatus::Closed,
        _ => return Err(unexpected("a pool's status")),
    })
}

/// Reads `{shard, value, shard, value, …}`, in the order of shards.
fn by_shard<T>(reply: Reply, read: impl Fn(String) -> Result<T, StoreError>) -> Result<Vec<(u16, T)>, StoreError> {
    let mut items = Items::of(reply)?;
    let mut found = Vec::new();
    while let Some(shard) = items.0.next() {
        found.push((number(&text(shard)?)?, read(items.text()?)?));
    }
    found.sort_by_key(|(shard, _)| *shard);
    Ok(found)
}

/// Reads `seq|unit,unit`.
pub fn parcel(text: &str) -> Result<Parcel, StoreError> {
    let (seq, units) = text.split_once('|').ok_or_else(|| unexpected("a parcel"))?;
    Ok(Parcel { seq: number(seq)?, units: split(units).map_err(|_| unexpected("a parcel's units"))? })
}

pub fn number<T: FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| unexpected("a number"))
}

pub fn text(reply: Reply) -> Result<String, StoreError> {
    match reply {
        Reply::Bytes(bytes) => String::from_utf8(bytes.into()).map_err(|_| unexpected("text")),
        _ => Err(unexpected("text")),
    }
}

fn unexpected(what: &str) -> StoreError {
    StoreError::Corrupt(format!("a pool's script did not reply {what} as this version knows it"))
}

/// The rest of a list. What is missing is read as nothing.
struct Items(IntoIter<Reply>);

impl Items {
    fn of(reply: Reply) -> Result<Self, StoreError> {
        Ok(Self(reply.into_list()?.into_iter()))
    }

    fn next(&mut self) -> Reply {
        self.0.next().unwrap_or(Reply::Nil)
    }

    fn unsigned(&mut self) -> Result<u64, StoreError> {
        self.next().unsigned()
    }

    fn small(&mut self) -> Result<u32, StoreError> {
        u32::try_from(self.unsigned()?).map_err(|_| unexpected("a number of units"))
    }

    /// -1: none.
    fn optional_time(&mut self) -> Result<Option<i64>, StoreError> {
        Ok(Some(self.next().number()?).filter(|time| *time != -1))
    }

    fn text(&mut self) -> Result<String, StoreError> {
        text(self.next())
    }

    fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next() {
            Reply::Nil => Ok(None),
            reply => text(reply).map(Some),
        }
    }

    fn record(&mut self) -> Result<ClaimRecord, StoreError> {
        record(&self.text()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Reply {
        Reply::List(words.iter().map(|word| Reply::Bytes((*word).to_owned().into())).collect())
    }

    #[test]
    fn foreign_replies_are_corrupt() {
        let finished = stepped(&Step::Finish, words(&["ok", "1700000000000000", "1", "2", "1"])).unwrap();
        assert_eq!(finished.answer, Answer::Done(true));
        assert_eq!((finished.now_us, finished.at), (1_700_000_000_000_000, Floor { incarnation: 1, ver: 2 }));
        let foreign: [&[&str]; 5] =
            [&[], &["ok", "1", "1", "1"], &["good", "1", "1", "1"], &["ok", "1", "-1", "1", "1"], &["ok", "x"]];
        for words_of_it in foreign {
            let read = stepped(&Step::Finish, words(words_of_it));
            assert!(matches!(read, Err(StoreError::Corrupt(_))), "{words_of_it:?}: {read:?}");
        }
        assert!(claim("x").is_err() && claim("").is_err() && claim("g17").is_err() && claim("é").is_err());
        assert_eq!(claim("d"), Ok(ClaimAnswer::Dry));
    }
}
