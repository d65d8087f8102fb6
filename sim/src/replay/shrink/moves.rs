//! The moves of the search, and their order.
//!
//! Owns the moves. Each ends with a best schedule that is not longer than before.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::Instant;

use super::nodes::{ancestors, is_in, nodes};
use super::{Search, hit};
use crate::check::observe::ClientId;
use crate::engine::decisions::{Act, Step};
use crate::faults::catalog::{Fault, FaultPlan};
use crate::faults::targets::Rule;
use crate::record::trace::TraceSink;
use crate::replay::schedule::{self, Schedule};
use crate::world::World;

const MS: u64 = 1_000_000;
/// Random samples tried of a long schedule, per size and seed.
const SAMPLES: usize = 12;
/// Schedules with fewer steps are as short as can be expected.
pub(super) const FEW: usize = 4;
/// Servers of the smallest ensemble that tolerates a failure.
const FEW_SERVERS: u32 = 3;
/// Schedules with at most this many steps are short: every pair of steps can be tried.
const SHORT: usize = 24;
/// Schedules with more steps are long: trying each step is not worth it yet.
const LONG: usize = 120;
/// Random samples tried once no single step can be omitted.
const THIN: usize = 40;
/// All moves are repeated for a long schedule only if they removed this fraction of it.
const WORTH: usize = 8;
/// Per seed that a candidate is tried with, a schedule is divided into this many more parts.
const PARTS: usize = 16;
/// Seeds that each candidate is tried with at first, and at the end.
pub(super) const SEEDS_MIN: usize = 2;
pub(super) const SEEDS_MAX: usize = 32;
/// Settings of amounts rather than behaviour.
const AMOUNTS: [&str; 4] = ["duration_us", "servers", "clients", "paths"];
/// Small limits, and frequent checks.
const ROOM: [(&str, u64); 7] = [
    ("digest_txns", 1),
    ("disk_audit_txns", 4),
    ("recent_bytes", 64),
    ("snapshot_txns", 2),
    ("snapshot_slice_bytes", 64),
    ("segment_bytes", 4 << 10),
    ("snapshots_kept", 1),
];
/// Limits that are reached soon.
const SOON: [(&str, u64); 3] = [("epoch_txns", 8), ("undurable_bytes", 64), ("watches_bytes", 8)];
/// Settings on which the times of steps depend.
const PACES: [&str; 6] =
    ["tick_ms", "init_ticks", "sync_ticks", "session_min_ms", "session_max_ms", "step_ns"];

/// The moves in order; each takes a number of seeds.
const MOVES: [fn(&mut Search, usize); 19] = [
    // First, because a rule for a late hit needs all the steps before that.
    Search::fewer_rules,
    Search::simple_rules,
    Search::heal_early,
    Search::keep_the_last,
    Search::keep_one_node,
    Search::fewer_clients,
    Search::fewer_servers,
    Search::fewer_kinds,
    Search::be_calm,
    Search::extreme_settings,
    Search::keep_around_faults,
    Search::sample,
    Search::fewer_properties,
    Search::fewer_faults,
    Search::fewer_calls,
    Search::same_clients,
    Search::shorter,
    Search::fewer_pairs,
    Search::thin,
];

impl Search {
    /// Runs until no move finds anything, or the share is used up; the search can be continued
    /// afterwards.
    pub(super) fn run(&mut self) {
        self.leave_out_vain();
        while !self.is_over() {
            let (before, seeds) = (self.weight(), self.seeds);
            self.leave_out(seeds);
            self.turn(seeds, Search::plain_settings);
            let few = if seeds < SEEDS_MAX { SHORT } else { LONG };
            if self.best.steps.len() <= few {
                self.turn(seeds, Search::simple_choices);
                self.turn(seeds, Search::simple_times);
            }
            if seeds < SEEDS_MAX {
                self.seeds *= 2;
            } else if self.weight() >= before {
                self.done = true;
                break;
            }
        }
    }

