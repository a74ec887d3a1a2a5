//! Users by number, hashed as a deployment hashes them.

use headcount::domain::element::{Element, HashKey, UserHashing};
use headcount::domain::id::UserId;

/// A fixed key: every run sees the same users, so a test that passes once passes always.
pub fn hashing() -> UserHashing {
    UserHashing::Keyed(HashKey::from_bytes(*b"0123456789abcdef"))
}

/// The element of user `number` of crowd `crowd`. The id is 16 hex digits, written without a formatter, because ten
/// million users are made twenty times.
pub fn element(hashing: &UserHashing, crowd: u32, number: u32) -> Element {
    let mut text = [0; 16];
    let mut rest = u64::from(crowd) << 32 | u64::from(number);
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    let text = std::str::from_utf8(&text).expect("hex digits are UTF-8");
    hashing.element(UserId::new(text).expect("16 digits are a user id"))
}
