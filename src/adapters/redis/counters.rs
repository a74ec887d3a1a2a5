//! The port of counting on Redis.
//!
//! Every call here is safe to repeat, so the router repeats it on doubt. A visit's write is two commands: PFADD and
//! EXPIREAT … NX. The third, EXPIREAT … GT, is needed only where a retention was raised: NX does nothing on a key that
//! has an expiry, GT nothing on one that has none. This process sends it with its first write of each (key, expiry);
//! a later write of the same finds either the key with that expiry or a later one (GT of some process put it there, and
//! none lowers it), or a key made anew after a loss, for which NX is enough. An expiry that is over is sent without a
//! condition: the sketch goes at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;

use super::chance::random;
use super::keys::{self, Key};
use super::reply::{Command, NodeError, Reply};
use super::router::{Call, Router};
use super::scripts;
use super::settings::Role;
use crate::domain::counter::{Counter, SketchAddress};
use crate::domain::element::Element;
use crate::domain::ring::{Layout, Shards};
use crate::domain::sketch::wire;
use crate::store::StoreFuture;
use crate::store::counters::{AnswerKey, Counters, Lease, Published, PublishedView, StoreFutureOf};
use crate::store::error::StoreError;

/// How long a published answer is kept without a newer one.
const PUBLISHED_MS: u64 = 60_000;
/// What stands in a marker key: the counter's sketches count.
const SHARDED: &[u8] = b"sharded";
/// Slots that a union tries: one may be on the move, another's node down.
const UNION_TRIES: u64 = 3;
/// Entries of `Raised`; at a hundred bytes each some megabytes. When it is full it is emptied, which costs each key one
/// more EXPIREAT.
const RAISED_MAX: usize = 65_536;

pub struct RedisCounters {
    router: Arc<Router>,
    changes: watch::Receiver<u64>,
    raised: Mutex<Raised>,
}

/// The (key, expiry) pairs that this process has sent EXPIREAT … GT for.
#[derive(Default)]
struct Raised {
    done: HashSet<(Bytes, i64)>,
}

impl RedisCounters {
    pub fn new(router: Arc<Router>, changes: watch::Receiver<u64>) -> Self {
        Self { router, changes, raised: Mutex::default() }
    }

    /// True if EXPIREAT … GT was sent for this key and expiry.
    fn is_raised(&self, key: &Key, at_s: i64) -> bool {
        self.raised().done.contains(&(key.text.clone(), at_s))
    }

    fn note_raised(&self, key: &Key, at_s: i64) {
        let mut raised = self.raised();
        if raised.done.len() >= RAISED_MAX {
            raised.done.clear();
        }
        raised.done.insert((key.text.clone(), at_s));
    }

    fn raised(&self) -> MutexGuard<'_, Raised> {
        // Whatever a panic left behind, the worst is an EXPIREAT that is sent once more.
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn add_elements(
        &self,
        key: Key,
        elements: &[Element],
        expires_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let add = Command::new("PFADD").arg(key.text.clone());
        let add = elements.iter().fold(add, |add, element| add.arg(Bytes::copy_from_slice(element.as_bytes())));
        let mut commands = vec![add];
        let Some(expires_at) = expires_at else {
            return self.router.call(Call::new(key.slot, commands)).await.map(drop);
        };
        let at_s = seconds(expires_at);
        commands.push(expire(&key, at_s, "NX"));
        if self.is_raised(&key, at_s) {
            return self.router.call(Call::new(key.slot, commands)).await.map(drop);
        }
        commands.push(expire(&key, at_s, "GT"));
        self.router.call(Call::new(key.slot, commands)).await?;
        self.note_raised(&key, at_s);
        Ok(())
    }

    async fn union_of(&self, blobs: Vec<Bytes>) -> Result<u64, StoreError> {
        if blobs.is_empty() {
            return Ok(0);
        }
        blobs.iter().try_for_each(well_formed)?;
        let mut failed = StoreError::Unavailable("no try".into());
        for _ in 0..UNION_TRIES {
            let keys = keys::temporary(random(), random(), blobs.len());
            let command = blobs.iter().cloned().fold(scripts::COUNT_MERGE.call(keys.iter()), Command::arg);
            let mut call = Call::new(keys[0].slot, vec![command]).role(Role::Bulk);
            call.patient = false;
            match self.router.call(call).await {
                Ok(replies) => {
                    let users = replies.first().unwrap_or(&Reply::Nil).number()?;
                    return u64::try_from(users).map_err(|_| {
                        StoreError::Corrupt(format!("a sketch whose count is {users}: its registers are poisoned"))
                    });
                }
                Err(error @ StoreError::Unavailable(_)) => failed = error,
                Err(error) => return Err(error),
            }
        }
        Err(failed)
    }