    /// Repeats all moves as long as they find something.
    fn leave_out(&mut self, seeds: usize) {
        while !self.is_over() {
            let before = self.weight();
            for one in MOVES {
                self.turn(seeds, one);
            }
            let least = if before.0 > LONG { before.0 / WORTH } else { 0 };
            let after = self.weight();
            if after >= before || after.0 + least > before.0 {
                break;
            }
        }
    }

    /// The measure to minimize: steps and rules, then servers, then clients.
    pub(super) fn weight(&self) -> (usize, u32, usize) {
        let decided = self.best.steps.len() + self.best.options.rules.len();
        (decided, self.best.options.servers, self.best.clients())
    }

    fn leave_out_vain(&mut self) {
        let mut one = self.best.clone();
        one.steps.retain(|step| step.hit);
        self.try_seeds(&one, 4);
    }

    /// Properties off, constant latencies, default settings: all at once, or some of these.
    fn be_calm(&mut self, seeds: usize) {
        let quiet = |mut one: Schedule| {
            one.options.faults = FaultPlan::none();
            one.in_order = true;
            one
        };
        let plain = |one: Schedule, keep: &[&str]| {
            let names = schedule::setting_names().into_iter();
            names
                .filter(|name| !AMOUNTS.contains(name) && !keep.contains(name))
                .fold(one, |one, name| with(one, (name, plain_value(name))))
        };
        let steady = |mut one: Schedule| {
            one.options.disk.steady = true;
            for link in [&mut one.options.link, &mut one.options.peers.link] {
                link.min += std::mem::take(&mut link.mean);
            }
            one
        };
        let best = self.best.clone();
        let tries = [
            quiet(plain(best.clone(), &[])),
            quiet(plain(best.clone(), &PACES)),
            plain(best.clone(), &PACES),
            quiet(steady(best.clone())),
            quiet(best.clone()),
            steady(best),
        ];
        let tries: Vec<Schedule> =
            tries.iter().flat_map(|one| self.with_seeds(one, seeds)).collect();
        self.try_in_order(tries);
    }

    /// Turns off properties, in ever smaller groups.
    fn fewer_properties(&mut self, seeds: usize) {
        let faults: Vec<Fault> = self.best.options.faults.on().collect();
        self.ever_fewer(&faults, seeds, |one, off| {
            off.iter().for_each(|fault| one.options.faults.switch_off(*fault));
        });
    }

    /// Omits groups of these: all at once, then ever smaller ones.
    fn ever_fewer<T>(&mut self, all: &[T], seeds: usize, leave: impl Fn(&mut Schedule, &[T])) {
        let mut chunk = all.len();
        while chunk > 0 && !self.is_over() {
            for part in all.chunks(chunk) {
                let mut one = self.best.clone();
                leave(&mut one, part);
                self.try_seeds(&one, seeds);
            }
            chunk /= 2;
        }
    }

    /// Ends the phase of faults early: the cause of a failure after the heal may be much older.
    fn heal_early(&mut self, seeds: usize) {
        let length = self.best.options.duration;
        self.heal_after([32, 16, 8, 4, 2].map(|part| length / part), seeds);
    }

    /// Ends the phase of faults soon after its last step.
    fn shorter(&mut self, _: usize) {
        let last = Duration::from_nanos(self.best.steps.last().map_or(0, |step| step.at.0));
        let last = Duration::from_secs(last.as_secs());
        self.heal_after([1, 2, 5, 10, 30].map(|seconds| last + Duration::from_secs(seconds)), 1);
    }

    /// Tries these lengths of the phase of faults, if the failure comes after it.
    fn heal_after(&mut self, lengths: [Duration; 5], seeds: usize) {
        let length = self.best.options.duration;
        if u128::from(self.failed.0.0) <= length.as_nanos() {
            return;
        }
        let mut tries = Vec::new();
        for end in lengths.into_iter().filter(|end| (Duration::from_secs(1)..length).contains(end))
        {
            let mut one = self.best.clone();
            one.options.duration = end;
            one.steps.retain(|step| u128::from(step.at.0) < end.as_nanos());
            tries.extend(self.with_seeds(&one, seeds));
        }
        self.try_in_order(tries);
    }

