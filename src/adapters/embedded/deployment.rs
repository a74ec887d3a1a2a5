//! The port of the deployment, on rows.

use bytes::Bytes;

use super::EmbeddedStore;
use super::format::{self, Key};
use super::rows::corrupt;
use crate::domain::element::{HashKey, UserHashing};
use crate::store::StoreFuture;
use crate::store::deployment::{Deployment, Facts, Health, NodeHealth};
use crate::store::error::StoreError;

impl Deployment for EmbeddedStore {
    fn hash_key(&self, proposed: [u8; 16]) -> StoreFuture<'_, [u8; 16]> {
        Box::pin(async move {
            let key = Key::hash_key();
            let change = |rows: &mut super::rows::Shard| {
                let counted_with = rows.get(&Key::facts()).and_then(|row| row.value().cloned());
                let counted_with = counted_with.as_deref().and_then(format::facts_of).map(|facts| facts.fingerprint);
                let row = rows.entry(key.clone()).or_default();
                if let Some(standing) = row.value() {
                    let standing = standing[..].try_into().map_err(|_| corrupt(&key, "not 16 bytes"))?;
                    return Ok((standing, row.seen()));
                }
                let fingerprint = UserHashing::Keyed(HashKey::from_bytes(proposed)).fingerprint();
                if counted_with.is_some_and(|standing| standing != fingerprint.0) {
                    return Err(StoreError::Refused(
                        "the hash key is gone but users were counted with it; give the old one, for a new key would \
                         count everybody twice"
                            .to_owned(),
                    ));
                }
                Ok((proposed, row.set(Bytes::copy_from_slice(&proposed))))
            };
            self.committer.write(&key, change).await
        })
    }

    fn agree<'a>(&'a self, mine: &'a Facts) -> StoreFuture<'a, Facts> {
        Box::pin(async move {
            let key = Key::facts();
            let change = |rows: &mut super::rows::Shard| {
                let row = rows.entry(key.clone()).or_default();
                match row.value() {
                    Some(standing) => {
                        let facts = format::facts_of(standing).ok_or_else(|| corrupt(&key, "not facts"))?;
                        Ok((facts, row.seen()))
                    }
                    None => Ok((mine.clone(), row.set(format::facts_value(mine)))),
                }
            };
            self.committer.write(&key, change).await
        })
    }

    fn now_ms(&self) -> StoreFuture<'_, i64> {
        Box::pin(async move { Ok(EmbeddedStore::now_ms(self)) })
    }

    /// The file was opened before anybody could ask.
    fn contacted(&self) -> bool {
        true
    }

    fn health(&self) -> Health {
        let fault = self.committer.fault();
        let node = NodeHealth {
            name: self.config.dir.display().to_string(),
            up: fault.is_none(),
            detail: fault.unwrap_or_else(|| "the last commit reached the disk".to_owned()),
        };
        Health { nodes: vec![node], warnings: Vec::new() }
    }

    fn describe(&self) -> String {
        format!("embedded, in {}", self.config.dir.display())
    }
}
