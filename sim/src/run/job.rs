//! One run from seed to report.
//!
//! Owns the measurement of a run's cost. Only this module reads the machine's clocks; `batch`,
//! `shrink` and `speed` call its functions. No simulated world depends on them.

use std::time::Instant;

use zabkeeper_core::io::Mark;

use crate::check::guard;
use crate::engine::seed::Seeds;
use crate::record::trace::TraceSink;
use crate::replay::schedule::Schedule;
use crate::world::options::{Options, Pinned, Profile};
use crate::world::stop::Stop;
use crate::world::{Outcome, World};

/// What to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The seed of every random stream.
    pub seed: u64,
    /// The preset that options are drawn from.
    pub profile: Profile,
    /// Options that the command line fixes instead of drawing them.
    pub pinned: Pinned,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The job that ran.
    pub job: Job,
    /// The options as drawn.
    pub options: Options,
    /// The world's result.
    pub outcome: Outcome,
    /// Marks that the schedule declares as its goal and that the run did not hit.
    pub missed: Vec<Mark>,
    /// Elapsed wall time, ns.
    pub wall_ns: u64,
    /// CPU time of this thread, ns; the wall time where the system does not report CPU time. At
    /// least 1.
    pub cpu_ns: u64,
}

/// Variations that must not change a run's fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Surroundings {
    /// Salt for the keys of all hash maps.
    pub(crate) map_salt: u64,
    /// Disables all checks: observing must not influence the run.
    pub(crate) unchecked: bool,
}

impl Job {
    /// Runs the job. `sink`: the destination of its trace; `compare`: does the trace keep its
    /// hashes?
    pub fn run(&self, sink: TraceSink, compare: bool) -> Report {
        self.run_in(Surroundings::default(), sink, compare)
    }

    /// Like [`Job::run`], with variations that must not change the result.
    pub(crate) fn run_in(&self, around: Surroundings, sink: TraceSink, compare: bool) -> Report {
        let mut options = Options::draw(Seeds::new(self.seed), self.profile, &self.pinned);
        options.map_salt = around.map_salt;
        let world = |options| {
            let world = World::new(Seeds::new(self.seed), options, sink, compare);
            if around.unchecked { world.unchecked() } else { world }
        };
        measured(self.clone(), options, world)
    }

    /// Like [`Job::run`], but ends at `stop`.
    pub fn run_to(&self, stop: Stop, sink: TraceSink) -> Report {
        let options = Options::draw(Seeds::new(self.seed), self.profile, &self.pinned);
        let world =
            |options| World::new(Seeds::new(self.seed), options, sink, false).stopping(stop);
        measured(self.clone(), options, world)
    }

    /// Like [`Job::run`], and also returns the decisions as a schedule.
    pub fn record(&self, sink: TraceSink) -> (Report, Schedule) {
        let options = Options::draw(Seeds::new(self.seed), self.profile, &self.pinned);
        let world = |options| World::new(Seeds::new(self.seed), options, sink, false).recorded();
        let report = measured(self.clone(), options, world);
        let schedule = Schedule::of_run(self.seed, &report.options, Vec::new());
        let schedule = schedule.with_outcome(&report.outcome);
        (report, schedule)
    }
}

/// Runs a schedule and records its decisions.
pub fn replay(schedule: &Schedule, sink: TraceSink, compare: bool) -> Report {
    let (job, options) = of_schedule(schedule);
    let mut report =
        measured(job, options, |_| World::scripted(schedule, sink, compare).recorded());
    report.missed.clone_from(&schedule.reaches);
    report.missed.retain(|mark| !report.outcome.counters.has_hit(*mark));
    report
}

/// Runs a schedule up to `stop`.
pub fn replay_to(schedule: &Schedule, stop: Stop, sink: TraceSink) -> Report {
    let (job, options) = of_schedule(schedule);
    measured(job, options, |_| World::scripted(schedule, sink, false).stopping(stop))
}

fn of_schedule(schedule: &Schedule) -> (Job, Options) {
    let options = schedule.options.clone();
    // A schedule carries its options, so profile and pinned options are placeholders.
    let pinned = Pinned { custom: options.custom.clone(), ..Pinned::default() };
    (Job { seed: schedule.seed, profile: Profile::Calm, pinned }, options)
}

pub(crate) fn measured(job: Job, options: Options, world: impl FnOnce(Options) -> World) -> Report {
    let (wall, cpu) = (wall_clock(), cpu_clock());
    // A panic in one world must not lose the results of the other worlds of a long batch.
    let run = guard::catch(|| world(options.clone()).run());
    let outcome = run.unwrap_or_else(Outcome::panicked);
    let wall_ns = u64::try_from(wall.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cpu_ns = match (cpu, cpu_clock()) {
        (Some(before), Some(after)) => after - before,
        (None, _) | (_, None) => wall_ns,
    };
    Report { job, options, outcome, missed: Vec::new(), wall_ns, cpu_ns: cpu_ns.max(1) }
}

/// The machine's monotonic clock, for cost measurements.
#[expect(clippy::disallowed_methods, reason = "measures the simulator, not the simulated")]
pub(crate) fn wall_clock() -> Instant {
    Instant::now()
}

/// CPU time used by this thread, ns (Linux only).
fn cpu_clock() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Peak resident memory of this process, bytes (Linux only).
pub(crate) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_in_world_is_a_simulator_failure() {
        let job = Job { seed: 3, profile: Profile::Default, pinned: Pinned::default() };
        let options = Options::draw(Seeds::new(3), Profile::Default, &job.pinned);
        let report = measured(job, options, |_| panic!("a part is missing"));
        let failure = report.outcome.failure.expect("it has failed");
        assert_eq!(failure.id, "SIM");
        assert!(failure.evidence[0].starts_with("a part is missing at "), "{failure}");
    }
}
