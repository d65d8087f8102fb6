//! Where a run is to end before its time, because somebody wants to see what is there.
//!
//! Owns the conditions and their spelling. Must not influence what happens before.

use std::fmt;

use zabkeeper_core::io::Mark;
use zabkeeper_core::{Instant, ServerId};

use crate::judge;
use crate::shared::Shared;

/// The run ends at whatever comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stop {
    /// After all that happens up to this time.
    pub until: Option<Instant>,
    /// After what brings about the event of this number.
    pub event: Option<u64>,
    /// See [`Break`].
    pub on: Option<Break>,
}

/// What ends a run when it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// A server reaches this branch of its code, for the n-th time that any does, from one on.
    Mark(Mark, u32),
    /// This promise is broken. Others are then passed over, but for panics and the simulator's own.
    Promise(&'static str),
}

impl Stop {
    /// The promise that alone ends the run.
    pub fn promise(&self) -> Option<&'static str> {
        match self.on {
            Some(Break::Promise(id)) => Some(id),
            Some(Break::Mark(..)) | None => None,
        }
    }

    /// Why the run ends after what has just happened, if it does. `ran`: the server that has acted.
    pub(crate) fn met(&self, ran: Option<ServerId>, shared: &Shared) -> Option<String> {
        match (self.on, ran) {
            (Some(Break::Mark(mark, nth)), Some(server))
                if shared.tally.marks[mark as usize] >= u64::from(nth) =>
            {
                return Some(format!("s{server} reaches {}", Break::Mark(mark, nth)));
            }
            _ => {}
        }
        let number = self.event.filter(|number| shared.trace.events() >= *number)?;
        Some(format!("event {number} has happened"))
    }
}

impl Break {
    /// A mark's name, with `#n` for its n-th hit, or a promise's id.
    ///
    /// # Errors
    /// Names all of them.
    pub fn parse(text: &str) -> Result<Break, String> {
        if let Some(id) = judge::promises().into_iter().find(|id| id.eq_ignore_ascii_case(text)) {
            return Ok(Break::Promise(id));
        }
        let (name, nth) = text.split_once('#').unwrap_or((text, "1"));
        let mark = Mark::ALL.iter().find(|mark| format!("{mark:?}").eq_ignore_ascii_case(name));
        let Some(mark) = mark else {
            let marks: Vec<String> = Mark::ALL.iter().map(|mark| format!("{mark:?}")).collect();
            let promises = judge::promises().join(" ");
            return Err(format!(
                "promises are {promises} (docs/oracles.md has their words); marks of the core are {} \
                 (`--at-mark list` has theirs)",
                marks.join(" ")
            ));
        };
        match nth.parse() {
            Ok(nth) if nth > 0 => Ok(Break::Mark(*mark, nth)),
            Ok(_) | Err(_) => Err(format!("{nth:?} is no number of a hit: they count from 1")),
        }
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Break::Mark(mark, 1) => write!(f, "{mark:?}"),
            Break::Mark(mark, nth) => write!(f, "{mark:?}#{nth}"),
            Break::Promise(id) => f.write_str(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_is_a_promise_or_the_nth_hit_of_a_mark() {
        assert_eq!(Break::parse("z10"), Ok(Break::Promise("Z10")));
        assert_eq!(Break::parse("synctrunc"), Ok(Break::Mark(Mark::SyncTrunc, 1)));
        assert_eq!(Break::parse("SyncTrunc#3"), Ok(Break::Mark(Mark::SyncTrunc, 3)));
        assert_eq!(Break::Mark(Mark::SyncTrunc, 3).to_string(), "SyncTrunc#3");
        for wrong in ["SyncTrunc#0", "SyncTrunc#", "SyncTrunc#x"] {
            assert!(Break::parse(wrong).expect_err(wrong).contains("count from 1"));
        }
        assert!(Break::parse("Sync").expect_err("no such mark").contains("SyncTrunc"));
    }
}
