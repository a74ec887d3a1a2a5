//! First contact: agrees with the store on the facts that all processes of a deployment share, and repeats them after
//! every change of the store, so that a node that lost them gets them back (docs/FAULTS.md A8).

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::element::{HashKey, UserHashing};
use crate::domain::period::Calendar;
use crate::runtime::random::random_bytes;
use crate::service::identity::Identity;
use crate::store::counters::Counters;
use crate::store::deployment::{Deployment, Facts, SCHEMA};
use crate::store::error::StoreError;

/// How often a store that does not answer is asked again.
const RETRY: Duration = Duration::from_millis(250);
/// How often the log says so.
const TELL_EVERY: u32 = 40;

/// What the settings say of hashing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashingChoice {
    /// Under this key, or under the one the store keeps (made there if there is none).
    Keyed(Option<HashKey>),
    Plain,
}

/// Why this process must not serve this store: sentences that say what to do.
#[derive(Debug, thiserror::Error)]
pub enum Disagreement {
    /// With another key everybody would be counted a second time.
    #[error("{0}: set the key and the kind of hashing as they were, or use an empty store")]
    Hashing(String),
    #[error("{0}")]
    Other(String),
}

/// Meets the store.
pub struct Contact {
    pub deployment: Arc<dyn Deployment>,
    pub counters: Arc<dyn Counters>,
    pub identity: Arc<Identity>,
    pub choice: HashingChoice,
    pub calendar: Calendar,
}

impl Contact {
    /// Waits for the store and agrees with it. An error only where waiting does not help.
    pub async fn first(&self, stop: &CancellationToken) -> Result<(), Disagreement> {
        if let HashingChoice::Keyed(Some(key)) = self.choice {
            // Known without the store: visits can be buffered from the first second.
            self.identity.learn(UserHashing::Keyed(key));
        }
        let mut failures = 0;
        while !stop.is_cancelled() {
            match self.agree().await {
                Ok(()) => return Ok(()),
                Err(Failure::Disagreement(disagreement)) => return Err(disagreement),
                Err(Failure::Store(error)) => {
                    if failures % TELL_EVERY == 0 {
                        tracing::warn!(%error, store = self.deployment.describe(), "waiting for the store");
                    }
                    failures += 1;
                    let _ = stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
                }
            }
        }
        Ok(())
    }

    /// Repeats the facts after every change of the store, until `stop`.
    pub async fn repeat(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.counters.changes();
        while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
            match self.agree().await {
                Ok(()) => {}
                Err(Failure::Store(error)) => tracing::debug!(%error, "the facts could not be repeated"),
                Err(Failure::Disagreement(error)) => tracing::error!(%error, "the store disagrees with this process"),
            }
        }
    }

    async fn agree(&self) -> Result<(), Failure> {
        let hashing = self.hashing().await?;
        let zone = self.calendar.zone_name().to_owned();
        let mine = Facts { schema: SCHEMA, zone, fingerprint: hashing.fingerprint().0 };
        let theirs = self.deployment.agree(&mine).await?;
        check(&mine, &theirs)?;
        self.identity.learn(hashing);
        Ok(())
    }

    async fn hashing(&self) -> Result<UserHashing, Failure> {
        if self.choice == HashingChoice::Plain {
            return Ok(UserHashing::Plain);
        }
        let mine = match (self.identity.hashing(), self.choice) {
            (Ok(UserHashing::Keyed(key)), _) | (_, HashingChoice::Keyed(Some(key))) => key,
            _ => HashKey::from_bytes(random_bytes()),
        };
        let theirs = HashKey::from_bytes(self.deployment.hash_key(*mine.as_bytes()).await?);
        match self.choice {
            HashingChoice::Keyed(Some(key)) if key != theirs => {
                Err(Disagreement::Hashing("the hash key that is set is not the one this store was counted with".into())
                    .into())
            }
            _ => Ok(UserHashing::Keyed(theirs)),
        }
    }
}

enum Failure {
    Store(StoreError),
    Disagreement(Disagreement),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(reason) => {
                Disagreement::Other(format!("the store refuses this process: {reason}")).into()
            }
            error => Failure::Store(error),
        }
    }
}

impl From<Disagreement> for Failure {
    fn from(disagreement: Disagreement) -> Self {
        Failure::Disagreement(disagreement)
    }
}

fn check(mine: &Facts, theirs: &Facts) -> Result<(), Disagreement> {
    if theirs.schema > mine.schema {
        return Err(Disagreement::Other(format!(
            "the store was written by a newer version (schema {}, this one knows {}): run that version",
            theirs.schema, mine.schema
        )));
    }
    if theirs.zone != mine.zone {
        return Err(Disagreement::Other(format!(
            "the store's days are cut in the time zone {}, this process's in {}: use the same one",
            theirs.zone, mine.zone
        )));
    }
    if theirs.fingerprint != mine.fingerprint {
        return Err(Disagreement::Hashing(format!(
            "the store was counted under the hash key {:016x}, this process has {:016x}",
            theirs.fingerprint, mine.fingerprint
        )));
    }
    Ok(())
}
