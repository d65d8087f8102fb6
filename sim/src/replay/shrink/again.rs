//! Switches from one run to another one that violates the same promise, when the first cannot be
//! shrunk further.
//!
//! Owns when that happens, and which runs are tried. The steps that a failure needs may be so
//! entangled in one run that none can be omitted, and isolated in another. The sooner a run fails,
//! the fewer steps it has.

use std::time::Duration;

use zabkeeper_core::Instant;

use super::moves::{FEW, SEEDS_MIN};
use super::{Search, Turn, hit};
use crate::engine::seed::Seeds;
use crate::record::trace::TraceSink;
use crate::replay::schedule::Schedule;
use crate::run::job::Job;
use crate::world::World;
use crate::world::options::Options;

/// The budget is cut into this many parts. A run gets one, and another one if the last part
/// removed enough of its steps; a search for another run gets two.
const PART: u64 = 8;
/// Losing this fraction of its steps is enough.
const LEAST_LOSS: usize = 4;
/// This fraction of the budget is reserved for the smallest schedule.
const REST: u64 = 3;
/// A run that fails within this many events is cheap to shrink.
const EVENTS: u64 = 40_000;
/// Minimum length of a run, in which servers elect a leader and clients connect.
const SHORTEST: Duration = Duration::from_secs(2);

/// The last run that failed.
struct Last {
    options: Options,
    /// When, and after how many events: the next run must fail after fewer. Unlimited for the first
    /// run.
    failed: (Instant, u64),
    /// The job of the last run that was tried; its pins also hold for other seeds.
    job: Job,
}

impl Search {
    /// Like [`Search::run`], but tries other runs while the schedule is long. The smallest schedule
    /// gets the rest of the budget.
    pub(super) fn run_or_another(&mut self, first: &Job) {
        let mut job = first.clone();
        job.pinned.forks.clear();
        let options = Options::draw(Seeds::new(job.seed), job.profile, &job.pinned);
        let mut last = Last { options, failed: (self.failed.0, u64::MAX), job };
        self.run_while_it_helps();
        while self.is_long() && self.spent(0) < self.whole() - self.whole() / REST {
            let before = (self.best.clone(), self.failed, self.seeds, self.other);
            let weight = self.weight();
            self.look(&mut last);
            self.run_while_it_helps();
            if self.weight() >= weight {
                (self.best, self.failed, self.seeds, self.other) = before;
                self.done = false;
            }
        }
        self.share = Turn::WHOLE;
        if self.is_long() || !self.done {
            self.run();
        }
    }

    /// Repeats shares as long as they help.
    fn run_while_it_helps(&mut self) {
        let mut before = usize::MAX;
        while self.is_long() && self.weight().0 <= before - before / LEAST_LOSS {
            before = self.weight().0;
            self.give(1);
            self.run();
        }
    }

    /// Tries other runs until one fails, then for the same time again ones that fail sooner.
    fn look(&mut self, last: &mut Last) {
        let begun = self.spent(0);
        self.give(2);
        if self.another(last) {
            let found = self.spent(0);
            self.share.end = self.share.end.min(found + (found - begun));
            while self.another(last) {}
        }
    }

    fn is_long(&self) -> bool {
        self.weight().0 > FEW
    }

    /// Begins a share of this many parts.
    fn give(&mut self, parts: u64) {
        let part = parts * (self.whole() / PART) + 1;
        self.share = Turn { part, end: self.spent(0).saturating_add(part) };
    }

    /// Switches to the next run that fails in the same way.
    fn another(&mut self, last: &mut Last) -> bool {
        let trips = self.best.trips;
        let seeds = (1..).map(|further| last.job.seed.wrapping_add(further));
        let (tried, found) = self.first(seeds, &|seed| {
            let (options, by) = last.next(seed);
            let world = || {
                World::new(Seeds::new(seed), options.clone(), TraceSink::Off, false)
                    .tripped_by(trips)
            };
            let hit = hit(world, &self.way, self.in_time(by))?;
            Some((seed, options, hit))
        });
        self.tried += tried;
        last.job.seed = last.job.seed.wrapping_add(tried);
        self.say_how_far();
        let Some((seed, options, hit)) = found else {
            return false;
        };
        last.failed = hit.failed;
        (self.seeds, self.other) = (SEEDS_MIN, Some(seed));
        let schedule = Schedule { trips, ..Schedule::of_run(seed, &options, Vec::new()) };
        self.accept(schedule, hit);
        last.options = options;
        true
    }
}

impl Last {
    /// The options for this seed, and the limit of its run. Half of the runs have the options of
    /// the last failure, which are known to permit one, and are much shorter; a quarter have their
    /// own options and a low limit of events. An eighth are as the former, but less short; an
    /// eighth as the latter, without that limit. Each kind thus gets about the same time.
    fn next(&self, seed: u64) -> (Options, (Instant, u64)) {
        match seed.trailing_zeros() {
            0 => self.shorter(16),
            1 => self.drawn(seed, EVENTS),
            2 => self.shorter(4),
            _ => self.drawn(seed, u64::MAX),
        }
    }

    fn drawn(&self, seed: u64, events: u64) -> (Options, (Instant, u64)) {
        let options = Options::draw(Seeds::new(seed), self.job.profile, &self.job.pinned);
        (options, (Instant(u64::MAX), events.min(self.failed.1)))
    }

    /// A run that ends within this fraction of the time; without a heal, unless the last failure
    /// came after it.
    fn shorter(&self, part: u32) -> (Options, (Instant, u64)) {
        let failed = Duration::from_nanos(self.failed.0.0);
        let duration = self.options.duration.min((failed / part).max(SHORTEST));
        let by = if failed < self.options.duration { duration } else { Duration::MAX };
        let by = Instant(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
        (Options { duration, ..self.options.clone() }, (by, self.failed.1))
    }
}
