//! One run from seed to report.
//!
//! Owns the measuring of its cost. Clocks of the machine are read here and nowhere else; `batch`, `shrink` and `speed`
//! ask for the time here. No run depends on it.

use std::time::Instant;

use zabkeeper_core::io::Mark;

use crate::guard;
use crate::options::{Options, Pinned, Profile};
use crate::schedule::Schedule;
use crate::seed::Seeds;
use crate::stop::Stop;
use crate::trace::Story;
use crate::world::{Outcome, World};

/// What is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Of everything random.
    pub seed: u64,
    /// The preset.
    pub profile: Profile,
    /// What is not drawn.
    pub pinned: Pinned,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// What was run.
    pub job: Job,
    /// As drawn.
    pub options: Options,
    /// How it ended.
    pub outcome: Outcome,
    /// What its schedule is there to reach, and it has not.
    pub missed: Vec<Mark>,
    /// Time that it took, ns.
    pub wall_ns: u64,
    /// Time of this thread's processor, ns; the wall's where the system does not tell.
    pub cpu_ns: u64,
}

/// What must not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Surroundings {
    /// Other keys for all hash maps.
    pub(crate) map_salt: u64,
    /// No promise is checked: whoever looks on must not be noticed.
    pub(crate) unjudged: bool,
}

impl Job {
    /// Runs it, telling its story where wanted.
    pub fn run(&self, story: Story, compare: bool) -> Report {
        self.run_in(Surroundings::default(), story, compare)
    }

    /// The same in other surroundings, which must change nothing.
    pub(crate) fn run_in(&self, around: Surroundings, story: Story, compare: bool) -> Report {
        let mut options = Options::draw(Seeds::new(self.seed), self.profile, &self.pinned);
        options.map_salt = around.map_salt;
        let world = |options| {
            let world = World::new(Seeds::new(self.seed), options, story, compare);
            if around.unjudged { world.unjudged() } else { world }
        };
        measured(self.clone(), options, world)
    }

    /// The same, up to where it is to stop.
    pub fn run_to(&self, stop: Stop, story: Story) -> Report {
        let options = Options::draw(Seeds::new(self.seed), self.profile, &self.pinned);
        let world =
            |options| World::new(Seeds::new(self.seed), options, story, false).stopping(stop);
        measured(self.clone(), options, world)
    }

    /// The same, and keeps what was decided.
    pub fn record(&self, story: Story) -> (Report, Schedule) {
        let options = Options::draw(Seeds::new(self.seed), self.profile, &self.pinned);
        let world = |options| World::new(Seeds::new(self.seed), options, story, false).recorded();
        let report = measured(self.clone(), options, world);
        let schedule = Schedule::of_run(self.seed, &report.options, Vec::new());
        let schedule = schedule.told(&report.outcome);
        (report, schedule)
    }
}

/// Runs a schedule, and keeps what it did.
pub fn replay(schedule: &Schedule, story: Story, compare: bool) -> Report {
    let (job, options) = of_schedule(schedule);
    let mut report =
        measured(job, options, |_| World::scripted(schedule, story, compare).recorded());
    report.missed.clone_from(&schedule.reaches);
    report.missed.retain(|mark| !report.outcome.tally.has_hit(*mark));
    report
}

/// The same, up to where it is to stop.
pub fn replay_to(schedule: &Schedule, stop: Stop, story: Story) -> Report {
    let (job, options) = of_schedule(schedule);
    measured(job, options, |_| World::scripted(schedule, story, false).stopping(stop))
}

fn of_schedule(schedule: &Schedule) -> (Job, Options) {
    let options = schedule.options.clone();
    // Nothing of it is drawn.
    (Job { seed: schedule.seed, profile: Profile::Calm, pinned: Pinned::default() }, options)
}

pub(crate) fn measured(job: Job, options: Options, world: impl FnOnce(Options) -> World) -> Report {
    let (wall, cpu) = (wall_clock(), cpu_clock());
    // In a long batch one world that falls apart must not take the others' results with it.
    let run = guard::catch(|| world(options.clone()).run());
    let outcome = run.unwrap_or_else(Outcome::panicked);
    let wall_ns = u64::try_from(wall.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cpu_ns = match (cpu, cpu_clock()) {
        (Some(before), Some(after)) => after - before,
        (None, _) | (_, None) => wall_ns,
    };
    Report { job, options, outcome, missed: Vec::new(), wall_ns, cpu_ns: cpu_ns.max(1) }
}

/// The machine's clock, for costs.
#[expect(clippy::disallowed_methods, reason = "measures the simulator, not the simulated")]
pub(crate) fn wall_clock() -> Instant {
    Instant::now()
}

/// What this thread has used of a processor, ns, where the system tells (Linux).
fn cpu_clock() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Bytes of memory that this process has needed at most, where the system tells (Linux).
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
    fn a_world_that_falls_apart_is_a_failure_of_the_simulator() {
        let job = Job { seed: 3, profile: Profile::Default, pinned: Pinned::default() };
        let options = Options::draw(Seeds::new(3), Profile::Default, &job.pinned);
        let report = measured(job, options, |_| panic!("a part is missing"));
        let failure = report.outcome.failure.expect("it has failed");
        assert_eq!(failure.id, "SIM");
        assert!(failure.evidence[0].starts_with("a part is missing at "), "{failure}");
    }
}
