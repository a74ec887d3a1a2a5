//! What a store can fail with. A failure says whether the same call may help later, never how the store works.

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The part of the store that owns the data did not answer in time, or said that it cannot now. The call may or
    /// may not have taken effect; asking again may help. The text is for logs.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// It was done, but is not replicated as far as promised: it may yet be lost. Asking again gives the truth.
    #[error("done, but not confirmed: {0}")]
    Unconfirmed(String),
    /// This process has as many calls under way as it allows itself. Nothing was sent.
    #[error("too many calls to the store are under way: {0}")]
    Overloaded(String),
    /// The store holds something that is not what was written here (foreign or corrupt bytes). Asking again will not help.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
    /// The store refuses what it was asked for good: no space, no permission, a newer schema.
    #[error("the store refuses: {0}")]
    Refused(String),
}

impl StoreError {
    /// True where the same call may succeed later without anybody mending anything.
    pub fn retry_may_help(&self) -> bool {
        matches!(self, StoreError::Unavailable(_) | StoreError::Unconfirmed(_) | StoreError::Overloaded(_))
    }
}
