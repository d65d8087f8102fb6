//! Virtual times as text.
//!
//! Owns the form in schedules and flags. Must not read any clock.

use zabkeeper_core::Instant;

/// A time in seconds: exact, without trailing zeros beyond milliseconds.
pub fn clock(at: Instant) -> String {
    let (seconds, ns) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
    let digits = format!("{ns:09}");
    let digits = digits.trim_end_matches('0');
    format!("{seconds}.{digits:0<3}s")
}

/// Parses a time as [`clock`] writes it; the fraction may be missing.
pub fn parse_clock(text: &str) -> Option<Instant> {
    let seconds = text.strip_suffix('s')?;
    let (seconds, digits) = seconds.split_once('.').unwrap_or((seconds, ""));
    if digits.len() > 9 {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let ns: u64 = format!("{digits:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(ns).map(Instant)
}
