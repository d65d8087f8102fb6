//! The moves of the search, and their order.
//!
//! Owns the order, and what moves share; `settings` and `steps` have the moves. Each ends with a
//! best schedule that is not longer than before.

use super::Search;
use crate::check::observe::ClientId;
use crate::replay::schedule::{self, Schedule};

mod settings;
mod steps;

const MS: u64 = 1_000_000;
/// Schedules with fewer steps are as short as can be expected.
pub(super) const FEW: usize = 4;
/// Servers of the smallest ensemble that tolerates a failure.
const FEW_SERVERS: u32 = 3;
/// Schedules with at most this many steps are short: every pair of steps can be tried.
const SHORT: usize = 24;
/// Schedules with more steps are long: trying each step is not worth it yet.
const LONG: usize = 120;
/// All moves are repeated for a long schedule only if they removed this fraction of it.
const WORTH: usize = 8;
/// Seeds that each candidate is tried with at first, and at the end.
pub(super) const SEEDS_MIN: usize = 2;
pub(super) const SEEDS_MAX: usize = 32;
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
}

/// A copy with one setting changed.
fn with(mut one: Schedule, (name, value): (&str, u64)) -> Schedule {
    one.options = schedule::with_setting(&one.options, name, value).expect("it has a name");
    one
}

/// Omits these clients with all their calls.
fn leave_clients(one: &mut Schedule, gone: impl Iterator<Item = ClientId>) {
    one.absent.extend(gone);
    one.steps.retain(|step| step.act.client().is_none_or(|client| !one.absent.contains(&client)));
}
