//! The command line.
//!
//! Owns flags, and which of them conflict; `values` parses their values, `repro` prints the flags
//! of a run. Must not run anything.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use zabkeeper_core::Instant;

use crate::check::checker::Checker;
use crate::clients::program::Recipe;
use crate::clients::workload::OpMix;
use crate::engine::fork::{Fork, Place};
use crate::engine::selection::Selection;
use crate::faults::buggify::Choice;
use crate::faults::targets::Rule;
use crate::record::trace::{Detail, TraceSink, View};
use crate::replay::shrink::Budget;
use crate::run::job::Job;
use crate::world::options::{CLIENTS_MAX, Pinned, Profile, SERVERS_MAX};
use crate::world::stop::{Break, Stop};
use values::{
    parse_budget, parse_duration, parse_forks, parse_hash, parse_instant, parse_jobs, parse_place,
    parse_profile, parse_range, parse_seed, parse_time,
};

pub use repro::repro_of;

mod repro;
#[cfg(test)]
mod tests;
mod values;

/// Simulates Zabkeeper under faults: every run is a function of its seed.
#[derive(Parser, Clone, Debug)]
#[command(name = "sim", after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub struct Flags {
    /// A command other than simulating.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Run this seed: any number below 2^64, decimal or 0x hex; or a git hash, of which the first
    /// 16 digits count.
    #[arg(long, value_parser = parse_seed, value_name = "N")]
    pub seed: Option<u64>,
    /// A batch: the seeds from A up to but excluding B.
    #[arg(long, value_parser = parse_range, value_name = "A..B", conflicts_with = "seed")]
    pub seeds: Option<(u64, u64)>,
    /// A batch: this many seeds from --base-seed on.
    #[arg(long, value_name = "N", conflicts_with_all = ["seed", "seeds"])]
    pub runs: Option<u64>,
    /// First seed of --runs, --for and --cpu.
    #[arg(long, value_parser = parse_seed, value_name = "N", default_value = "1", conflicts_with_all = ["seed", "seeds", "schedule"])]
    pub base_seed: u64,
    /// A batch: as many seeds as fit into this wall time (90s, 3m, 1h).
    #[arg(long = "for", value_parser = parse_duration, value_name = "TIME", conflicts_with_all = ["seed", "seeds", "runs"])]
    pub wall: Option<Duration>,
    /// A batch: as many seeds as fit into this CPU time (90s, 3m, 1h).
    #[arg(long, value_parser = parse_duration, value_name = "TIME", conflicts_with_all = ["seed", "seeds", "runs", "wall"])]
    pub cpu: Option<Duration>,
    /// Worlds to run concurrently, one thread each: by default 1, and for shrinking the number of
    /// CPUs; results do not depend on it.
    #[arg(long, value_parser = parse_jobs, value_name = "N")]
    pub jobs: Option<usize>,
    /// Virtual length of the phase of faults: by default 60s, with the swarm 15s to 120s and at
    /// most 300,000 events, with lite 10s.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// Number of servers, 1 to 7, instead of the profile's.
    #[arg(long, visible_alias = "nodes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SERVERS_MAX)))]
    pub servers: Option<u32>,
    /// Number of clients, at most 10,000, instead of the profile's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(CLIENTS_MAX)))]
    pub clients: Option<u32>,
    /// Preset: default, swarm, calm, crashy, disk, net, session, lite, perf.
    #[arg(long, value_parser = parse_profile, default_value = "default", value_name = "NAME")]
    pub profile: Profile,
    /// Faults to select: +name, -name, only=name, comma separated; `list` prints the catalogue and
    /// the names of groups.
    #[arg(long, default_value = "", value_name = "LIST", allow_hyphen_values = true)]
    pub faults: String,
    /// Operations of clients: +name, -name, only=name, comma separated; `list` prints the names.
    #[arg(long, default_value = "", value_name = "LIST", allow_hyphen_values = true)]
    pub ops: String,
    /// A fault that is injected when a mark is hit, instead of those drawn:
    /// `MARK[#n][@role]=FAULT`, repeatable; roles are looking, leading, following. `off` for none,
    /// `list` prints all marks.
    #[arg(long, value_name = "RULE")]
    pub at_mark: Vec<String>,
    /// A power failure between the outputs of the step that hits a mark: `MARK[#n][@role]`,
    /// repeatable.
    #[arg(long, value_name = "PLACE")]
    pub crash_at: Vec<String>,
    /// Promises whose violation is ignored, comma separated, to see which other checks detect a
    /// bug.
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub without: Vec<String>,
    /// Unlikely settings: off, only=NAMES, comma separated; `list` prints them.
    #[arg(long, default_value = "", value_name = "LIST")]
    pub buggify: String,
    /// Programs in each run that can have them, and their recipe: Lock, Queue, ...; a wrong name
    /// prints all of them.
    #[arg(long, value_parser = Recipe::parse, value_name = "NAME")]
    pub recipe: Option<Recipe>,
    /// Run a fork of the seed, as `REPRO` lines print it: MARK#n/NUMBER or TIME/NUMBER.
    #[arg(long, value_parser = parse_forks, value_name = "FORK")]
    pub fork: Option<Forks>,
    /// A batch: forks of one seed at this hit of a mark or at this time (MARK#n, 12.5s).
    #[arg(long, value_parser = parse_place, value_name = "PLACE", conflicts_with_all = ["seeds", "runs", "wall", "cpu"])]
    pub fork_at: Option<Place>,
    /// Number of forks that --fork-at runs; 0 disables the forks of a swarm batch, a quarter of its
    /// runs.
    #[arg(long, value_name = "N")]
    pub forks: Option<u64>,
    /// The trace of one run on standard output: off, state (a line for each change of a server),
    /// msg, disk, all.
    #[arg(long, default_value = "off", value_parser = ["off", "state", "msg", "disk", "all"], value_name = "LEVEL")]
    pub trace: String,
    /// Print no trace before this virtual time (4.2s, 300ms).
    #[arg(long, value_parser = parse_instant, value_name = "TIME")]
    pub trace_from: Option<Instant>,
    /// Print only the events of these servers (1,3), and faults and phases.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u8).range(1..8))]
    pub trace_nodes: Vec<u8>,
    /// Write a single run as an HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The virtual time of --dump.
    #[arg(long, value_parser = parse_instant, value_name = "TIME", requires = "dump")]
    pub at: Option<Instant>,
    /// Write a file for each server, and for clients and messages in flight, at the time of --at or
    /// at the end.
    #[arg(long, value_name = "DIR")]
    pub dump: Option<PathBuf>,
    /// Stop a single run at this virtual time, and print the state.
    #[arg(long, value_parser = parse_instant, value_name = "TIME", conflicts_with_all = ["check_determinism", "save_schedule", "shrink"])]
    pub until: Option<Instant>,
    /// Stop a single run after the event with this number, as traces print it.
    #[arg(long, value_name = "N", conflicts_with_all = ["check_determinism", "save_schedule", "shrink"])]
    pub until_event: Option<u64>,
    /// Stop a single run when a server first hits this mark (SyncTrunc), or this promise is
    /// violated (Z10; violations of other promises are ignored).
    #[arg(long, value_parser = Break::parse, value_name = "MARK|PROMISE", conflicts_with_all = ["check_determinism", "save_schedule", "shrink"])]
    pub break_on: Option<Break>,
    /// Print the drawn settings and all counters.
    #[arg(long, visible_alias = "verbose")]
    pub counts: bool,
    /// Run each seed twice, under conditions that must not influence the run, and compare.
    #[arg(long)]
    pub check_determinism: bool,
    /// The trace hash that the run must have, to compare builds and machines.
    #[arg(long, value_parser = parse_hash, value_name = "HASH")]
    pub expect_hash: Option<u128>,
    /// Write the decisions of the run to this file, for --schedule; with --shrink, the shrunk
    /// schedule.
    #[arg(long, value_name = "FILE", conflicts_with = "check_determinism")]
    pub save_schedule: Option<PathBuf>,
    /// Run all schedules of this folder.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["seed", "seeds", "runs", "wall", "cpu", "schedule", "check_determinism", "profile", "servers", "clients", "faults", "ops", "duration", "at_mark", "crash_at", "trace", "html", "dump", "until", "until_event", "break_on", "shrink", "save_schedule", "json", "coverage", "evidence_log", "expect_hash", "buggify", "fork", "fork_at"])]
    pub corpus: Option<PathBuf>,
    /// Run this schedule instead of a seed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "runs", "wall", "cpu", "check_determinism", "profile", "servers", "clients", "faults", "ops", "duration", "at_mark", "crash_at"])]
    pub schedule: Option<PathBuf>,
    /// If the run fails, search for a schedule with as few steps as possible that violates the same
    /// promise.
    #[arg(long, conflicts_with = "check_determinism")]
    pub shrink: bool,
    /// The limit of --shrink: a wall time (60s, 5m), with which the result depends on the speed of
    /// the machine; or a number of runs (2000runs), with which it does not.
    #[arg(long, value_parser = parse_budget, value_name = "BUDGET", default_value = "60s", requires = "shrink")]
    pub shrink_budget: Budget,
    /// Write results as JSON to this file: one object per run, and one for the batch.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the coverage table to this file: in how many runs each mark was hit, and each
    /// condition occurred. The counts of an existing table are added.
    #[arg(long, value_name = "FILE")]
    pub coverage: Option<PathBuf>,
    /// Stop a batch at the first failure.
    #[arg(long)]
    pub fail_fast: bool,
    /// Stop a batch after this many failures, by default 10.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_failures: Option<u64>,
    /// End a batch after this wall time, whatever is left of it: exit code 7, unless a run has
    /// failed. Running jobs finish.
    #[arg(long, value_parser = parse_duration, value_name = "TIME", conflicts_with_all = ["seed", "corpus", "schedule"])]
    pub timeout_wall: Option<Duration>,
    /// Append a line about the batch to sim/evidence.jsonl.
    #[arg(long)]
    pub evidence_log: bool,
    /// Refuse to run unless seeds have this format; failures print the name of their format.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Print the speed.
    #[arg(long)]
    pub stats: bool,
}

