//! Who may have a claim: the first 8 bytes of every claimant's key, so that the late crowd costs the store nothing.
//!
//! The set is only ever added to. Who is not in it has surely no claim; who is in it is looked up (a released claim, or
//! two users with the same 8 bytes, only cost the look).

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError, RwLock};

use futures_util::future::try_join_all;

use super::offer::Offer;
use crate::domain::quota::claim::UserKey;
use crate::service::error::ServiceError;
use crate::store::pools::ClaimantsMark;

/// The claimants of each pool, and how far they have been read.
pub struct ClaimantSet {
    pools: Vec<Part>,
}

#[derive(Default)]
struct Part {
    users: RwLock<HashSet<u64, BuildHasherDefault<AsItIs>>>,
    mark: Mutex<Option<ClaimantsMark>>,
}

impl ClaimantSet {
    pub fn new(pools: usize) -> Self {
        Self { pools: (0..pools).map(|_| Part::default()).collect() }
    }

    pub fn may_contain(&self, shard: usize, user: UserKey) -> bool {
        let users = self.pools[shard].users.read().unwrap_or_else(PoisonError::into_inner);
        users.contains(&user.short())
    }
}

/// Reads who has been granted a unit since the last time. On return everybody is in who was granted one before the call.
pub async fn catch_up(offer: &Offer) -> Result<(), ServiceError> {
    let parts = offer.pools.iter().zip(&offer.claimants.pools).map(async |(pool, part)| {
        let since = part.mark.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let news = pool.store().claimants(&pool.address, since.as_ref()).await?;
        let mut users = part.users.write().unwrap_or_else(PoisonError::into_inner);
        if news.all {
            users.clear();
        }
        users.extend(news.users);
        drop(users);
        *part.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(news.mark);
        Ok::<(), ServiceError>(())
    });
    try_join_all(parts).await.map(|_| ())
}

/// Keys are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only `write_u64` is called for a set of u64; this keeps the trait whole.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
