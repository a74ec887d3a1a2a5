//! Randomness from the system, for names and keys that nobody may guess or repeat.

/// So many random bytes.
pub fn random_bytes<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    // Without randomness from the system no key can be made and no two processes told apart: nothing may be counted.
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// A random name of 16 hex digits.
pub fn random_name() -> String {
    format!("{:016x}", u64::from_le_bytes(random_bytes()))
}
