//! The Lua scripts, and how they are called: by digest, and by text where a server does not know the digest yet.
//!
//! A server forgets scripts when it restarts and a promoted replica never had them, so NOSCRIPT is an everyday answer.
//! The router then repeats the command as EVAL on the same node, with everything that followed it.

use std::sync::LazyLock;

use bytes::Bytes;

use super::keys::Key;
use super::node::sha1_hex;
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
            digest: LazyLock::new(|| sha1_hex(include_str!(concat!("../../../lua/", $file)))),
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
script!(RECORD_PUT, "record_put-1.lua");
script!(SKETCH_MERGE, "sketch_merge-2.lua");

impl Script {
    /// EVALSHA with these keys; arguments follow.
    pub fn call<'k>(&'static self, keys: impl ExactSizeIterator<Item = &'k Key>) -> Command {
        let command = Command::new("EVALSHA").arg(self.digest.clone()).number(keys.len());
        let mut command = keys.fold(command, |command, key| command.arg(key.text.clone()));
        command.script = Some(self.source);
        command
    }
}