    /// Keeps only the last steps, or the last calls.
    fn keep_the_last(&mut self, seeds: usize) {
        for count in [0, 1, 2, 4, 8, 16, 32, 64] {
            for calls_only in [false, true] {
                let all = self.acts(|act| !calls_only || act.client().is_some());
                if all.len() <= count * 3 / 2 || self.is_over() {
                    continue;
                }
                let one = without(&self.best, &all[..all.len() - count]);
                if self.try_seeds(&one, seeds + 2) {
                    return;
                }
            }
        }
    }

    /// Keeps only calls that name one node, an ancestor or a descendant; nodes named last come
    /// first.
    fn keep_one_node(&mut self, seeds: usize) {
        if self.best.steps.len() < SHORT {
            return;
        }
        let named: Vec<Vec<String>> =
            self.best.steps.iter().map(|step| nodes(&step.told)).collect();
        let mut tried = BTreeSet::new();
        for node in named.iter().rev().flatten().flat_map(|node| ancestors(node)) {
            if !tried.insert(node) || self.is_over() {
                continue;
            }
            let about = |other: &String| is_in(other, node) || is_in(node, other);
            for faults in [false, true] {
                let mut one = self.best.clone();
                let mut of_steps = named.iter();
                one.steps.retain(|step| {
                    let kept = of_steps.next().is_some_and(|nodes| nodes.iter().any(about));
                    kept || faults && step.act.fault().is_some()
                });
                if one.steps.len() < self.best.steps.len() && self.try_seeds(&one, seeds) {
                    return;
                }
            }
        }
    }

    /// Keeps a single fault, and the calls shortly before and after it.
    fn keep_around_faults(&mut self, seeds: usize) {
        for around in [0, 30, 100, 300, 1_000, 3_000] {
            let faults = self.acts(|act| act.fault().is_some());
            for index in faults.into_iter().rev() {
                if self.best.steps.len() < SHORT || self.is_over() {
                    return;
                }
                let mut one = self.best.clone();
                let at = one.steps[index].at;
                one.steps = vec![one.steps[index].clone()];
                let near = |other: &&Step| other.at.0.abs_diff(at.0) <= around * MS;
                let calls = self.best.steps.iter().filter(|step| step.act.client().is_some());
                one.steps.extend(calls.filter(near).cloned());
                one.steps.sort_by_key(|step| step.at);
                if one.steps.len() < self.best.steps.len() && self.try_seeds(&one, seeds) {
                    return;
                }
            }
        }
    }

    /// Sets small limits: some failures depend on an amount, and a lower limit needs fewer steps.
    fn extreme_settings(&mut self, seeds: usize) {
        if self.best.steps.len() < FEW {
            return;
        }
        let all = ROOM.into_iter().fold(self.best.clone(), with);
        self.try_seeds(&all, seeds * 2);
        for each in ROOM.into_iter().chain(SOON) {
            let one = with(self.best.clone(), each);
            self.try_seeds(&one, seeds * 2);
        }
    }

    /// Moves the calls of one client to another.
    fn same_clients(&mut self, seeds: usize) {
        if self.best.steps.len() > SHORT {
            return;
        }
        let clients: Vec<_> = self.clients().into_iter().collect();
        for from in clients.iter().rev() {
            for to in clients.iter().filter(|to| *to < from) {
                if !self.clients().contains(from) || self.is_over() {
                    break;
                }
                let mut one = self.best.clone();
                for step in &mut one.steps {
                    if let Act::Call(client, _) = &mut step.act
                        && client == from
                    {
                        *client = *to;
                    }
                }
                one.absent.insert(*from);
                self.try_seeds(&one, seeds.min(4));
            }
        }
    }

