//! The coverage table of a batch: marks of the core, and conditions of [`Sometimes`].
//!
//! Owns counting over runs and the format of the table. Must not decide whether the coverage
//! suffices.

use std::fmt::Write;

use zabkeeper_core::io::Mark;

use crate::record::counters::Counters;
use crate::record::sometimes::Sometimes;

const ROWS: usize = Mark::ALL.len() + Sometimes::ALL.len();

/// For each row, the number of runs that reached it, and the number of hits.
#[derive(Clone, Debug)]
pub struct Coverage {
    of_runs: u64,
    runs: [u64; ROWS],
    times: [u64; ROWS],
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage { of_runs: 0, runs: [0; ROWS], times: [0; ROWS] }
    }
}

impl Coverage {
    /// Adds a run.
    pub fn add(&mut self, counters: &Counters) {
        self.of_runs += 1;
        let all = counters.marks.iter().chain(&counters.sometimes);
        for ((runs, times), more) in self.runs.iter_mut().zip(&mut self.times).zip(all) {
            *runs += u64::from(*more > 0);
            *times += more;
        }
    }

    /// One line per row: runs, hits, name, in ascending order, so rows never reached come first.
    pub fn table(&self) -> String {
        let mut rows: Vec<(u64, u64, String)> = names()
            .into_iter()
            .zip(self.runs.into_iter().zip(self.times))
            .map(|(name, (runs, times))| (runs, times, name))
            .collect();
        rows.sort();
        let mut text = format!("# of {} runs: in how many, how often, what\n", self.of_runs);
        for (runs, times, name) in rows {
            let _infallible = writeln!(text, "{runs:>8} {times:>10} {name}");
        }
        text
    }

    /// Adds a table that an earlier batch wrote.
    ///
    /// # Errors
    /// Names the line that is not a row of such a table. Rows with unknown names are skipped.
    pub fn merge(&mut self, table: &str) -> Result<(), String> {
        let names = names();
        for line in table.lines() {
            if let Some(rest) = line.strip_prefix("# of ") {
                let (runs, _) = first_number(rest).ok_or_else(|| not_a_row(line))?;
                self.of_runs = self.of_runs.saturating_add(runs);
                continue;
            }
            let (runs, rest) = first_number(line).ok_or_else(|| not_a_row(line))?;
            let (times, name) = first_number(rest).ok_or_else(|| not_a_row(line))?;
            if let Some(row) = names.iter().position(|known| known == name.trim_start()) {
                self.runs[row] = self.runs[row].saturating_add(runs);
                self.times[row] = self.times[row].saturating_add(times);
            }
        }
        Ok(())
    }

    /// The rows that were never reached.
    pub fn never(&self) -> Vec<String> {
        names().into_iter().zip(self.runs).filter(|(_, n)| *n == 0).map(|(name, _)| name).collect()
    }
}

/// Splits off the number at the start.
fn first_number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start();
    let (number, rest) = text.split_once(' ')?;
    Some((number.parse().ok()?, rest))
}

fn not_a_row(line: &str) -> String {
    format!("{line:?} is no line of a table of what was reached; remove the file, or name another")
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
    fn table_counts_runs_and_hits_and_lists_unreached_rows() {
        let mut coverage = Coverage::default();
        let mut counters = Counters::default();
        counters.marks[Mark::SyncSnap as usize] = 3;
        counters.sometimes[Sometimes::FarBehind as usize] = 1;
        coverage.add(&counters);
        coverage.add(&counters);
        let table = coverage.table();
        assert!(table.contains("       2          6 SyncSnap\n"), "{table}");
        assert!(table.contains("       2          2 sometimes:FarBehind (a client"), "{table}");
        let never = coverage.never();
        assert_eq!(never.len(), ROWS - 2);
        assert!(!never.contains(&"SyncSnap".to_owned()));
    }

    #[test]
    fn merged_table_adds_counts_and_skips_unknown_rows() {
        let mut coverage = Coverage::default();
        let mut counters = Counters::default();
        counters.marks[Mark::SyncSnap as usize] = 3;
        counters.sometimes[Sometimes::FarBehind as usize] = 1;
        coverage.add(&counters);
        coverage.merge(&coverage.table()).expect("a table");
        let both = coverage.table();
        assert!(both.starts_with("# of 2 runs"), "{both}");
        assert!(both.contains("       2          6 SyncSnap\n"), "{both}");
        assert!(both.contains("       2          2 sometimes:FarBehind (a client"), "{both}");
        coverage.merge("       1          1 AMarkOfThePast\n").expect("passed over");
        assert_eq!(coverage.table(), both);
        let why = coverage.merge("something else\n").expect_err("no table");
        assert!(why.contains("\"something else\""), "{why}");
    }
}
