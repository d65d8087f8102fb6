//! From a run that fails to a schedule that a person can read: less and less of it, for as long as it breaks the same
//! promise.
//!
//! Owns the search: candidates, their trial and the budget; says how far it is. What is tried, in which order, is in
//! `moves`; when it begins again from another run, in `again`. Must not know what steps do: whatever fails in the same
//! way is as good. Of what was told of them only the names of nodes are read, to guess what belongs together.
//!
//! Leaving something out shifts latencies and ties of all that comes after it. So a candidate is tried with several
//! seeds for what nobody decides, and early on it is tried whether constant latencies will do.

mod again;
mod moves;
mod nodes;

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use zabkeeper_core::Instant;

use crate::guard;
use crate::judge::{Class, Failure};
use crate::output::say;
use crate::run::{self, Job, Report, wall_clock};
use crate::schedule::{Act, Schedule, Step};
use crate::seed::{Dice, Seeds};
use crate::targets::Rule;
use crate::trace::Story;
use crate::world::World;
use moves::{SEEDS_MAX, SEEDS_MIN};

/// How much may be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// For so long.
    Wall(Duration),
    /// So many runs.
    Runs(u64),
}

/// What came of it.
#[derive(Debug)]
pub struct Shrunk {
    /// The least found, with what happens beside its steps.
    pub schedule: Schedule,
    /// Its run, with what happened in words.
    pub report: Report,
    /// Strikes and calls of the run at the beginning.
    pub before: (usize, usize),
    /// The seed of another run that fails in the same way, if this is what is left of that.
    pub other: Option<u64>,
    /// Runs it took.
    pub tried: u64,
    /// Was its budget used up?
    pub ended: bool,
}

/// A move that helps nothing gives way after this part of its run's share, times the seeds that a candidate is tried
/// with.
const TURN: u64 = 64;
/// Who waits hears so often how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// A candidate may fail later than what it comes from by one part in so many.
const LATER: u64 = 4;
/// And by so many ns, and events.
const SLACK: (u64, u64) = (2_000_000_000, 20_000);

/// The search.
struct Search {
    /// The least that fails.
    best: Schedule,
    /// How, as `way` has it.
    way: String,
    /// When, and after how many events.
    failed: (Instant, u64),
    /// Seeds for what nobody decides that a candidate is tried with.
    seeds: usize,
    /// Nothing that is tried helps any more.
    done: bool,
    /// The seed of the run that it comes from, if that is not the first one.
    other: Option<u64>,
    budget: Budget,
    begun: std::time::Instant,
    /// Events that fit in a ms, as the first run had it.
    pace: u64,
    jobs: usize,
    tried: u64,
    /// What this run may spend of the budget.
    share: Turn,
    /// What a move may spend of that.
    turn: Turn,
    /// When it was told last how far this is.
    told: Duration,
    /// For what is tried at random.
    dice: Dice,
}

/// What may be spent, in the unit of the budget.
struct Turn {
    /// So much; by a move, before it helps.
    part: u64,
    /// Until so much of all is spent.
    end: u64,
}

impl Turn {
    const WHOLE: Turn = Turn { part: u64::MAX, end: u64::MAX };
}

/// A candidate that fails in the same way.
struct Hit {
    steps: Vec<Step>,
    rules: Vec<Rule>,
    failed: (Instant, u64),
}

/// Looks for less. If it is said of which run the schedule is, others of its kind may be looked for, too.
///
/// # Errors
/// The schedule does not fail, or not in the way it says.
pub fn shrink(
    schedule: &Schedule,
    of: Option<&Job>,
    budget: Budget,
    jobs: usize,
) -> Result<Shrunk, String> {
    let begun = wall_clock();
    let first = run::replay(schedule, Story::Off, false);
    let failure = first.outcome.failure.as_ref();
    let failure = failure.ok_or("there is nothing to shrink: the schedule breaks no promise")?;
    let best = schedule.told(&first.outcome);
    let before = best.counts();
    let mut search = Search {
        best,
        way: way(failure),
        failed: (failure.at, failure.event),
        seeds: SEEDS_MIN,
        done: false,
        other: None,
        budget,
        begun,
        pace: failure.event / (as_ms(begun.elapsed()) + 1) + 1,
        jobs: jobs.max(1),
        tried: 0,
        share: Turn::WHOLE,
        turn: Turn::WHOLE,
        told: Duration::ZERO,
        dice: Seeds::new(schedule.seed).stream("shrink", 0),
    };
    match of {
        Some(job) => search.run_or_another(job),
        None => search.run(),
    }
    let ended = search.is_over();
    search.cut_the_rest();
    let (tried, other) = (search.tried, search.other);
    let report = run::replay(&search.best, Story::Collect, false);
    let schedule = search.best.told(&report.outcome);
    Ok(Shrunk { schedule, report, before, other, tried, ended })
}