    /// Tries random samples, the smallest first: a frequent failure also occurs in them.
    fn sample(&mut self, seeds: usize) {
        for of in [32, 8, 2] {
            if self.best.steps.len() < SHORT || self.is_over() {
                return;
            }
            let candidates: Vec<Schedule> = (0..SAMPLES * seeds).map(|_| self.part(of)).collect();
            if self.try_fewer(candidates) {
                return self.sample(seeds);
            }
        }
    }

    /// One call in `of`, or all calls of some clients, with all faults or a sample of them;
    /// possibly with fewer servers and small limits.
    fn part(&mut self, of: u64) -> Schedule {
        let mut one = self.best.clone();
        let rng = &mut self.rng;
        let clients = (0..one.options.clients).map(ClientId);
        if rng.chance(1, 2) {
            leave_clients(&mut one, clients.filter(|_| !rng.chance(1, of.min(4))));
        } else {
            one.steps.retain(|step| step.act.fault().is_some() || rng.chance(1, of));
        }
        if rng.chance(1, 2) {
            one.steps.retain(|step| step.act.client().is_some() || rng.chance(1, of));
        }
        if rng.chance(1, 2) {
            one.options.servers = one.options.servers.min(FEW_SERVERS);
        }
        if rng.chance(1, 2) {
            one = ROOM.into_iter().filter(|_| rng.chance(1, 2)).fold(one, with);
        }
        one.seed = rng.word();
        one
    }

    /// Omits clients with all their calls.
    fn fewer_clients(&mut self, seeds: usize) {
        let all: Vec<_> = (0..self.best.options.clients).map(ClientId).collect();
        let leave =
            |one: &mut Schedule, gone: &[ClientId]| leave_clients(one, gone.iter().copied());
        self.ever_fewer(&all, seeds.min(4), leave);
        // Lowers the number of clients if the last ones are absent.
        let last = self.clients().last().map_or(0, |last| last.0 + 1);
        let there = (0..self.best.options.clients).rev();
        let mut there = there.filter(|id| !self.best.absent.contains(&ClientId(*id)));
        let clients = there.next().map_or(0, |id| id + 1).max(last);
        let mut one = self.best.clone();
        one.options.clients = clients;
        one.absent.retain(|client| client.0 < clients);
        self.try_seeds(&one, seeds);
    }

    fn fewer_servers(&mut self, seeds: usize) {
        for servers in 1..self.best.options.servers {
            let mut one = self.best.clone();
            one.options.servers = servers;
            if self.try_seeds(&one, seeds) {
                return;
            }
        }
    }

    /// Omits rules, and the forks.
    fn fewer_rules(&mut self, seeds: usize) {
        let mut one = self.best.clone();
        one.options.forks.clear();
        self.try_seeds(&one, seeds);
        let mut index = self.best.options.rules.len();
        while index > 0 && !self.is_over() {
            index -= 1;
            let mut one = self.best.clone();
            one.options.rules.remove(index);
            self.try_seeds(&one, seeds);
            index = index.min(self.best.options.rules.len());
        }
    }

    /// Makes rules inject at an earlier hit, in any role, with choices towards zero.
    fn simple_rules(&mut self, _: usize) {
        let mut index = 0;
        while index < self.best.options.rules.len() && !self.is_over() {
            let rule = &self.best.options.rules[index];
            let change = |to: &dyn Fn(&mut Rule)| {
                let mut one = self.best.clone();
                to(&mut one.options.rules[index]);
                one
            };
            let sooner = [1, rule.nth / 4, rule.nth / 2, rule.nth - 1];
            let sooner = sooner.into_iter().filter(|nth| (1..rule.nth).contains(nth));
            let mut candidates: Vec<Schedule> =
                sooner.map(|nth| change(&|rule| rule.nth = nth)).collect();
            candidates.push(change(&|rule| rule.side = None));
            candidates.push(change(&|rule| rule.choices = Some(Vec::new())));
            for place in 0..rule.choices.iter().flatten().count() {
                candidates.push(change(&|rule| {
                    rule.choices.iter_mut().for_each(|choices| choices[place] = 0);
                }));
            }
            let rules = self.best.options.rules.len();
            if !self.try_in_order(candidates) || self.best.options.rules.len() < rules {
                index += 1;
            }
        }
    }