    async fn note(
        &self,
        counter: &Counter,
        shards: Shards,
        expires_at: Option<Timestamp>,
    ) -> Result<Layout, StoreError> {
        let (marker, layout) = (keys::marker(counter), keys::layout(counter));
        let at_s = expires_at.map(seconds);
        let mut commands = vec![
            Command::new("SET").arg(marker.text.clone()).arg(SHARDED).arg("NX"),
            Command::new("GET").arg(marker.text.clone()),
            scripts::LAYOUT_NOTE
                .call([&layout].into_iter())
                .number(shards.count())
                .arg(at_s.map_or(String::new(), |at_s| at_s.to_string())),
        ];
        if let Some(at_s) = at_s {
            commands.push(expire(&marker, at_s, "NX"));
            commands.push(expire(&marker, at_s, "GT"));
        }
        let mut results = self.router.call_each(Call::new(layout.slot, commands)).await?;
        let note = results.swap_remove(2)?;
        match results.swap_remove(1) {
            Ok(Reply::Bytes(text)) if text == SHARDED => {}
            // SET NX left it alone, and GET refuses it: a set, as later versions keep small events.
            Err(NodeError::WrongType(_)) => {
                return Err(StoreError::Refused("the counter is kept as a small set, by a newer version".into()));
            }
            Ok(_) => return Err(StoreError::Corrupt("a marker key holds something else".into())),
            Err(error) => return Err(error.into()),
        }
        let [coarsest, finest] = note.into_array()?;
        Ok(Layout { coarsest: read_shards(&coarsest)?, finest: read_shards(&finest)? })
    }

    async fn read_all(&self, addresses: &[SketchAddress]) -> Vec<Result<Option<Bytes>, StoreError>> {
        let commands = addresses.iter().map(keys::sketch).map(|key| (key.slot, Command::new("GET").arg(key.text)));
        let replies = self.router.batch(Role::Bulk, commands.collect()).await;
        replies.into_iter().map(|reply| reply?.into_bytes()).collect()
    }

    async fn layouts_of(&self, counters: &[Counter]) -> Result<Vec<Option<Layout>>, StoreError> {
        let commands = counters
            .iter()
            .map(keys::layout)
            .map(|key| (key.slot, Command::new("HMGET").arg(key.text).arg("c").arg("f")))
            .collect();
        self.router.batch(Role::Bulk, commands).await.into_iter().map(|reply| read_layout(reply?)).collect()
    }

    async fn published_view(&self, key: &AnswerKey) -> Result<PublishedView, StoreError> {
        let key = keys::published(key);
        let commands = vec![Command::new("GET").arg(key.text), Command::new("TIME")];
        let replies = self.router.call(Call::new(key.slot, commands).role(Role::Bulk)).await?;
        let [answer, time]: [Reply; 2] = Reply::List(replies).into_array()?;
        let answer = answer.into_bytes()?.map(read_published).transpose()?;
        Ok(PublishedView { now_ms: read_time(time)?, answer })
    }

    async fn take_lease(&self, key: &AnswerKey, token: &str, lease_ms: u64) -> Result<Lease, StoreError> {
        let key = keys::lease(key);
        let command = scripts::COUNT_LEASE.call([&key].into_iter()).arg(token.to_string()).number(lease_ms.max(1));
        let [granted, now_ms, left_ms] = self.router.ask(key.slot, command).await?.into_array()?;
        let now_ms = now_ms.number()?;
        Ok(if granted.number()? == 1 {
            Lease::Granted { now_ms }
        } else {
            Lease::Held { now_ms, left_ms: left_ms.unsigned()? }
        })
    }
}