impl Search {
    /// The budget, in ms or runs.
    fn whole(&self) -> u64 {
        match self.budget {
            Budget::Wall(limit) => as_ms(limit),
            Budget::Runs(limit) => limit,
        }
    }

    /// How much of it is spent after so many more runs.
    fn spent(&self, more: u64) -> u64 {
        match self.budget {
            Budget::Wall(_) => as_ms(self.begun.elapsed()),
            Budget::Runs(_) => self.tried + more,
        }
    }

    /// How much is left after so many more runs, of this run's share and of this turn.
    fn left(&self, more: u64) -> u64 {
        let end = self.whole().min(self.share.end).min(self.turn.end);
        end.saturating_sub(self.spent(more))
    }

    fn is_over(&self) -> bool {
        self.left(0) == 0
    }

    /// Gives a move its turn: with few seeds a short one, so that those behind it have theirs.
    fn turn(&mut self, seeds: usize, one: fn(&mut Search, usize)) {
        let share = self.whole().min(self.share.part);
        let part = (share / TURN + 1).saturating_mul(seeds as u64);
        let part = if seeds < SEEDS_MAX { part } else { u64::MAX };
        self.turn = Turn { part, end: self.spent(0).saturating_add(part) };
        one(self, seeds);
        self.turn = Turn::WHOLE;
        self.say_how_far();
    }

    /// Every few seconds.
    fn say_how_far(&mut self) {
        if self.begun.elapsed() >= self.told + TOLD_EVERY {
            self.told = self.begun.elapsed();
            let ((faults, calls), seconds) = (self.best.counts(), self.told.as_secs());
            say(&format!(
                "shrinking: {faults} faults and {calls} calls after {} runs, {seconds} s\n",
                self.tried
            ));
        }
    }

    /// Tries candidates in order until one fails; that one is the new best. Several are tried at once, but which one
    /// is taken, and how many count as tried, does not depend on that.
    fn try_in_order(&mut self, candidates: impl IntoIterator<Item = Schedule>) -> bool {
        // What nobody could read again would be of no use.
        let candidates = candidates.into_iter().map(Schedule::among_its_servers);
        let candidates = candidates.filter(|one| *one != self.best && one.check().is_ok());
        let (tried, found) = self.first(candidates, &|one| {
            let world = || World::scripted(&one, Story::Off, false);
            let hit = hit(world, &self.way, self.in_time(self.last()))?;
            Some((one, hit))
        });
        self.tried += tried;
        let Some((one, hit)) = found else {
            return false;
        };
        self.accept(one, hit);
        true
    }

    /// Tries them in order, several at once, until one will do. Which one that is, and how many were tried, does not
    /// depend on how many are tried at once.
    fn first<A: Send, B: Send>(
        &self,
        candidates: impl Iterator<Item = A>,
        trial: &(dyn Fn(A) -> Option<B> + Sync),
    ) -> (u64, Option<B>) {
        let mut candidates = candidates.peekable();
        let mut tried = 0;
        while candidates.peek().is_some() && self.left(tried) > 0 {
            let room = match self.budget {
                Budget::Wall(_) => self.jobs,
                Budget::Runs(_) => self.jobs.min(usize::try_from(self.left(tried)).unwrap_or(1)),
            };
            let batch: Vec<A> = candidates.by_ref().take(room).collect();
            for result in at_once(batch, trial) {
                tried += 1;
                if result.is_some() {
                    return (tried, result);
                }
            }
        }
        (tried, None)
    }

