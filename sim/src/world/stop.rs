//! Conditions at which a run ends early, for inspection.
//!
//! Owns the conditions and their syntax. Must not influence the run before that.

use std::fmt;

use zabkeeper_core::io::Mark;
use zabkeeper_core::{Instant, ServerId};

use crate::check::checker;
use crate::world::shared::Shared;

/// The run ends at the first of these conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stop {
    /// After all events up to this time.
    pub until: Option<Instant>,
    /// After the step that records the trace event with this number.
    pub event: Option<u64>,
    /// See [`Break`].
    pub on: Option<Break>,
}

/// An occurrence that ends a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// The n-th hit of a mark by any server, from one on.
    Mark(Mark, u32),
    /// A violation of this promise. Violations of other promises are ignored, except panics and
    /// simulator failures.
    Promise(&'static str),
}

impl Stop {
    /// The only promise whose violation ends the run.
    pub fn promise(&self) -> Option<&'static str> {
        match self.on {
            Some(Break::Promise(id)) => Some(id),
            Some(Break::Mark(..)) | None => None,
        }
    }

    /// Why the run ends after the current step, if it does. `ran` is the server that has taken a
    /// step.
    pub(crate) fn met(&self, ran: Option<ServerId>, shared: &Shared) -> Option<String> {
        match (self.on, ran) {
            (Some(Break::Mark(mark, nth)), Some(server))
                if shared.recorder.counters.marks[mark as usize] >= u64::from(nth) =>
            {
                return Some(format!("s{server} reaches {}", Break::Mark(mark, nth)));
            }
            _ => {}
        }
        let number = self.event.filter(|number| shared.recorder.trace.events() >= *number)?;
        Some(format!("event {number} has happened"))
    }
}

impl Break {
    /// Parses a mark's name, with `#n` for its n-th hit, or a promise's id.
    ///
    /// # Errors
    /// The text is neither. The most similar name is suggested.
    pub fn parse(text: &str) -> Result<Break, String> {
        if let Some(id) = checker::promises().into_iter().find(|id| id.eq_ignore_ascii_case(text)) {
            return Ok(Break::Promise(id));
        }
        let (name, nth) = text.split_once('#').unwrap_or((text, "1"));
        let mark = Mark::ALL.iter().find(|mark| format!("{mark:?}").eq_ignore_ascii_case(name));
        let Some(mark) = mark else {
            let marks = Mark::ALL.iter().map(|mark| format!("{mark:?}"));
            let names = marks.chain(checker::promises().into_iter().map(str::to_owned));
            let like = nearest(name, names).map_or(String::new(), |name| format!(" ({name}?)"));
            return Err(format!(
                "no mark and no promise is called that{like}; `--at-mark list` prints all marks, \
                 docs/oracles.md \
                 has the promises"
            ));
        };
        match nth.parse() {
            Ok(nth) if nth > 0 => Ok(Break::Mark(*mark, nth)),
            Ok(_) | Err(_) => Err(format!("{nth:?} is no number of a hit: they count from 1")),
        }
    }
}

/// The most similar name, if at most a third of the characters differ.
fn nearest(wrong: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let wrong = wrong.to_ascii_lowercase();
    let most = wrong.len().min(30) / 3;
    let near = names.map(|name| (distance(&wrong, &name.to_ascii_lowercase()), name));
    near.filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (at, of_a) in a.chars().enumerate() {
        let mut left_above = std::mem::replace(&mut row[0], at + 1);
        for (next, of_b) in b.chars().enumerate() {
            let change = left_above + usize::from(of_a != of_b);
            left_above = row[next + 1];
            row[next + 1] = change.min(row[next] + 1).min(left_above + 1);
        }
    }
    row[b.chars().count()]
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
    fn break_parses_promise_or_nth_hit_of_a_mark() {
        assert_eq!(Break::parse("z10"), Ok(Break::Promise("Z10")));
        assert_eq!(Break::parse("synctrunc"), Ok(Break::Mark(Mark::SyncTrunc, 1)));
        assert_eq!(Break::parse("SyncTrunc#3"), Ok(Break::Mark(Mark::SyncTrunc, 3)));
        assert_eq!(Break::Mark(Mark::SyncTrunc, 3).to_string(), "SyncTrunc#3");
        for wrong in ["SyncTrunc#0", "SyncTrunc#", "SyncTrunc#x"] {
            assert!(Break::parse(wrong).expect_err(wrong).contains("count from 1"));
        }
        assert_eq!(
            Break::parse("SyncTrunk"),
            Err("no mark and no promise is called that (SyncTrunc?); `--at-mark list` prints all \
                marks, \
                 docs/oracles.md has the promises"
                .to_owned())
        );
        for odd in ["Foo", "", "x".repeat(5_000).as_str(), "z999", "\u{1f600}"] {
            assert!(Break::parse(odd).expect_err("no such mark").len() < 150);
        }
    }
}
