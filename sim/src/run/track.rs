//! The speed of the simulator over its revisions: a line per measurement, and what became slower
//! since the last.
//!
//! Owns the format of that file. A file is specific to one machine.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::run::evidence_log;

/// Loss of a figure that is reported, percent.
const MAY_LOSE: f64 = 10.0;

/// The figures of one revision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    revision: String,
    cores: usize,
    figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The name that `sim speed` uses.
    pub name: String,
    /// In its own unit.
    pub value: f64,
    /// Whether smaller values are better.
    pub less: bool,
}

impl Measured {
    /// The figures of the current source tree.
    pub fn now(cores: usize, figures: Vec<Figure>) -> Measured {
        Measured { revision: evidence_log::revision().to_owned(), cores, figures }
    }

    /// Appends itself. Returns a sentence for each figure that is worse by more than a tenth than
    /// its last value on the same number of cores.
    ///
    /// # Errors
    /// The file cannot be read or written, or a line is invalid.
    pub fn track(&self, path: &Path) -> Result<Vec<String>, String> {
        let mut before = Vec::new();
        if path.exists() {
            let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
            for (line, number) in text.lines().zip(1..) {
                let measured: Measured = serde_json::from_str(line)
                    .map_err(|error| format!("line {number}: {error}"))?;
                before.push(measured);
            }
        }
        let line = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(|error| error.to_string())?;
        Ok(self.worse_than(&before))
    }

    fn worse_than(&self, before: &[Measured]) -> Vec<String> {
        let alike = |measured: &&Measured| measured.cores == self.cores;
        let mut worse = Vec::new();
        for Figure { name, value, less } in &self.figures {
            let earlier = before.iter().rev().filter(alike).find_map(|measured| {
                let figure = measured.figures.iter().find(|figure| figure.name == *name)?;
                Some((figure.value, &measured.revision))
            });
            let Some((was, revision)) = earlier else {
                continue;
            };
            let lost = 100.0 * if *less { value / was - 1.0 } else { 1.0 - value / was };
            if lost > MAY_LOSE {
                worse.push(format!(
                    "{name} is {lost:.0} % worse than at {revision}: {value} after {was}"
                ));
            }
        }
        worse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(revision: &str, cores: usize, figures: &[(&str, f64, bool)]) -> Measured {
        let figures = figures.iter().map(|(name, value, less)| Figure {
            name: (*name).into(),
            value: *value,
            less: *less,
        });
        Measured { revision: revision.into(), cores, figures: figures.collect() }
    }

    #[test]
    fn figure_worse_by_more_than_a_tenth_is_reported() {
        let before = [
            measured("a", 2, &[("events", 100.0, false), ("start", 10.0, true)]),
            measured("b", 2, &[("start", 20.0, true)]),
            measured("c", 16, &[("events", 900.0, false)]),
        ];
        let after = measured("d", 2, &[("events", 89.0, false), ("start", 22.5, true)]);
        let worse = after.worse_than(&before);
        assert_eq!(worse.len(), 2);
        assert!(worse[0].contains("events is 11 % worse than at a"), "{worse:?}");
        assert!(worse[1].contains("start is 12 % worse than at b"), "{worse:?}");
        let fine = measured("d", 2, &[("events", 91.0, false), ("start", 21.0, true)]);
        assert_eq!(fine.worse_than(&before), Vec::<String>::new());
    }
}
