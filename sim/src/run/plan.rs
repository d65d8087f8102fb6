//! The jobs of a batch: seeds in order, interleaved with forks of earlier seeds.
//!
//! Owns rounds and the choice of forks. A round is chosen once all results of the previous round
//! are known, in job order, so a batch does not depend on the number of threads.

use zabkeeper_core::io::Mark;

use crate::engine::fork::{Fork, Place};
use crate::engine::seed::{Rng, Seeds};
use crate::run::cli::Flags;
use crate::run::job::{Job, Report};
use crate::world::options::{Pinned, Profile};

/// Seeds per round, and forks that follow them: a quarter of all jobs are forks.
const ROUND: (u64, u64) = (24, 8);
/// Seeds remembered per mark: the last ones that hit it.
const REMEMBERED: usize = 8;

/// Runs with more events are not forked: each costs as much as several usual ones. A few such runs,
/// being the only ones that hit some mark, would take a third of a batch's time.
const DEAR: u64 = 500_000;

/// Chooses the jobs of a batch; see the module.
#[derive(Debug)]
pub struct Plan {
    /// The next seed.
    pub next: u64,
    end: u64,
    /// With `--fork-at`: the seed, the place and the number of forks, all run in one round.
    futures: Option<(u64, Place, u64)>,
    forks: bool,
    /// Seeds of the last round, whose forks the next round contains.
    owed: u64,
    marks: Vec<Known>,
    rng: Rng,
}

/// Statistics of one mark.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Runs that hit the mark, plus forks chosen because of it.
    runs: u64,
    /// Seeds that hit the mark before the heal, with the number of hits.
    seeds: Vec<(u64, u32)>,
}

/// Jobs that may run concurrently; their results are reported in job order.
#[derive(Debug)]
pub struct Round {
    forks: Vec<(u64, Fork)>,
    /// The half-open range of seeds; these jobs follow the forks.
    seeds: (u64, u64),
}

impl Plan {
    /// The plan that the flags describe.
    pub fn new(flags: &Flags, pinned: &Pinned) -> Plan {
        let (next, end) = match (flags.seeds, flags.runs) {
            (Some(range), _) => range,
            (None, Some(runs)) => (flags.base_seed, flags.base_seed.saturating_add(runs)),
            (None, None) => (flags.base_seed, u64::MAX),
        };
        let futures = flags
            .fork_at
            .map(|place| (flags.seed.unwrap_or(next), place, flags.forks.unwrap_or(8)));
        let wanted = flags.profile == Profile::Swarm && flags.forks != Some(0);
        Plan {
            next,
            end,
            futures,
            forks: wanted && pinned.forks.is_empty(),
            owed: 0,
            marks: vec![Known::default(); Mark::ALL.len()],
            rng: Seeds::new(next).stream("batch/forks", 0),
        }
    }

    /// The next jobs; `None` when all have run.
    pub fn round(&mut self) -> Option<Round> {
        if let Some((seed, place, forks)) = self.futures {
            self.futures = Some((seed, place, 0));
            let forks = (1..=forks).map(|number| (seed, Fork { place, number }));
            let round = Round { forks: forks.collect(), seeds: (0, 0) };
            return (round.length() > 0).then_some(round);
        }
        let forks = self.choose_forks();
        let length = if self.forks { ROUND.0 } else { u64::MAX };
        let seeds = (self.next, self.end.min(self.next.saturating_add(length)));
        self.owed = seeds.1 - seeds.0;
        self.next = seeds.1;
        let round = Round { forks, seeds };
        (round.length() > 0).then_some(round)
    }

    /// The forks that belong to the last round's seeds, at the marks with the fewest hits.
    fn choose_forks(&mut self) -> Vec<(u64, Fork)> {
        let owed = if self.forks { self.owed * ROUND.1 / ROUND.0 } else { 0 };
        (0..owed).filter_map(|_| self.choose_fork()).collect()
    }

    fn choose_fork(&mut self) -> Option<(u64, Fork)> {
        let known = |mark: &Mark| &self.marks[*mark as usize];
        let hit = Mark::ALL.into_iter().filter(|mark| !known(mark).seeds.is_empty());
        let mark = hit.min_by_key(|mark| known(mark).runs)?;
        let known = &mut self.marks[mark as usize];
        known.runs += 1;
        let (seed, hits) = *self.rng.pick(&known.seeds);
        let nth = self.rng.range_u32(1, hits);
        let number = self.rng.range(1, 1 << 32);
        Some((seed, Fork { place: Place::Mark(mark, nth), number }))
    }

