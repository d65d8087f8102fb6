//! Other futures of a run: up to a point it is the run of its seed, from there on all that is random is drawn anew.
//!
//! Owns what a fork is and how it is written. Where it happens, `world` sees; which ones a batch runs, `batch` decides.

use std::fmt;
use std::str::FromStr;

use zabkeeper_core::Instant;
use zabkeeper_core::io::Mark;

use crate::schedule::{clock, parse_clock};
use crate::targets::parse_place;

/// Where a run leaves the way that its seed takes, and for which other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fork {
    /// Where.
    pub place: Place,
    /// Which future.
    pub number: u64,
}

/// A moment of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Before the first event from then on.
    At(Instant),
    /// After this hit of a mark, by whichever server, from the fork before on.
    Mark(Mark, u32),
}

impl Fork {
    /// The name of its streams.
    pub fn domain(self) -> String {
        format!("fork/{}", self.place)
    }
}

/// Forks one after another.
///
/// # Errors
/// Says what is not written `PLACE/NUMBER`.
pub fn parse_path(text: &str) -> Result<Vec<Fork>, String> {
    text.split(',').map(str::parse).collect()
}

/// As [`parse_path`] reads it.
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
    fn a_path_reads_as_it_is_written() {
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