const AFTER_HELP: &str = "Exit codes: 0 passed, 1 safety violation, 2 bad usage, 3 liveness \
violation, 4 panic, 5 determinism, 6 simulator self-check, 7 inconclusive, 130 interrupted. \
Without --seed, --seeds, \
--runs, --for or --cpu, seed 1 is run. The guide is docs/simulator.md.";

/// Commands other than simulating.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Measures how soon mutants (planted bugs) are detected.
    #[command(alias = "power")]
    Mutate(MutateFlags),
    /// Measures the speed of the simulator, and compares it with its floors.
    Speed(SpeedFlags),
}

/// Flags of `speed`.
#[derive(Args, Clone, Debug)]
pub struct SpeedFlags {
    /// Only these figures.
    pub only: Vec<String>,
    /// CPU time for each figure.
    #[arg(long, value_parser = parse_time, value_name = "TIME", default_value = "5s")]
    pub time: Duration,
    /// Write the table to this file as well.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Append a line with the figures to this file. Figures worse by more than a tenth than in
    /// earlier lines are named, and the exit status is 1.
    #[arg(long, value_name = "FILE")]
    pub track: Option<PathBuf>,
}

/// Flags of `mutate`.
#[derive(Args, Clone, Debug)]
pub struct MutateFlags {
    /// Patches to apply, any number; by default those of sim/mutants and sim/mutants/harmless.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub patch: Vec<PathBuf>,
    /// Only patches whose path contains one of these words.
    pub only: Vec<String>,
    /// CPU seconds for each patch and range of seeds.
    #[arg(long, value_parser = parse_duration, value_name = "TIME", default_value = "120s")]
    pub budget: Duration,
    /// Number of disjoint ranges of seeds in which each patch is searched.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub ranges: u32,
    /// Offset of the ranges; other values select other ranges.
    #[arg(long, value_parser = parse_seed, value_name = "N", default_value = "0")]
    pub offset: u64,
    /// The preset of the runs.
    #[arg(long, value_parser = parse_profile, default_value = "swarm", value_name = "NAME")]
    pub profile: Profile,
    /// Promises whose violation is ignored, comma separated.
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub without: Vec<String>,
    /// For each promise that detected a patch: search again without that promise, in the same
    /// ranges, with this budget for each.
    #[arg(long, value_parser = parse_duration, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10s")]
    pub ablate: Option<Duration>,
    /// Shrink the first failing run of each patch within this budget (60s, 2000runs).
    #[arg(long, value_parser = parse_budget, value_name = "BUDGET")]
    pub shrink: Option<Budget>,
    /// Build each patch in a quarter of the time; its runs then take half as much more CPU time.
    #[arg(long)]
    pub quick: bool,
    /// Ranges to search concurrently.
    #[arg(long, value_parser = parse_jobs, default_value = "1", value_name = "N")]
    pub jobs: usize,
    /// Folder for the copy of the source tree and for builds; it is kept, which makes the next
    /// builds faster.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Write the tables to this file as well.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl Flags {
    /// Refuses combinations in which a flag would have no effect.
    ///
    /// # Errors
    /// Names the two flags that conflict, and why.
    pub fn agree(&self) -> Result<(), String> {
        let many = self.asks_for_many();
        let single = given(&[
            ("--html", self.html.is_some()),
            ("--dump", self.dump.is_some()),
            ("--until", self.until.is_some()),
            ("--until-event", self.until_event.is_some()),
            ("--break-on", self.break_on.is_some()),
            ("--trace", self.trace != "off"),
            ("--shrink", self.shrink),
            ("--save-schedule", self.save_schedule.is_some()),
            ("--expect-hash", self.expect_hash.is_some()),
            ("--fork", self.fork.is_some()),
        ]);
        if let (Some(many), Some(single)) = (many, single) {
            return Err(format!("{single} is for a single run, and {many} asks for many"));
        }
        let of_batch = given(&[
            ("--evidence-log", self.evidence_log),
            ("--fail-fast", self.fail_fast),
            ("--max-failures", self.max_failures.is_some()),
            ("--jobs", self.jobs.is_some() && !self.shrink),
            ("--forks", self.forks.is_some()),
            ("--timeout-wall", self.timeout_wall.is_some()),
        ]);
        if let (None, Some(flag)) = (many, of_batch) {
            return Err(format!(
                "{flag} is for a batch: --seeds, --runs, --for, --cpu or --fork-at"
            ));
        }
        let of_seed =
            given(&[("--fork", self.fork.is_some()), ("--fork-at", self.fork_at.is_some())]);
        if let Some(flag) = of_seed.filter(|_| self.seed.is_none()) {
            return Err(format!("{flag} is about another future of a seed: give --seed"));
        }
        let of_draws =
            given(&[("--buggify", !self.buggify.is_empty()), ("--recipe", self.recipe.is_some())]);
        if let Some(flag) = of_draws.filter(|_| self.schedule.is_some()) {
            return Err(format!(
                "{flag} is for what is drawn from a seed; a schedule says it itself"
            ));
        }
        let of_trace = given(&[
            ("--trace-from", self.trace_from.is_some()),
            ("--trace-nodes", !self.trace_nodes.is_empty()),
        ]);
        if let Some(flag) = of_trace.filter(|_| self.trace == "off") {
            return Err(format!("{flag} is about what --trace prints"));
        }
        let off = self.at_mark.iter().any(|text| text == "off");
        if off && self.at_mark.len() + self.crash_at.len() > 1 {
            return Err("--at-mark off: then no other fault may be injected at marks".to_owned());
        }
        let files = [&self.html, &self.json, &self.coverage, &self.save_schedule];
        let files = Vec::from_iter(files.into_iter().flatten());
        if let Some(path) = files.iter().find(|path| files.iter().filter(|p| p == path).count() > 1)
        {
            return Err(format!("{}: two things would be written there", path.display()));
        }
        if self.check_determinism && self.trace != "off" {
            return Err(
                "--check-determinism compares two runs and tells of none: leave out --trace"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The pinned options of all runs.
    ///
    /// # Errors
    /// A selection or a rule is invalid.
    pub fn pinned(&self) -> Result<Pinned, String> {
        let buggify = Choice::parse(&self.buggify).map_err(|why| format!("--buggify: {why}"))?;
        let faults = Selection::parse(&self.faults).map_err(|why| format!("--faults: {why}"))?;
        if let Some(name) = self.without.iter().find(|name| !Checker::may_go_without(name)) {
            return Err(format!("--without: {name:?} is no promise that a run can go on without"));
        }
        let ops = Selection::parse(&self.ops).map_err(|why| format!("--ops: {why}"))?;
        let mut left = OpMix::usual();
        left.select(&ops);
        if left.is_empty() {
            return Err(format!("--ops {}: nothing is left that clients could ask for", self.ops));
        }
        let Flags { duration, servers, clients, recipe, .. } = *self;
        let (rules, without) = (self.rules()?, self.without.clone());
        let forks = self.fork.clone().unwrap_or_default().0;
        Ok(Pinned {
            duration,
            servers,
            clients,
            faults,
            ops,
            rules,
            without,
            forks,
            buggify,
            recipe,
            custom: None,
        })
    }

    /// The faults at marks, if the flags specify them.
    fn rules(&self) -> Result<Option<Vec<Rule>>, String> {
        let given = self
            .at_mark
            .iter()
            .filter(|text| *text != "off")
            .map(|text| Rule::parse(text).map_err(|why| format!("--at-mark {text}: {why}")));
        let crashes = self
            .crash_at
            .iter()
            .map(|text| Rule::parse_crash(text).map_err(|why| format!("--crash-at {text}: {why}")));
        let drawn = self.at_mark.is_empty() && self.crash_at.is_empty();
        let rules = given.chain(crashes).collect::<Result<Vec<Rule>, String>>()?;
        Ok((!drawn).then_some(rules))
    }

    /// The flag or command that only the runs of the simulator's own clients have.
    pub fn not_of_a_workload(&self) -> Option<&'static str> {
        match &self.command {
            Some(Command::Mutate(_)) => Some("mutate"),
            Some(Command::Speed(_)) => Some("speed"),
            None => {
                given(&[("--evidence-log", self.evidence_log), ("--recipe", self.recipe.is_some())])
            }
        }
    }

    /// The job of one seed with these flags.
    pub fn job(&self, seed: u64, pinned: &Pinned) -> Job {
        Job { seed, profile: self.profile, pinned: pinned.clone() }
    }

    /// Where the trace of a single run goes.
    pub fn sink(&self) -> TraceSink {
        let nodes = self.trace_nodes.iter().fold(0, |bits, server| bits | 1 << server);
        let view = View { from: self.trace_from.unwrap_or_default(), nodes };
        let detail = |disk, bytes| TraceSink::Print(Detail { view, messages: true, disk, bytes });
        match self.trace.as_str() {
            "state" => TraceSink::States(view),
            "msg" => detail(false, false),
            "disk" => detail(true, false),
            "all" => detail(true, true),
            _ => TraceSink::Off,
        }
    }

    /// Where a single run ends early.
    pub fn stop(&self) -> Stop {
        Stop { until: self.until, event: self.until_event, on: self.break_on }
    }

    /// Whether the flags describe a batch.
    pub fn is_batch(&self) -> bool {
        self.asks_for_many().is_some()
    }

    /// The flag that does.
    fn asks_for_many(&self) -> Option<&'static str> {
        given(&[
            ("--seeds", self.seeds.is_some()),
            ("--runs", self.runs.is_some()),
            ("--for", self.wall.is_some()),
            ("--cpu", self.cpu.is_some()),
            ("--fork-at", self.fork_at.is_some()),
        ])
    }
}

/// The first of these flags that is given.
fn given(flags: &[(&'static str, bool)]) -> Option<&'static str> {
    flags.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name)
}

/// The value of `--fork`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forks(pub Vec<Fork>);