    /// Omits kinds of faults, and kinds of calls of all clients.
    fn fewer_kinds(&mut self, seeds: usize) {
        let kind = |step: &Step| match step.act {
            Act::Call(_, op) => Act::Call(ClientId(0), op),
            injection @ Act::Inject(_) => injection,
        };
        let kinds: BTreeSet<Act> = self.best.steps.iter().map(kind).collect();
        let kinds: Vec<Act> = kinds.into_iter().collect();
        self.ever_fewer(&kinds, seeds, |one, gone| {
            one.steps.retain(|step| !gone.contains(&kind(step)));
        });
    }

    fn fewer_faults(&mut self, seeds: usize) {
        self.fewer_steps(|act| act.fault().is_some(), seeds);
    }

    fn fewer_calls(&mut self, seeds: usize) {
        self.fewer_steps(|act| act.client().is_some(), seeds);
    }

    /// Delta debugging: omits ever smaller groups of steps. Large groups with many seeds come
    /// before small ones with few: if the failure is rare, omitting one step changes the run as
    /// much as omitting half of them.
    fn fewer_steps(&mut self, wanted: impl Fn(Act) -> bool, seeds: usize) {
        let mut chunk = self.acts(&wanted).len();
        let least = if seeds < SEEDS_MAX { chunk / (PARTS * seeds) } else { 0 };
        while chunk > least && !self.is_over() {
            let mut from = 0;
            loop {
                let all = self.acts(&wanted);
                let Some(gone) = all.get(from..(from + chunk).min(all.len())) else {
                    break;
                };
                if gone.is_empty() || self.is_over() {
                    break;
                }
                let one = without(&self.best, gone);
                if !self.try_seeds(&one, seeds) {
                    from += chunk;
                }
            }
            chunk /= 2;
        }
    }

    /// Omits two steps at once, of a short schedule: one may only undo the other.
    fn fewer_pairs(&mut self, _: usize) {
        let mut first = 0;
        while first < self.best.steps.len() && self.best.steps.len() <= SHORT && !self.is_over() {
            let length = self.best.steps.len();
            let pairs = (first + 1..length).map(|second| without(&self.best, &[first, second]));
            let pairs: Vec<Schedule> = pairs.collect();
            if !self.try_in_order(pairs) {
                first += 1;
            }
        }
    }

    /// Omits a random quarter of the steps: a rare failure may need another seed together with
    /// fewer steps, and a step that affects every server may need fewer servers.
    fn thin(&mut self, _: usize) {
        while (FEW..=LONG).contains(&self.best.steps.len()) && !self.is_over() {
            let candidates: Vec<Schedule> = (0..THIN)
                .map(|_| {
                    let mut one = self.best.clone();
                    one.steps.retain(|_| !self.rng.chance(1, 4));
                    if self.rng.chance(1, 2) {
                        one.options.servers = one.options.servers.min(FEW_SERVERS);
                    }
                    one.seed = self.rng.word();
                    one
                })
                .collect();
            if !self.try_fewer(candidates) {
                return;
            }
        }
    }

    fn plain_settings(&mut self, _: usize) {
        for name in schedule::setting_names() {
            if name == "duration_us" || self.is_over() {
                continue;
            }
            let value = plain_value(name);
            if name == "servers" && value >= self.best.options.servers.into() {
                continue;
            }
            if name == "clients" {
                continue;
            }
            self.try_in_order([with(self.best.clone(), (name, value))]);
        }
        let ordered = Schedule { in_order: true, ..self.best.clone() };
        self.try_in_order([ordered]);
        let keys = Schedule { keys: 1, ..self.best.clone() };
        self.try_in_order([keys]);
    }

