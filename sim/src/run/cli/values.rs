//! Values of flags as people write them: seeds, ranges, durations, times, budgets.
//!
//! Owns their syntax. Must not know which flag a value belongs to.

use std::time::Duration;

use zabkeeper_core::Instant;

use crate::engine::fork::{self, Place};
use crate::replay::shrink::Budget;
use crate::run::cli::Forks;
use crate::world::options::Profile;

pub(super) fn parse_forks(text: &str) -> Result<Forks, String> {
    fork::parse_path(text.trim_matches('\'')).map(Forks)
}

pub(super) fn parse_jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=1_024) => Ok(jobs),
        Ok(_) | Err(_) => Err("1 to 1024 at once".to_owned()),
    }
}

/// The duration of a measurement.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("in no time nothing is measured".to_owned()),
        time => Ok(time),
    }
}

pub(super) fn parse_place(text: &str) -> Result<Place, String> {
    text.parse()
}

pub(super) fn parse_budget(text: &str) -> Result<Budget, String> {
    match text.strip_suffix("runs") {
        Some(number) => number.parse().map(Budget::Runs).map_err(|error| error.to_string()),
        None => parse_duration(text).map(Budget::Wall),
    }
}

pub(super) fn parse_seed(text: &str) -> Result<u64, String> {
    let letters = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        // Without a 0x, letters mark a git hash.
        None if letters && text.len() >= 7 && text.is_ascii() => {
            u64::from_str_radix(&text[..text.len().min(16)], 16)
        }
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}: a seed is below 2^64, decimal or 0x hex"))
}

pub(super) fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (low, high) = text.split_once("..").ok_or("a range is written A..B")?;
    let (low, high) = (parse_seed(low)?, parse_seed(high)?);
    if low < high { Ok((low, high)) } else { Err(format!("{low}..{high} is empty")) }
}

/// Seconds with a fraction, as traces print them, or a duration.
pub(super) fn parse_instant(text: &str) -> Result<Instant, String> {
    let (whole, fraction) =
        text.strip_suffix('s').unwrap_or(text).split_once('.').unwrap_or((text, ""));
    if fraction.is_empty() {
        let ns = parse_duration(text)?.as_nanos();
        return Ok(Instant(u64::try_from(ns).unwrap_or(u64::MAX)));
    }
    let wrong = || format!("{text:?} is no time: 4.467360s, 12s, 300ms");
    if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let seconds: u64 = whole.parse().map_err(|_| wrong())?;
    let ns: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    seconds
        .checked_mul(1_000_000_000)
        .and_then(|n| n.checked_add(ns))
        .map(Instant)
        .ok_or_else(wrong)
}

pub(super) fn parse_hash(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16).map_err(|error| format!("{error}: a hash is 32 hex digits"))
}

pub(super) fn parse_profile(text: &str) -> Result<Profile, String> {
    let names = || Profile::ALL.map(Profile::name).join(", ");
    Profile::parse(text).ok_or_else(|| format!("profiles are {} (see docs/simulator.md)", names()))
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "a duration is a number and a unit".to_owned())?;
    let ms = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        other => return Err(format!("{other:?} is none of the units ms, s, m, h")),
    };
    let longest = Duration::from_secs(1_000 * 3_600);
    match number.checked_mul(ms).map(Duration::from_millis) {
        Some(duration) if duration <= longest => Ok(duration),
        Some(_) | None => Err("a duration is at most 1000h".to_owned()),
    }
}
