//! The Lua scripts, and how they are called: by digest, and by text where a server does not know the digest yet.
//!
//! A server forgets scripts when it restarts and a promoted replica never had them, so NOSCRIPT is an everyday answer.
//! The router then repeats the command as EVAL on the same node, with everything that followed it.

use std::sync::LazyLock;

use bytes::Bytes;

use super::keys::Key;
use super::node::client::sha1_hex;
use super::reply::Command;

/// One script of `lua/`.
#[derive(Debug)]
pub struct Script {
    source: &'static str,
    digest: LazyLock<Bytes>,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub static $name: Script = Script {
            source: include_str!(concat!("../../../lua/", $file)),
            digest: LazyLock::new(|| sha1_hex($name.source)),
        };
    };
}

/// A step of pools: behind what all of them share.
macro_rules! step {
    ($name:ident, $file:literal) => {
        pub static $name: Script = Script {
            source: concat!(
                include_str!("../../../lua/pool_prelude.lua"),
                include_str!(concat!("../../../lua/", $file))
            ),
            digest: LazyLock::new(|| sha1_hex($name.source)),
        };
    };
}

/// What is done to an outbox: behind what all of them share, and also where memory is full.
macro_rules! outbox {
    ($name:ident, $file:literal) => {
        pub static $name: Script = Script {
            source: concat!(
                "#!lua flags=allow-oom\n",
                include_str!("../../../lua/outbox_prelude.lua"),
                include_str!(concat!("../../../lua/", $file))
            ),
            digest: LazyLock::new(|| sha1_hex($name.source)),
        };
    };
}

script!(ATTEND, "attend-1.lua");
script!(COUNT_LEASE, "count_lease-1.lua");
script!(COUNT_LEASE_RETURN, "count_lease_return-1.lua");
script!(COUNT_MERGE, "count_merge.lua");
script!(COUNT_PUBLISH, "count_publish-1.lua");
script!(FACTS_AGREE, "facts_agree-1.lua");
script!(HASH_KEY, "hash_key-1.lua");
script!(LAYOUT_NOTE, "layout_note-1.lua");
script!(LEASE_HOLD, "lease_hold-1.lua");

outbox!(OUTBOX_ACKNOWLEDGE, "outbox_acknowledge-1.lua");
outbox!(OUTBOX_LAG, "outbox_lag-2.lua");
outbox!(OUTBOX_READ, "outbox_read-2.lua");
outbox!(OUTBOX_RENAME, "outbox_rename-2.lua");

script!(POOL_GRANTS, "pool_grants-2.lua");
script!(POOL_REMOVE, "pool_remove-9.lua");
script!(RECORD_PUT, "record_put-1.lua");
script!(SKETCH_MERGE, "sketch_merge-2.lua");

script!(TOUCH, "touch-1.lua");

step!(POOL_ACK, "pool_ack-7.lua");
step!(POOL_CLAIM, "pool_claim-7.lua");
step!(POOL_CLOSE, "pool_close-7.lua");
step!(POOL_COLLECT, "pool_collect-7.lua");
step!(POOL_CONFIRM, "pool_confirm-7.lua");
step!(POOL_CREATE, "pool_create-7.lua");
step!(POOL_CREDIT, "pool_credit-7.lua");
step!(POOL_DEBIT, "pool_debit-7.lua");
step!(POOL_EMPTY, "pool_empty-7.lua");
step!(POOL_FENCE, "pool_fence-7.lua");
step!(POOL_FILL, "pool_fill-7.lua");
step!(POOL_FINISH, "pool_finish-7.lua");
step!(POOL_FREEZE, "pool_freeze-7.lua");
step!(POOL_LOOK, "pool_look-7.lua");
step!(POOL_REAP, "pool_reap-7.lua");
step!(POOL_RELEASE, "pool_release-7.lua");
step!(POOL_REOPEN, "pool_reopen-7.lua");
step!(POOL_RESCHEDULE, "pool_reschedule-7.lua");
step!(POOL_RESTOCK, "pool_restock-7.lua");
step!(POOL_RETIRE, "pool_retire-7.lua");
step!(POOL_THAW, "pool_thaw-7.lua");

impl Script {
    /// EVALSHA with these keys; arguments follow.
    pub fn call<'k>(&'static self, keys: impl ExactSizeIterator<Item = &'k Key>) -> Command {
        let command = Command::new("EVALSHA").arg(self.digest.clone()).number(keys.len());
        let mut command = keys.fold(command, |command, key| command.arg(key.text.clone()));
        command.script = Some(self.source);
        command
    }
}
