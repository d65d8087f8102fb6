//! Random bytes of the operating system.
//!
//! Owns the calls for random bytes. Must not keep any.

/// `N` cryptographically secure random bytes.
///
/// # Panics
/// If the operating system has none: without secrets a server is not safe to run.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A cryptographically secure random number.
pub(crate) fn number() -> u64 {
    u64::from_le_bytes(bytes())
}
