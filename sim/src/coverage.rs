//! The table of what a batch has reached: marks of the core, and what is to happen sometimes.
//!
//! Owns counting over runs and the form of the table. Must not judge whether that is enough.

use std::fmt::Write;

use zabkeeper_core::io::Mark;

use crate::sometimes::Sometimes;
use crate::tally::Tally;

const ROWS: usize = Mark::ALL.len() + Sometimes::ALL.len();

/// In how many runs each row was reached, and how often.
#[derive(Clone, Debug)]
pub struct Coverage {
    runs: [u64; ROWS],
    times: [u64; ROWS],
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage { runs: [0; ROWS], times: [0; ROWS] }
    }
}

impl Coverage {
    /// Adds a run.
    pub fn add(&mut self, tally: &Tally) {
        let all = tally.marks.iter().chain(&tally.sometimes);
        for ((runs, times), more) in self.runs.iter_mut().zip(&mut self.times).zip(all) {
            *runs += u64::from(*more > 0);
            *times += more;
        }
    }

    /// A line for each row: runs, times, name. Those never reached come first.
    pub fn table(&self, runs: u64) -> String {
        let mut rows: Vec<(u64, u64, String)> = names()
            .into_iter()
            .zip(self.runs.into_iter().zip(self.times))
            .map(|(name, (runs, times))| (runs, times, name))
            .collect();
        rows.sort();
        let mut text = format!("# of {runs} runs: in how many, how often, what\n");
        for (runs, times, name) in rows {
            let _infallible = writeln!(text, "{runs:>8} {times:>10} {name}");
        }
        text
    }

    /// What was never reached.
    pub fn never(&self) -> Vec<String> {
        names().into_iter().zip(self.runs).filter(|(_, n)| *n == 0).map(|(name, _)| name).collect()
    }
}

fn names() -> Vec<String> {
    let marks = Mark::ALL.iter().map(|mark| format!("{mark:?}"));
    let sometimes = Sometimes::ALL.iter();
    let sometimes = sometimes.map(|some| format!("sometimes:{some:?} ({})", some.sentence()));
    marks.chain(sometimes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_runs_and_times_and_name_what_is_missing() {
        let mut coverage = Coverage::default();
        let mut tally = Tally::default();
        tally.marks[Mark::SyncSnap as usize] = 3;
        tally.sometimes[Sometimes::FarBehind as usize] = 1;
        coverage.add(&tally);
        coverage.add(&tally);
        let table = coverage.table(2);
        assert!(table.contains("       2          6 SyncSnap\n"), "{table}");
        assert!(table.contains("       2          2 sometimes:FarBehind (a client"), "{table}");
        let never = coverage.never();
        assert_eq!(never.len(), ROWS - 2);
        assert!(!never.contains(&"SyncSnap".to_owned()));
    }
}
