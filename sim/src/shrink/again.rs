//! From one run to another one that breaks the same promise, where the first does not become less.
//!
//! Owns when that is done, and what is tried. What a run needs to fail may hang together in it such that no part can be
//! left out, and stand alone in another. The sooner that one fails, the less there is to leave out.

use std::time::Duration;

use zabkeeper_core::Instant;

use super::moves::{FEW, SEEDS_MIN};
use super::{Search, Turn, hit};
use crate::options::Options;
use crate::run::Job;
use crate::schedule::Schedule;
use crate::seed::Seeds;
use crate::trace::Story;
use crate::world::World;

/// A run has this part of the budget, and again for as long as it loses enough in it. Others are looked for twice as long
/// at a time.
const PART: u64 = 8;
/// Enough is this part of its steps.
const LEAST_LOSS: usize = 4;
/// This part of it is for what has become least.
const REST: u64 = 3;
/// What fails after fewer events becomes less in little time.
const EVENTS: u64 = 40_000;
/// No run is shorter: an ensemble comes about, and clients come.
const SHORTEST: Duration = Duration::from_secs(2);

/// The last run that failed.
struct Last {
    options: Options,
    /// When, and after how many events: the next is to fail after fewer. Of the first, it does not matter how many.
    failed: (Instant, u64),
    /// Of the last run that was tried; what is not drawn of others is pinned here.
    job: Job,
}

impl Search {
    /// As `run`; but while much is left, other runs are looked for. What becomes least has the rest of the budget.
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

    /// Part by part.
    fn run_while_it_helps(&mut self) {
        let mut before = usize::MAX;
        while self.is_long() && self.weight().0 <= before - before / LEAST_LOSS {
            before = self.weight().0;
            self.give(1);
            self.run();
        }
    }

    /// For others, until there is one, and then as long again for ones that fail sooner.
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

    /// A share of so many parts for what comes now.
    fn give(&mut self, parts: u64) {
        let part = parts * (self.whole() / PART) + 1;
        self.share = Turn { part, end: self.spent(0).saturating_add(part) };
    }

    /// Goes over to the next run that fails in the same way.
    fn another(&mut self, last: &mut Last) -> bool {
        let trips = self.best.trips;
        let seeds = (1..).map(|further| last.job.seed.wrapping_add(further));
        let (tried, found) = self.first(seeds, &|seed| {
            let (options, by) = last.next(seed);
            let world = || {
                World::new(Seeds::new(seed), options.clone(), Story::Off, false).tripped_by(trips)
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
    /// What is run with this seed, and by when it must have failed. Half of the runs have the options of the last that
    /// failed, with which it is known that one can, and are much shorter; a quarter have their own, and fail soon; an eighth
    /// are as the former, and less short; an eighth as the latter, and fail at any time. Thus each kind has about as much
    /// time.
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

    /// One that is over in this part of the time; without a heal, unless the last one failed there.
    fn shorter(&self, part: u32) -> (Options, (Instant, u64)) {
        let failed = Duration::from_nanos(self.failed.0.0);
        let duration = self.options.duration.min((failed / part).max(SHORTEST));
        let by = if failed < self.options.duration { duration } else { Duration::MAX };
        let by = Instant(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
        (Options { duration, ..self.options.clone() }, (by, self.failed.1))
    }
}
