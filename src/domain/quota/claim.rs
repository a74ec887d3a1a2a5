//! Claims as a pool keeps them: whose, which unit, and what became of it.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::unit::Unit;
use crate::domain::element::UserHashing;
use crate::domain::id::UserId;

/// Stands for a user in a pool: 16 bytes of SipHash-2-4 under the deployment's key.
///
/// Twice as long as an element, because two users with one key would be told `already` for each other's claims, which
/// at 10⁸ users would happen with 8 bytes. Under `plain` hashing the same with a key of zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey(pub [u8; 16]);

impl UserKey {
    pub fn of(hashing: &UserHashing, user: UserId<'_>) -> Self {
        let key = match hashing {
            UserHashing::Keyed(key) => *key.as_bytes(),
            UserHashing::Plain => [0; 16],
        };
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(user.as_str().as_bytes());
        Self(hasher.finish128().as_u128().to_le_bytes())
    }

    /// The first 8 bytes: enough to tell who surely has no claim.
    pub fn short(self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("16 bytes have 8"))
    }
}

/// In hex, because it is no text.
impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// What became of a claim. `Held` and `Confirmed` are live: their unit is the user's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ClaimState {
    Held,
    Confirmed,
    Released,
    Expired,
    /// Taken away by an operator; the user may not claim again.
    Voided,
}

impl ClaimState {
    pub fn is_live(self) -> bool {
        matches!(self, ClaimState::Held | ClaimState::Confirmed)
    }

    /// The word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimState::Held => "held",
            ClaimState::Confirmed => "confirmed",
            ClaimState::Released => "released",
            ClaimState::Expired => "expired",
            ClaimState::Voided => "voided",
        }
    }

    /// The letter in stores.
    pub fn letter(self) -> char {
        match self {
            ClaimState::Held => 'h',
            ClaimState::Confirmed => 'c',
            ClaimState::Released => 'r',
            ClaimState::Expired => 'e',
            ClaimState::Voided => 'v',
        }
    }

    fn of_letter(letter: &str) -> Option<Self> {
        Some(match letter {
            "h" => ClaimState::Held,
            "c" => ClaimState::Confirmed,
            "r" => ClaimState::Released,
            "e" => ClaimState::Expired,
            "v" => ClaimState::Voided,
            _ => return None,
        })
    }
}

/// A user's claim. Written `h|17#2|<secret>|1|<claimed>|<deadline>|<ver>|<idem>`, times in milliseconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimRecord {
    pub state: ClaimState,
    pub unit: Unit,
    /// The random part of the claim id, base32.
    pub secret: String,
    /// 1 for a user's first claim of this campaign, 2 for the second, …
    pub claim_no: u32,
    pub claimed_ms: i64,
    /// When a hold expires; 0: there is no hold.
    pub deadline_ms: i64,
    /// The pool's version at the last change.
    pub ver: u64,
    /// A digest of the Idempotency-Key; empty: there was none.
    pub idem: String,
}

impl fmt::Display for ClaimRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, unit, secret, claim_no, claimed_ms, deadline_ms, ver, idem } = self;
        write!(f, "{}|{unit}|{secret}|{claim_no}|{claimed_ms}|{deadline_ms}|{ver}|{idem}", state.letter())
    }
}

impl FromStr for ClaimRecord {
    type Err = NotAClaim;

    fn from_str(text: &str) -> Result<Self, NotAClaim> {
        fn number<T: FromStr>(text: &str) -> Result<T, NotAClaim> {
            text.parse().map_err(|_| NotAClaim)
        }
        let parts: Vec<&str> = text.split('|').collect();
        let [state, unit, secret, claim_no, claimed_ms, deadline_ms, ver, idem] = parts[..] else {
            return Err(NotAClaim);
        };
        Ok(Self {
            state: ClaimState::of_letter(state).ok_or(NotAClaim)?,
            unit: number(unit)?,
            secret: secret.to_owned(),
            claim_no: number(claim_no)?,
            claimed_ms: number(claimed_ms)?,
            deadline_ms: number(deadline_ms)?,
            ver: number(ver)?,
            idem: idem.to_owned(),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a claim's record")]
pub struct NotAClaim;

/// One user's wish for a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    pub user: UserKey,
    /// The user as sent, for the outbox.
    pub user_raw: String,
    /// The secret of the claim that would be made: chosen by the gateway, the same on each of its own tries.
    pub secret: String,
    pub idem: String,
}

/// What a pool says to a wish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimAnswer {
    /// Made now.
    Granted(ClaimRecord),
    /// The user has a live claim. It may be this very wish's, sent twice: the secret tells.
    Already(ClaimRecord),
    /// This very wish (same secret, or same Idempotency-Key) was granted once, and is no longer live.
    Ended(ClaimRecord),
    /// The user's claim was taken away, and there is no other for them.
    Voided(ClaimRecord),
    /// No unit in this pool now.
    Dry,
    NotOpen,
    Paused,
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::element::HashKey;

    #[test]
    fn records_are_read_as_they_are_written() {
        let record = ClaimRecord {
            state: ClaimState::Held,
            unit: Unit { number: 17, turn: 2, cents: None },
            secret: "abc".into(),
            claim_no: 1,
            claimed_ms: 5,
            deadline_ms: 0,
            ver: 9,
            idem: String::new(),
        };
        assert_eq!(record.to_string(), "h|17#2|abc|1|5|0|9|");
        assert_eq!(record.to_string().parse(), Ok(record));
        for bad in ["", "h|17#2|abc|1|5|0|9", "x|17#2|abc|1|5|0|9|", "h|17|abc|1|5|0|9|", "h|1#0|a|b|5|0|9|"] {
            assert_eq!(bad.parse::<ClaimRecord>(), Err(NotAClaim), "{bad}");
        }
    }

    #[test]
    fn a_users_key_depends_on_the_deployments_key() {
        let ada = UserId::new("ada").unwrap();
        let keyed = |byte| UserKey::of(&UserHashing::Keyed(HashKey::from_bytes([byte; 16])), ada);
        assert_eq!(keyed(0), UserKey::of(&UserHashing::Plain, ada));
        assert_ne!(keyed(0), keyed(1));
        assert_ne!(
            keyed(1),
            UserKey::of(&UserHashing::Keyed(HashKey::from_bytes([1; 16])), UserId::new("bob").unwrap())
        );
    }
}