    /// A candidate fails in the same way: it is the new best.
    fn accept(&mut self, mut one: Schedule, hit: Hit) {
        let Hit { steps, rules, failed } = hit;
        one.steps = steps;
        one.options.rules = rules;
        self.best = one;
        self.failed = failed;
        self.done = false;
        self.turn.end = self.spent(0).saturating_add(self.turn.part);
    }

    /// When candidates are given up: virtual time, and events.
    fn last(&self) -> (Instant, u64) {
        let (Instant(at), events) = self.failed;
        (Instant(at + at / LATER + SLACK.0), events + events / LATER + SLACK.1)
    }

    /// As much of that as there is time for: nobody ends a run from outside.
    fn in_time(&self, (at, events): (Instant, u64)) -> (Instant, u64) {
        let left = self.whole().saturating_sub(self.spent(0));
        match self.budget {
            Budget::Wall(_) => (at, events.min(left.saturating_mul(self.pace))),
            Budget::Runs(_) => (at, events),
        }
    }

    /// Tries it with several seeds; what is as the best already is no candidate.
    fn try_seeds(&mut self, one: &Schedule, seeds: usize) -> bool {
        *one != self.best && {
            let tries = self.with_seeds(one, seeds);
            self.try_in_order(tries)
        }
    }

    /// Tries those that have fewer steps than the best.
    fn try_fewer(&mut self, mut candidates: Vec<Schedule>) -> bool {
        candidates.retain(|one| one.steps.len() < self.best.steps.len());
        self.try_in_order(candidates)
    }

    /// The same, also with other seeds for what nobody decides. Each is a copy of all steps, made when it is its turn.
    fn with_seeds<'a>(
        &mut self,
        one: &'a Schedule,
        seeds: usize,
    ) -> impl Iterator<Item = Schedule> + use<'a> {
        let others: Vec<u64> = (1..seeds).map(|_| self.dice.word()).collect();
        let seeds = std::iter::once(one.seed).chain(others);
        seeds.map(|seed| Schedule { seed, ..one.clone() })
    }

    fn clients(&self) -> BTreeSet<crate::observe::ClientId> {
        self.best.steps.iter().filter_map(|step| step.act.client()).collect()
    }

    fn acts(&self, wanted: impl Fn(Act) -> bool) -> Vec<usize> {
        let steps = self.best.steps.iter().enumerate();
        steps.filter(|(_, step)| wanted(step.act)).map(|(index, _)| index).collect()
    }
}

fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// In which way a run has failed: the promise that is broken, and of a panic where it was, so that another one is not
/// taken for it.
fn way(failure: &Failure) -> String {
    let place = failure.evidence.first().and_then(|line| line.rsplit_once(" at "));
    match (failure.class, place) {
        (Class::Panic, Some((_, place))) => format!("{} at {place}", failure.id),
        _ => failure.id.to_owned(),
    }
}

/// Runs a candidate; says whether it fails in the same way.
fn hit(candidate: impl Fn() -> World, wanted: &str, (at, events): (Instant, u64)) -> Option<Hit> {
    // One that falls apart shows nothing.
    let outcome = guard::catch(|| candidate().noted().given_up_at(at, events).run()).ok()?;
    let failure = outcome.failure.filter(|failure| way(failure) == wanted)?;
    let steps = outcome.steps.unwrap_or_default();
    let rules = outcome.rules;
    Some(Hit { steps, rules, failed: (failure.at, failure.event) })
}

/// A thread for each.
fn at_once<A: Send, B: Send>(
    batch: Vec<A>,
    trial: &(dyn Fn(A) -> Option<B> + Sync),
) -> Vec<Option<B>> {
    if batch.len() == 1 {
        return batch.into_iter().map(trial).collect();
    }
    thread::scope(|scope| {
        let workers: Vec<_> =
            batch.into_iter().map(|one| scope.spawn(move || trial(one))).collect();
        let join =
            |worker: thread::ScopedJoinHandle<'_, _>| worker.join().expect("panics are caught");
        workers.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests;
