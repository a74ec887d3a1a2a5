//! Who may have a claim: the first 8 bytes of every claimant's key, so that the late crowd costs the store nothing.
//!
//! The set is only ever added to. Who is not in it has surely no claim; who is in it is looked up (a released claim, or
//! two users with the same 8 bytes, only cost the look).

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::domain::quota::claim::UserKey;
use crate::store::pools::{Claimants, ClaimantsMark};

/// The claimants of each pool, and how far they have been read.
pub struct ClaimantSet {
    pub pools: Vec<Part>,
}

/// Those of one pool.
#[derive(Default)]
pub struct Part {
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

impl Part {
    /// How far it has been read.
    pub fn mark(&self) -> Option<ClaimantsMark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn take_in(&self, news: Claimants) {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        if news.all {
            users.clear();
        }
        users.extend(news.users);
        drop(users);
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(news.mark);
    }
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
