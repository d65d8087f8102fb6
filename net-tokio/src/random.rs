//! Random bytes of the operating system.
//!
//! Owns the asking. Must not keep any.

/// So many bytes that nobody can guess.
///
/// # Panics
/// Where the operating system has none: then no secret could be drawn, and no server is safe to run.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A number that nobody can guess.
pub(crate) fn number() -> u64 {
    u64::from_le_bytes(bytes())
}