    /// Learns from a job's result. Results of forks are not forked again.
    pub fn learn(&mut self, report: &Report) {
        let outcome = &report.outcome;
        let whole = report.job.pinned.forks.is_empty() && outcome.failure.is_none();
        let forked = whole && outcome.events <= DEAR;
        for mark in Mark::ALL {
            let hits = outcome.hits[mark as usize];
            if hits == 0 || !self.forks {
                continue;
            }
            let known = &mut self.marks[mark as usize];
            known.runs += 1;
            if forked {
                if known.seeds.len() == REMEMBERED {
                    known.seeds.remove(0);
                }
                known.seeds.push((report.job.seed, hits));
            }
        }
    }
}

impl Round {
    /// The job with this index in the round.
    pub fn job(&self, index: u64, flags: &Flags, pinned: &Pinned) -> Option<Job> {
        let forks = self.forks.len() as u64;
        if let Some((seed, fork)) = usize::try_from(index).ok().and_then(|i| self.forks.get(i)) {
            let mut job = flags.job(*seed, pinned);
            job.pinned.forks.push(*fork);
            return Some(job);
        }
        let seed = self.seeds.0.checked_add(index - forks)?;
        (seed < self.seeds.1).then(|| flags.job(seed, pinned))
    }

    /// The number of jobs.
    pub fn length(&self) -> u64 {
        self.forks.len() as u64 + (self.seeds.1 - self.seeds.0)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::record::trace::TraceSink;

    fn plan(args: &str) -> (Flags, Pinned) {
        let flags = Flags::try_parse_from(args.split_whitespace()).expect("valid");
        let pinned = flags.pinned().expect("valid");
        (flags, pinned)
    }

    #[test]
    fn swarm_batch_forks_a_quarter_of_its_jobs_at_the_rarest_marks() {
        let (flags, pinned) = plan("sim --profile swarm --runs 30 --duration 2s --servers 3");
        let mut plan = Plan::new(&flags, &pinned);
        let (mut seeds, mut forks) = (0, Vec::new());
        while let Some(round) = plan.round() {
            for index in 0..round.length() {
                let job = round.job(index, &flags, &pinned).expect("there are as many");
                match job.pinned.forks.first() {
                    Some(fork) => forks.push((job.seed, *fork)),
                    None => {
                        seeds += 1;
                        plan.learn(&job.run(TraceSink::Off, false));
                    }
                }
            }
            assert!(round.job(round.length(), &flags, &pinned).is_none());
        }
        assert_eq!((seeds, forks.len()), (30, 10));
        for (seed, fork) in &forks {
            let Place::Mark(mark, nth) = fork.place else { panic!("{fork}") };
            let hits = flags.job(*seed, &pinned).run(TraceSink::Off, false).outcome.hits;
            assert!((1..=hits[mark as usize]).contains(&nth), "{seed} {fork}");
        }
        let few: Vec<Place> = forks.iter().map(|(_, fork)| fork.place).collect();
        assert!(!few.iter().any(|place| matches!(place, Place::Mark(Mark::CommitBatch, _))));
    }

    #[test]
    fn long_run_is_not_forked() {
        let (flags, pinned) = plan("sim --profile swarm --runs 24 --duration 2s --servers 3");
        let forks = |events| {
            let mut plan = Plan::new(&flags, &pinned);
            let round = plan.round().expect("a round");
            let mut report =
                round.job(0, &flags, &pinned).expect("a job").run(TraceSink::Off, false);
            report.outcome.events = events;
            plan.learn(&report);
            plan.round().map_or(0, |round| round.length())
        };
        assert_eq!((forks(DEAR), forks(DEAR + 1)), (8, 0));
    }

    #[test]
    fn profiles_without_forks_run_all_seeds_in_one_round() {
        for args in ["sim --runs 50", "sim --profile swarm --runs 50 --forks 0"] {
            let (flags, pinned) = plan(args);
            let mut plan = Plan::new(&flags, &pinned);
            assert_eq!(plan.round().expect("a round").length(), 50);
            assert!(plan.round().is_none());
        }
        let (flags, pinned) = plan("sim --seed 7 --fork-at 3s --forks 5");
        let mut plan = Plan::new(&flags, &pinned);
        let round = plan.round().expect("a round");
        let last = round.job(4, &flags, &pinned).expect("five");
        assert_eq!((last.seed, last.pinned.forks[0].to_string()), (7, "3.000s/5".to_owned()));
        assert!(round.job(5, &flags, &pinned).is_none() && plan.round().is_none());
    }
}
