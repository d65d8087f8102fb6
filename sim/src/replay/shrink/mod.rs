//! Shrinks a failing run to a short schedule that violates the same promise.
//!
//! Owns the search: candidates, their trial, the budget, and progress output. `moves` has the
//! candidates and their order, `again` the switch to another failing run. Must not know what steps
//! do: any run that fails in the same way is accepted. Of the descriptions of steps it reads only
//! the names of nodes, to guess which steps belong together.
//!
//! Omitting a step shifts latencies and tie breaks of all later events. So each candidate is tried
//! with several seeds, and early on it is tried whether constant latencies suffice.

mod again;
mod moves;
mod nodes;

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use zabkeeper_core::Instant;

use crate::check::checker::{Class, Failure};
use crate::check::guard;
use crate::engine::decisions::{Act, Step};
use crate::engine::seed::{Rng, Seeds};
use crate::faults::targets::Rule;
use crate::record::output::print_error;
use crate::record::trace::TraceSink;
use crate::replay::schedule::Schedule;
use crate::run::job::{self, Job, Report, wall_clock};
use crate::world::World;
use moves::{SEEDS_MAX, SEEDS_MIN};

/// The limit of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// Wall time.
    Wall(Duration),
    /// Number of runs.
    Runs(u64),
}

/// The result.
#[derive(Debug)]
pub struct Shrunk {
    /// The smallest schedule found, with the effects of its steps.
    pub schedule: Schedule,
    /// The report of its run, with the collected trace.
    pub report: Report,
    /// Faults and calls of the initial run.
    pub before: (usize, usize),
    /// The seed of the run that it was shrunk from, if that is not the initial one.
    pub other: Option<u64>,
    /// Number of runs tried.
    pub tried: u64,
    /// Whether the budget was used up.
    pub ended: bool,
}

/// A move that finds nothing ends after this fraction of its run's share, times the number of seeds
/// per candidate.
const TURN: u64 = 64;
/// Interval of progress output.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// A candidate's run ends this fraction later than the best one's failure.
const LATER: u64 = 4;
/// Plus this many ns, and events.
const SLACK: (u64, u64) = (2_000_000_000, 20_000);

/// The search.
struct Search {
    /// The smallest failing schedule so far.
    best: Schedule,
    /// How it fails, as [`way`] describes it.
    way: String,
    /// Time and event number of its failure.
    failed: (Instant, u64),
    /// Seeds that each candidate is tried with.
    seeds: usize,
    /// No move finds anything any more.
    done: bool,
    /// The seed of the run that it comes from, if that is not the initial one.
    other: Option<u64>,
    budget: Budget,
    begun: std::time::Instant,
    /// Events per ms of wall time, measured in the first run.
    pace: u64,
    jobs: usize,
    tried: u64,
    /// The part of the budget that the current run may use.
    share: Turn,
    /// The part of it that the current move may use.
    turn: Turn,
    /// Time of the last progress output.
    reported: Duration,
    /// For random candidates.
    rng: Rng,
}

/// A limit, in the unit of the budget.
struct Turn {
    /// How much a move may use before it finds something.
    part: u64,
    /// The total at which the turn ends.
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

/// Shrinks a schedule. If the job that it was recorded from is given, similar runs may be searched,
/// too.
///
/// # Errors
/// The schedule does not fail.
pub fn shrink(
    schedule: &Schedule,
    of: Option<&Job>,
    budget: Budget,
    jobs: usize,
) -> Result<Shrunk, String> {
    let begun = wall_clock();
    let first = job::replay(schedule, TraceSink::Off, false);
    let failure = first.outcome.failure.as_ref();
    let failure = failure.ok_or("there is nothing to shrink: the schedule breaks no promise")?;
    let best = schedule.with_outcome(&first.outcome);
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
        reported: Duration::ZERO,
        rng: Seeds::new(schedule.seed).stream("shrink", 0),
    };
    match of {
        Some(job) => search.run_or_another(job),
        None => search.run(),
    }
    let ended = search.is_over();
    search.cut_the_rest();
    let (tried, other) = (search.tried, search.other);
    let report = job::replay(&search.best, TraceSink::Collect, false);
    let schedule = search.best.with_outcome(&report.outcome);
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

    /// How much of it is used after `more` additional runs.
    fn spent(&self, more: u64) -> u64 {
        match self.budget {
            Budget::Wall(_) => as_ms(self.begun.elapsed()),
            Budget::Runs(_) => self.tried + more,
        }
    }

    /// How much of the current share and turn is left after `more` additional runs.
    fn left(&self, more: u64) -> u64 {
        let end = self.whole().min(self.share.end).min(self.turn.end);
        end.saturating_sub(self.spent(more))
    }

    fn is_over(&self) -> bool {
        self.left(0) == 0
    }