    /// Choices towards zero: all of a step, then each, then its half.
    fn simple_choices(&mut self, _: usize) {
        let mut index = 0;
        while index < self.best.steps.len() && !self.is_over() {
            let change = |to: &dyn Fn(&mut Vec<u64>)| {
                let mut one = self.best.clone();
                to(&mut one.steps[index].choices);
                one
            };
            let mut candidates = vec![change(&|choices| choices.clear())];
            for place in 0..self.best.steps[index].choices.len().min(12) {
                candidates.push(change(&|choices| choices[place] = 0));
                candidates.push(change(&|choices| choices[place] /= 2));
            }
            let length = self.best.steps.len();
            if !self.try_in_order(candidates) || self.best.steps.len() < length {
                index += 1;
            }
        }
    }

    /// Shorter pauses, then rounder times.
    fn simple_times(&mut self, _: usize) {
        let mut index = 0;
        while index < self.best.steps.len() && !self.is_over() {
            let before = if index == 0 { Instant(0) } else { self.best.steps[index - 1].at };
            let pause = self.best.steps[index].at.0 - before.0;
            let earlier = [pause.saturating_sub(MS), pause / 2, pause / 4].map(|by| {
                let mut one = self.best.clone();
                one.steps[index..].iter_mut().for_each(|step| step.at.0 -= by);
                one
            });
            let earlier: Vec<Schedule> = earlier.into_iter().filter(|_| pause > 10 * MS).collect();
            self.try_in_order(earlier);
            index += 1;
        }
        for unit in [1_000 * MS, 100 * MS, 10 * MS, MS] {
            let mut one = self.best.clone();
            one.steps.iter_mut().for_each(|step| step.at.0 = rounded(step.at.0, unit));
            if one.steps.iter().all(|step| step.at.0 > 0) && self.try_in_order([one]) {
                return;
            }
        }
        for index in 0..self.best.steps.len() {
            let candidates = [1_000 * MS, 100 * MS, 10 * MS, MS].map(|unit| {
                let mut one = self.best.clone();
                if let Some(step) = one.steps.get_mut(index) {
                    step.at.0 = rounded(step.at.0, unit);
                }
                one
            });
            let sorted = |one: &Schedule| one.steps.is_sorted_by_key(|step| step.at);
            let candidates: Vec<Schedule> = candidates.into_iter().filter(sorted).collect();
            self.try_in_order(candidates);
        }
    }

    /// Cuts the time after the failure. Costs a single run, even if the budget is used up.
    pub(super) fn cut_the_rest(&mut self) {
        let after = Duration::from_secs(self.failed.0.0 / (1_000 * MS) + 2);
        if after < self.best.options.duration {
            let mut one = self.best.clone();
            one.options.duration = after;
            self.tried += 1;
            let cut = || World::scripted(&one, TraceSink::Off, false);
            if let Some(hit) = hit(cut, &self.way, self.last()) {
                self.accept(one, hit);
            }
        }
    }
}

/// A copy with one setting changed.
fn with(mut one: Schedule, (name, value): (&str, u64)) -> Schedule {
    one.options = schedule::with_setting(&one.options, name, value).expect("it has a name");
    one
}

fn plain_value(name: &str) -> u64 {
    schedule::setting(&schedule::plain(), name).expect("it has a name")
}

/// Omits these clients with all their calls.
fn leave_clients(one: &mut Schedule, gone: impl Iterator<Item = ClientId>) {
    one.absent.extend(gone);
    one.steps.retain(|step| step.act.client().is_none_or(|client| !one.absent.contains(&client)));
}

/// Rounds to the nearest multiple.
fn rounded(ns: u64, unit: u64) -> u64 {
    (ns + unit / 2) / unit * unit
}

fn without(schedule: &Schedule, gone: &[usize]) -> Schedule {
    let kept = schedule.steps.iter().enumerate().filter(|(index, _)| !gone.contains(index));
    let steps = kept.map(|(_, step)| step.clone()).collect();
    Schedule { steps, ..schedule.clone() }
}
