//! Under which key this process makes elements: known from the settings, or from the first contact with the store.

use std::sync::OnceLock;

use super::error::ServiceError;
use crate::domain::element::UserHashing;
use crate::store::error::StoreError;

/// The deployment's way from users to elements, once it is known. Before that nothing can be counted: another key would
/// count everybody a second time.
#[derive(Default)]
pub struct Identity {
    known: OnceLock<Known>,
}

struct Known {
    hashing: UserHashing,
    fingerprint: String,
}

impl Identity {
    /// Makes it known, for good.
    pub fn learn(&self, hashing: UserHashing) {
        let fingerprint = hashing.fingerprint().to_string();
        self.known.get_or_init(|| Known { hashing, fingerprint });
    }

    pub fn hashing(&self) -> Result<UserHashing, ServiceError> {
        Ok(self.known()?.hashing)
    }

    /// The key's public name, 16 hex digits.
    pub fn fingerprint(&self) -> Result<&str, ServiceError> {
        Ok(&self.known()?.fingerprint)
    }

    fn known(&self) -> Result<&Known, ServiceError> {
        self.known.get().ok_or_else(|| {
            let cause = "the hash key is kept in the store, which has not answered yet".into();
            ServiceError::Unavailable(StoreError::Unavailable(cause))
        })
    }
}
