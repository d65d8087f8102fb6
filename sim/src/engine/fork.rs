//! Forks: up to a place the run equals that of its seed, afterwards all random streams are new
//! ones.
//!
//! Owns the form and syntax of a fork. `world` detects the place; `plan` chooses the forks of a
//! batch.

use std::fmt;
use std::str::FromStr;

use zabkeeper_core::Instant;
use zabkeeper_core::io::Mark;

use crate::engine::clock::{clock, parse_clock};
use crate::faults::targets::parse_place;

/// A place where the run leaves its seed's course, and the number of the alternative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    /// Where the run forks.
    pub place: Place,
    /// Number of the alternative; it seeds the new streams.
    pub number: u64,
}

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Before the first event at or after this time.
    At(Instant),
    /// After the n-th hit of a mark by any server, counted from the previous fork.
    Mark(Mark, u32),
}

impl Fork {
    /// The domain of the fork's random streams.
    pub fn domain(self) -> String {
        format!("fork/{}", self.place)
    }
}

/// Parses a comma-separated list of forks.
///
/// # Errors
/// Names the part that is not of the form `PLACE/NUMBER`.
pub fn parse_path(text: &str) -> Result<Vec<Fork>, String> {
    text.split(',').map(str::parse).collect()
}

/// The list as [`parse_path`] reads it.
pub fn path(forks: &[Fork]) -> String {
    forks.iter().map(Fork::to_string).collect::<Vec<_>>().join(",")
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return parse_clock(text)
                .map(Place::At)
                .ok_or_else(|| format!("{text:?} is no time: 4.2s"));
        }
        parse_place(text).map(|(mark, nth)| Place::Mark(mark, nth))
    }
}

impl FromStr for Fork {
    type Err = String;

    fn from_str(text: &str) -> Result<Fork, String> {
        let wrong = || format!("{text:?} is not written MARK#n/NUMBER or TIME/NUMBER");
        let (place, number) = text.rsplit_once('/').ok_or_else(wrong)?;
        Ok(Fork { place: place.parse()?, number: number.parse().map_err(|_| wrong())? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::At(at) => f.write_str(&clock(*at)),
            Place::Mark(mark, nth) => write!(f, "{mark:?}#{nth}"),
        }
    }
}

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.place, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_path_round_trips() {
        let text = "SyncSnap#2/7,12.500s/1";
        let forks = parse_path(text).expect("valid");
        assert_eq!(forks[1].place, Place::At(Instant(12_500_000_000)));
        assert_eq!(path(&forks), text);
        assert_eq!("12s".parse(), Ok(Place::At(Instant(12_000_000_000))));
        for bad in ["", "SyncSnap", "SyncSnap/x", "Nothing#1/2", "1x/2"] {
            assert!(parse_path(bad).is_err(), "{bad}");
        }
    }
}