impl Counters for RedisCounters {
    fn add<'a>(
        &'a self,
        address: &'a SketchAddress,
        elements: &'a [Element],
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.add_elements(keys::sketch(address), elements, expires_at))
    }

    fn merge<'a>(
        &'a self,
        address: &'a SketchAddress,
        blob: Bytes,
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            well_formed(&blob)?;
            let (sketch, beside) = (keys::sketch(address), keys::temporary_beside(address, random()));
            let expiry = expires_at.map_or(String::new(), |at| seconds(at).to_string());
            let command = scripts::SKETCH_MERGE.call([&sketch, &beside].into_iter()).arg(blob).arg(expiry);
            self.router.ask(sketch.slot, command).await.map(drop)
        })
    }

    fn read<'a>(&'a self, addresses: &'a [SketchAddress]) -> StoreFutureOf<'a, Vec<Result<Option<Bytes>, StoreError>>> {
        Box::pin(self.read_all(addresses))
    }

    fn union<'a>(&'a self, blobs: Vec<Bytes>) -> StoreFuture<'a, u64> {
        Box::pin(self.union_of(blobs))
    }

    fn layouts<'a>(&'a self, counters: &'a [Counter]) -> StoreFuture<'a, Vec<Option<Layout>>> {
        Box::pin(self.layouts_of(counters))
    }

    fn note_layout<'a>(
        &'a self,
        counter: &'a Counter,
        shards: Shards,
        expires_at: Option<Timestamp>,
    ) -> StoreFuture<'a, Layout> {
        Box::pin(self.note(counter, shards, expires_at))
    }

    fn published<'a>(&'a self, key: &'a AnswerKey) -> StoreFuture<'a, PublishedView> {
        Box::pin(self.published_view(key))
    }

    fn lease<'a>(&'a self, key: &'a AnswerKey, token: &'a str, lease_ms: u64) -> StoreFuture<'a, Lease> {
        Box::pin(self.take_lease(key, token, lease_ms))
    }

    fn publish<'a>(&'a self, key: &'a AnswerKey, answer: Published) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let key = keys::published(key);
            let command = scripts::COUNT_PUBLISH
                .call([&key].into_iter())
                .number(answer.as_of_ms)
                .arg(answer.body)
                .number(PUBLISHED_MS);
            Ok(self.router.ask(key.slot, command).await?.number()? == 1)
        })
    }

    fn give_back_lease<'a>(&'a self, key: &'a AnswerKey, token: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let key = keys::lease(key);
            let command = scripts::COUNT_LEASE_RETURN.call([&key].into_iter()).arg(token.to_string());
            self.router.ask(key.slot, command).await.map(drop)
        })
    }

    fn attend<'a>(&'a self, key: &'a AnswerKey, pod: &'a str, window_ms: u64) -> StoreFuture<'a, u32> {
        Box::pin(async move {
            let key = keys::attendance(key);
            let command = scripts::ATTEND.call([&key].into_iter()).arg(pod.to_string()).number(window_ms);
            let attending = self.router.ask(key.slot, command).await?.unsigned()?;
            Ok(u32::try_from(attending).unwrap_or(u32::MAX))
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

fn expire(key: &Key, at_s: i64, condition: &'static str) -> Command {
    Command::new("EXPIREAT").arg(key.text.clone()).number(at_s).arg(condition)
}

/// Whole seconds, rounded up: never earlier than asked.
fn seconds(at: Timestamp) -> i64 {
    at.as_second() + i64::from(at.subsec_nanosecond() > 0)
}

/// Malformed sketches have crashed servers (CVE-2025-32023): none is passed on to one.
fn well_formed(blob: &Bytes) -> Result<(), StoreError> {
    wire::decode(blob).map(drop).map_err(|error| StoreError::Corrupt(format!("a malformed sketch: {error}")))
}

fn read_shards(reply: &Reply) -> Result<Shards, StoreError> {
    let count = reply.unsigned()?;
    Shards::new(count).ok_or_else(|| StoreError::Corrupt(format!("a layout of {count} shards")))
}

fn read_layout(reply: Reply) -> Result<Option<Layout>, StoreError> {
    match reply.into_array()? {
        [Reply::Nil, Reply::Nil] => Ok(None),
        [coarsest, finest] => Ok(Some(Layout { coarsest: read_shards(&coarsest)?, finest: read_shards(&finest)? })),
    }
}

/// Reads `as_of_ms:body`.
fn read_published(value: Bytes) -> Result<Published, StoreError> {
    let foreign = || StoreError::Corrupt("a published answer without its time".into());
    let colon = value.iter().position(|&byte| byte == b':').ok_or_else(foreign)?;
    let as_of_ms = std::str::from_utf8(&value[..colon]).ok().and_then(|text| text.parse().ok()).ok_or_else(foreign)?;
    Ok(Published { as_of_ms, body: value.slice(colon + 1..) })
}

/// Milliseconds since 1970 out of TIME's seconds and microseconds.
pub fn read_time(reply: Reply) -> Result<i64, StoreError> {
    let [seconds, microseconds] = reply.into_array()?;
    Ok(seconds.number()? * 1000 + microseconds.number()? / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_answer_may_hold_anything_behind_its_time() {
        let published = read_published(Bytes::from_static(b"1700000000000:{\"a\":1}\0")).unwrap();
        assert_eq!(published, Published { as_of_ms: 1_700_000_000_000, body: Bytes::from_static(b"{\"a\":1}\0") });
        for foreign in ["", "12", ":x", "12a:x"] {
            assert!(matches!(read_published(Bytes::from(foreign)), Err(StoreError::Corrupt(_))), "{foreign:?}");
        }
    }

    #[test]
    fn an_expiry_is_never_earlier_than_asked() {
        assert_eq!(seconds("2026-01-01T00:00:00Z".parse().unwrap()), 1_767_225_600);
        assert_eq!(seconds("2026-01-01T00:00:00.001Z".parse().unwrap()), 1_767_225_601);
    }

    #[test]
    fn a_layout_is_there_whole_or_not_at_all() {
        let number = |text: &'static str| Reply::Bytes(Bytes::from_static(text.as_bytes()));
        assert_eq!(read_layout(Reply::List(vec![Reply::Nil, Reply::Nil])), Ok(None));
        let layout = read_layout(Reply::List(vec![number("8"), number("64")])).unwrap().unwrap();
        assert_eq!((layout.coarsest.count(), layout.finest.count()), (8, 64));
        for foreign in [
            vec![number("8"), Reply::Nil],
            vec![Reply::Nil, number("8")],
            vec![number("12"), number("16")],
            vec![number("8")],
        ] {
            assert!(matches!(read_layout(Reply::List(foreign)), Err(StoreError::Corrupt(_))));
        }
    }
}
