//! Claim ids: who holds one may confirm or release the claim, and it leads to the claim without a search.
//!
//! ```text
//! version (1 byte) | home shard (2) | user key (16) | secret (16, random)    = 35 bytes = 56 letters of base32
//! ```

use std::fmt;
use std::str::FromStr;

use data_encoding::{Encoding, Specification};

use super::claim::UserKey;

const VERSION: u8 = 1;
const BYTES: usize = 35;

/// Lower case without padding: safe in paths, and nothing to mangle.
static BASE32: std::sync::LazyLock<Encoding> = std::sync::LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    // 32 different symbols and no padding are a valid specification.
    specification.encoding().expect("a valid base32")
});

/// Names a claim, and proves the right to it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimId {
    /// The shard (index, from 0) that keeps the claim.
    pub home: u16,
    pub user: UserKey,
    /// As in the claim's record.
    pub secret: String,
}

/// The text of a new claim's secret.
pub fn secret_text(random: [u8; 16]) -> String {
    BASE32.encode(&random)
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend(self.home.to_be_bytes());
        bytes.extend(self.user.0);
        bytes.extend(BASE32.decode(self.secret.as_bytes()).map_err(|_| fmt::Error)?);
        f.write_str(&BASE32.encode(&bytes))
    }
}

/// Shows nothing: the id is a secret.
impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimId(secret)")
    }
}

impl FromStr for ClaimId {
    type Err = NotAClaimId;

    /// Takes capitals too.
    fn from_str(text: &str) -> Result<Self, NotAClaimId> {
        let bytes = BASE32.decode(text.to_ascii_lowercase().as_bytes()).map_err(|_| NotAClaimId)?;
        let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| NotAClaimId)?;
        if bytes[0] != VERSION {
            return Err(NotAClaimId);
        }
        let (user, secret) = bytes[3..].split_at(16);
        Ok(Self {
            home: u16::from_be_bytes([bytes[1], bytes[2]]),
            user: UserKey(user.try_into().map_err(|_| NotAClaimId)?),
            secret: BASE32.encode(secret),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a claim id")]
pub struct NotAClaimId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_ids_are_read_as_they_are_written() {
        let id = ClaimId { home: 7, user: UserKey([9; 16]), secret: secret_text([200; 16]) };
        let text = id.to_string();
        assert_eq!(text.len(), 56);
        assert!(text.parse::<ClaimId>() == Ok(id.clone()) && text.to_uppercase().parse() == Ok(id));
        for bad in ["", "abc", &text[1..], &text.replace(&text[..1], "b"), &format!("{text}a"), "é"] {
            assert!(bad.parse::<ClaimId>() == Err(NotAClaimId), "{bad}");
        }
    }
}
