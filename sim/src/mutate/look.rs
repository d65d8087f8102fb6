//! Runs a patched simulator as a separate process: it may crash, hang, or exhaust memory.
//!
//! Owns its arguments and the parsing of its results.
#![expect(clippy::disallowed_methods, reason = "reads what a program wrote; no world is run here")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::world::options::Profile;

/// Memory limit of a patched simulator, KiB; exceeding it counts as a crash.
const MEMORY_KIB: u64 = 6 << 20;
/// CPU time beyond its budget after which it is killed: a run does not end.
const GRACE: Duration = Duration::from_secs(60);

/// The arguments of a patched simulator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    pub(super) program: &'a Path,
    /// The first seed.
    pub(super) base: u64,
    pub(super) profile: Profile,
    pub(super) budget: Duration,
    pub(super) without: &'a [String],
    /// The recipe of programs.
    pub(super) recipe: Option<&'a str>,
    /// The file for its results.
    pub(super) results: &'a Path,
}

/// A run that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// The violated promise.
    pub(super) id: String,
    pub(super) seed: u64,
    /// Its forks, in the form of `--fork`.
    pub(super) forks: String,
}

/// The result for a range of seeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    /// The first failure.
    pub(super) found: Option<Found>,
    /// Number of runs, including the failed one.
    pub(super) runs: u64,
    /// Their CPU time, ns.
    pub(super) cpu_ns: u64,
    /// Their virtual time, ns.
    pub(super) virtual_ns: u64,
}

impl Search<'_> {
    /// Runs seeds until one fails or the budget is used up.
    ///
    /// # Errors
    /// The program refuses its arguments, or cannot be started.
    pub(super) fn run(self) -> Result<Range, String> {
        let _old = fs::remove_file(self.results);
        let limits = format!(
            "ulimit -v {MEMORY_KIB}; ulimit -t {}; exec \"$0\" \"$@\"",
            (self.budget + GRACE).as_secs()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &limits]).arg(self.program);
        command.args(["--base-seed", &self.base.to_string(), "--fail-fast", "--profile"]);
        command.args([self.profile.name(), "--cpu", &format!("{}ms", self.budget.as_millis())]);
        self.narrow(&mut command);
        command.arg("--json").arg(self.results).stdout(Stdio::null());
        let output = command.output().map_err(|error| format!("sh: {error}"))?;
        if output.status.code() == Some(2) {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let text = fs::read(self.results).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        match text {
            Some(text) => Ok(Range::read(&text)),
            // The process died before the end of a run or of the batch.
            None => Ok(Range {
                found: Some(Found { id: "died".to_owned(), seed: self.base, forks: String::new() }),
                runs: 0,
                cpu_ns: u64::try_from(self.budget.as_nanos()).unwrap_or(u64::MAX),
                virtual_ns: 0,
            }),
        }
    }

    /// Adds the flags that make runs differ from those of their seeds and profile.
    fn narrow(&self, command: &mut Command) {
        if !self.without.is_empty() {
            command.args(["--without", &self.without.join(",")]);
        }
        if let Some(recipe) = self.recipe {
            command.args(["--recipe", recipe]);
        }
    }

    /// Shrinks a run. Returns faults and calls, before and after.
    pub(super) fn shrink(self, run: &Found, budget: &str, schedule: &Path) -> Option<[String; 4]> {
        let mut command = Command::new(self.program);
        command.args(["--seed", &run.seed.to_string(), "--profile", self.profile.name()]);
        if !run.forks.is_empty() {
            command.args(["--fork", &run.forks]);
        }
        command.args(["--shrink", "--shrink-budget", budget]).arg("--save-schedule").arg(schedule);
        self.narrow(&mut command);
        let output = command.stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("shrunk "))?;
        let numbers = line.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        let numbers: Vec<String> = numbers.take(4).map(str::to_owned).collect();
        numbers.try_into().ok()
    }
}

impl Range {
    /// Parses the JSON objects of a batch, up to the first failure.
    fn read(text: &str) -> Range {
        let mut range = Range { found: None, runs: 0, cpu_ns: 0, virtual_ns: 0 };
        let objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for run in objects.filter(|object| object.get("seed").is_some()) {
            let number = |name: &str| run[name].as_u64().unwrap_or(0);
            range.runs += 1;
            range.cpu_ns += number("cpu_ns");
            range.virtual_ns += number("virtual_ns");
            if let Some(id) = run["invariant"].as_str() {
                let seed = run["seed"].as_str().and_then(|text| text.strip_prefix("0x"));
                let seed = seed.and_then(|hex| u64::from_str_radix(hex, 16).ok());
                range.found = Some(Found {
                    id: id.to_owned(),
                    seed: seed.unwrap_or(0),
                    forks: run["forks"].as_str().unwrap_or_default().to_owned(),
                });
                break;
            }
        }
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: &str = r#"{"seed":"0x1","invariant":null,"cpu_ns":10,"virtual_ns":100}
{"seed":"0x2","forks":"9.500s/1","invariant":"Z1","cpu_ns":5,"virtual_ns":30}
{"seed":"0x3","invariant":"Z2","cpu_ns":5,"virtual_ns":30}
{"runs":3}"#;

    #[test]
    fn range_ends_with_its_first_failure() {
        let found = Some(Found { id: "Z1".to_owned(), seed: 2, forks: "9.500s/1".to_owned() });
        assert_eq!(Range::read(RUNS), Range { found, runs: 2, cpu_ns: 15, virtual_ns: 130 });
        let first = RUNS.lines().next().expect("a line");
        assert_eq!(Range::read(first), Range { found: None, runs: 1, cpu_ns: 10, virtual_ns: 100 });
    }

    #[test]
    fn crash_counts_as_found_and_refused_arguments_as_error() {
        let results = std::env::temp_dir().join(format!("mutate-look-{}", std::process::id()));
        let search = Search {
            program: Path::new("false"),
            base: 7,
            profile: Profile::Swarm,
            budget: Duration::from_secs(1),
            without: &[],
            recipe: None,
            results: &results,
        };
        let died = Found { id: "died".to_owned(), seed: 7, forks: String::new() };
        assert_eq!(search.run().expect("run").found, Some(died));
        let search = Search { program: Path::new("ls"), ..search };
        assert!(search.run().expect_err("unknown flags").contains("base-seed"));
    }
}
