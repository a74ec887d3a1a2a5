//! From a user to the 8 bytes that counting knows.
//!
//! ```text
//! user ── SipHash-2-4, secret key ──▶ element (8 bytes, little-endian)
//!                                        │
//!              XXH3-64 of the bytes ◀────┴────▶ Redis's Murmur of the bytes
//!              = ring point (ring.rs)           = register and rank (sketch/hash.rs)
//! ```
//!
//! Redis hashes with a public seed by a function that is easily inverted, so who chooses ids could double a
//! count with 16,384 of them, or kill it (measured: docs/ACCURACY.md). Under a secret key nobody can choose.
//! No raw id reaches a sketch, so a stolen sketch names nobody.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::id::UserId;

/// What stands for a user in every sketch and set.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Element {
    /// SipHash-2-4 of the id under the deployment's secret key, as little-endian bytes.
    Keyed([u8; 8]),
    /// The raw id: sketches can be shared with other programs, and can be attacked (`plain` hashing).
    Plain(Box<[u8]>),
}

impl Element {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Element::Keyed(bytes) => bytes,
            Element::Plain(bytes) => bytes,
        }
    }
}

/// The secret of a deployment: 16 bytes, written as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; 16]);

impl HashKey {
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Reads 32 hex digits; anything else is refused, so that a key with a typing error is not silently another key.
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

/// A public 8-byte name of a hash key. Records carry it, so that a process with another key refuses them
/// instead of counting everybody twice (docs/FAULTS.md A8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How users become elements, one way per deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserHashing {
    Keyed(HashKey),
    Plain,
}

impl UserHashing {
    /// The element of a user: about 15 ns for a short id.
    pub fn element(&self, user: UserId<'_>) -> Element {
        match self {
            UserHashing::Keyed(key) => Element::Keyed(sip(key, user.as_str().as_bytes()).to_le_bytes()),
            UserHashing::Plain => Element::Plain(user.as_str().as_bytes().into()),
        }
    }

    /// `plain` has the constant 0; a key's is SipHash-2-4 of a fixed text under it (docs/FAULTS.md P7).
    pub fn fingerprint(&self) -> Fingerprint {
        match self {
            UserHashing::Keyed(key) => Fingerprint(sip(key, b"headcount fingerprint 1")),
            UserHashing::Plain => Fingerprint(0),
        }
    }
}

fn sip(key: &HashKey, bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_elements_are_siphash_2_4_little_endian() {
        // The reference vector of the SipHash paper (appendix A): key 00..0f, input 00..0e.
        let key = HashKey::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(sip(&key, &input), 0xa129ca6149be45e5);
    }

    #[test]
    fn another_key_is_another_fingerprint_and_plain_is_zero() {
        let one = UserHashing::Keyed(HashKey::from_bytes([1; 16]));
        let two = UserHashing::Keyed(HashKey::from_bytes([2; 16]));
        assert_ne!(one.fingerprint(), two.fingerprint());
        assert_eq!(UserHashing::Plain.fingerprint(), Fingerprint(0));
        let user = UserId::new("01").unwrap();
        assert_eq!(UserHashing::Plain.element(user).as_bytes(), b"01");
    }

    #[test]
    fn only_32_hex_digits_are_a_key() {
        for bad in ["", "00", "000102030405060708090a0b0c0d0e0g", "0x0102030405060708090a0b0c0d0e0f", &"0".repeat(33)] {
            assert!(HashKey::from_hex(bad).is_none(), "{bad:?}");
        }
    }
}