    /// Runs a move, with a short turn if there are few seeds, so that later moves get theirs.
    fn turn(&mut self, seeds: usize, one: fn(&mut Search, usize)) {
        let share = self.whole().min(self.share.part);
        let part = (share / TURN + 1).saturating_mul(seeds as u64);
        let part = if seeds < SEEDS_MAX { part } else { u64::MAX };
        self.turn = Turn { part, end: self.spent(0).saturating_add(part) };
        one(self, seeds);
        self.turn = Turn::WHOLE;
        self.say_how_far();
    }

    /// Prints progress every few seconds.
    fn say_how_far(&mut self) {
        if self.begun.elapsed() >= self.reported + REPORT_EVERY {
            self.reported = self.begun.elapsed();
            let ((faults, calls), seconds) = (self.best.counts(), self.reported.as_secs());
            print_error(&format!(
                "shrinking: {faults} faults and {calls} calls after {} runs, {seconds} s\n",
                self.tried
            ));
        }
    }

    /// Tries candidates in order until one fails; it becomes the best. Several run concurrently,
    /// without influence on which one is taken and how many count as tried.
    fn try_in_order(&mut self, candidates: impl IntoIterator<Item = Schedule>) -> bool {
        // A schedule that does not parse again is useless.
        let candidates = candidates.into_iter().map(Schedule::among_its_servers);
        let candidates = candidates.filter(|one| *one != self.best && one.check().is_ok());
        let (tried, found) = self.first(candidates, &|one| {
            let world = || World::scripted(&one, TraceSink::Off, false);
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

    /// Tries candidates in order, several concurrently, until one succeeds. Which one, and how many
    /// were tried, does not depend on the concurrency.
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

    /// Makes a failing candidate the best.
    fn accept(&mut self, mut one: Schedule, hit: Hit) {
        let Hit { steps, rules, failed } = hit;
        one.steps = steps;
        one.options.rules = rules;
        self.best = one;
        self.failed = failed;
        self.done = false;
        self.turn.end = self.spent(0).saturating_add(self.turn.part);
    }

    /// When the runs of candidates are stopped: virtual time, and events.
    fn last(&self) -> (Instant, u64) {
        let (Instant(at), events) = self.failed;
        (Instant(at + at / LATER + SLACK.0), events + events / LATER + SLACK.1)
    }

    /// Reduces the events to those for which there is wall time, since a run cannot be interrupted.
    fn in_time(&self, (at, events): (Instant, u64)) -> (Instant, u64) {
        let left = self.whole().saturating_sub(self.spent(0));
        match self.budget {
            Budget::Wall(_) => (at, events.min(left.saturating_mul(self.pace))),
            Budget::Runs(_) => (at, events),
        }
    }

    /// Tries a candidate with several seeds, unless it equals the best.
    fn try_seeds(&mut self, one: &Schedule, seeds: usize) -> bool {
        *one != self.best && {
            let tries = self.with_seeds(one, seeds);
            self.try_in_order(tries)
        }
    }

    /// Tries the candidates with fewer steps than the best.
    fn try_fewer(&mut self, mut candidates: Vec<Schedule>) -> bool {
        candidates.retain(|one| one.steps.len() < self.best.steps.len());
        self.try_in_order(candidates)
    }

    /// Copies with different seeds, the original first. Each copy is made only when it is needed.
    fn with_seeds<'a>(
        &mut self,
        one: &'a Schedule,
        seeds: usize,
    ) -> impl Iterator<Item = Schedule> + use<'a> {
        let others: Vec<u64> = (1..seeds).map(|_| self.rng.word()).collect();
        let seeds = std::iter::once(one.seed).chain(others);
        seeds.map(|seed| Schedule { seed, ..one.clone() })
    }

    fn clients(&self) -> BTreeSet<crate::check::observe::ClientId> {
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

/// How a run fails: the violated promise, and for a panic also its location, to distinguish
/// panics.
fn way(failure: &Failure) -> String {
    let place = failure.evidence.first().and_then(|line| line.rsplit_once(" at "));
    match (failure.class, place) {
        (Class::Panic, Some((_, place))) => format!("{} at {place}", failure.id),
        _ => failure.id.to_owned(),
    }
}

/// Runs a candidate. Returns its failure if it fails in the wanted way.
fn hit(candidate: impl Fn() -> World, wanted: &str, (at, events): (Instant, u64)) -> Option<Hit> {
    // A panic in the simulator proves nothing.
    let outcome = guard::catch(|| candidate().noted().given_up_at(at, events).run()).ok()?;
    let failure = outcome.failure.filter(|failure| way(failure) == wanted)?;
    let steps = outcome.steps.unwrap_or_default();
    let rules = outcome.rules;
    Some(Hit { steps, rules, failed: (failure.at, failure.event) })
}

/// Runs each trial in its own thread.
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
