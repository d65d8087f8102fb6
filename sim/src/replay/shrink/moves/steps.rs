//! Moves that omit steps of a schedule, or simplify the times and choices of steps.
//!
//! Owns those moves. Must not change settings, except the number of servers of random samples.

use std::collections::BTreeSet;

use zabkeeper_core::Instant;

use super::settings::ROOM;
use super::{FEW, FEW_SERVERS, LONG, MS, SEEDS_MAX, SHORT, leave_clients, with};
use crate::check::observe::ClientId;
use crate::engine::decisions::{Act, Step};
use crate::replay::schedule::Schedule;
use crate::replay::shrink::Search;
use crate::replay::shrink::nodes::{ancestors, is_in, nodes};

/// Random samples tried of a long schedule, per size and seed.
const SAMPLES: usize = 12;

/// Random samples tried once no single step can be omitted.
const THIN: usize = 40;

/// Per seed that a candidate is tried with, a schedule is divided into this many more parts.
const PARTS: usize = 16;

impl Search {
    pub(super) fn leave_out_vain(&mut self) {
        let mut one = self.best.clone();
        one.steps.retain(|step| step.hit);
        self.try_seeds(&one, 4);
    }

    /// Keeps only the last steps, or the last calls.
    pub(super) fn keep_the_last(&mut self, seeds: usize) {
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
    pub(super) fn keep_one_node(&mut self, seeds: usize) {
        if self.best.steps.len() < SHORT {
            return;
        }
        let named: Vec<Vec<String>> =
            self.best.steps.iter().map(|step| nodes(&step.effect)).collect();
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
    pub(super) fn keep_around_faults(&mut self, seeds: usize) {
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

    /// Tries random samples, the smallest first: a frequent failure also occurs in them.
    pub(super) fn sample(&mut self, seeds: usize) {
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

    /// Omits kinds of faults, and kinds of calls of all clients.
    pub(super) fn fewer_kinds(&mut self, seeds: usize) {
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

    pub(super) fn fewer_faults(&mut self, seeds: usize) {
        self.fewer_steps(|act| act.fault().is_some(), seeds);
    }

    pub(super) fn fewer_calls(&mut self, seeds: usize) {
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
    pub(super) fn fewer_pairs(&mut self, _: usize) {
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
    pub(super) fn thin(&mut self, _: usize) {
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

    /// Choices towards zero: all of a step, then each, then its half.
    pub(super) fn simple_choices(&mut self, _: usize) {
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
    pub(super) fn simple_times(&mut self, _: usize) {
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
