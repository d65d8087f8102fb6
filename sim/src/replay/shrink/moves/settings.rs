//! Moves that simplify the settings of a schedule: plain values, small limits, fewer servers,
//! clients, rules and faults, an earlier heal.
//!
//! Owns those moves. Must not omit single steps: `steps` does.

use std::time::Duration;

use super::{FEW, MS, SHORT, leave_clients, with};
use crate::check::observe::ClientId;
use crate::engine::decisions::Act;
use crate::faults::catalog::{Fault, FaultPlan};
use crate::faults::targets::Rule;
use crate::record::trace::TraceSink;
use crate::replay::schedule::{self, Schedule};
use crate::replay::shrink::{Search, hit};
use crate::world::World;

/// Settings of amounts rather than behaviour.
const AMOUNTS: [&str; 4] = ["duration_us", "servers", "clients", "paths"];

/// Small limits, and frequent checks.
pub(super) const ROOM: [(&str, u64); 7] = [
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

impl Search {
    /// Properties off, constant latencies, default settings: all at once, or some of these.
    pub(super) fn be_calm(&mut self, seeds: usize) {
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
    pub(super) fn fewer_properties(&mut self, seeds: usize) {
        let faults: Vec<Fault> = self.best.options.faults.on().collect();
        self.ever_fewer(&faults, seeds, |one, off| {
            off.iter().for_each(|fault| one.options.faults.switch_off(*fault));
        });
    }

    /// Ends the phase of faults early: the cause of a failure after the heal may be much older.
    pub(super) fn heal_early(&mut self, seeds: usize) {
        let length = self.best.options.duration;
        self.heal_after([32, 16, 8, 4, 2].map(|part| length / part), seeds);
    }

    /// Ends the phase of faults soon after its last step.
    pub(super) fn shorter(&mut self, _: usize) {
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

    /// Sets small limits: some failures depend on an amount, and a lower limit needs fewer steps.
    pub(super) fn extreme_settings(&mut self, seeds: usize) {
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
    pub(super) fn same_clients(&mut self, seeds: usize) {
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

    /// Omits clients with all their calls.
    pub(super) fn fewer_clients(&mut self, seeds: usize) {
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

    pub(super) fn fewer_servers(&mut self, seeds: usize) {
        for servers in 1..self.best.options.servers {
            let mut one = self.best.clone();
            one.options.servers = servers;
            if self.try_seeds(&one, seeds) {
                return;
            }
        }
    }

    /// Omits rules, and the forks.
    pub(super) fn fewer_rules(&mut self, seeds: usize) {
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
    pub(super) fn simple_rules(&mut self, _: usize) {
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

    pub(super) fn plain_settings(&mut self, _: usize) {
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

    /// Cuts the time after the failure. Costs a single run, even if the budget is used up.
    pub(in crate::replay::shrink) fn cut_the_rest(&mut self) {
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

fn plain_value(name: &str) -> u64 {
    schedule::setting(&schedule::plain(), name).expect("it has a name")
}
