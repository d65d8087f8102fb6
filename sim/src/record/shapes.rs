//! The combinations of states that pairs of servers were in: roles, and how epochs and logs
//! compare.
//!
//! Owns the set of combinations seen. A batch that sees fewer than an earlier one has lost
//! coverage, even if all marks are hit. Must not influence the run.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{Epoch, ServerId, Status, Zxid};

use crate::record::role::Role;

/// The combinations seen; see the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shapes {
    last: BTreeMap<ServerId, Place>,
    seen: BTreeSet<Shape>,
}

/// The state of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    role: Role,
    accepted: Epoch,
    current: Epoch,
    log: Zxid,
}

/// The roles of two servers, and the order of their accepted epochs, their current epochs, the
/// epochs of their last log entries, and their last log entries.
type Shape = (Role, Role, Ordering, Ordering, Ordering, Ordering);

impl Shapes {
    /// Records the state of a running server. A change of the log within an epoch counts only
    /// together with another change.
    pub fn record(&mut self, server: ServerId, status: &Status) {
        self.enter(
            server,
            Place {
                role: Role::of(status),
                accepted: status.accepted_epoch,
                current: status.current_epoch,
                log: status.appended,
            },
        );
    }

    /// A server is down; its disk keeps its state.
    pub fn down(&mut self, server: ServerId) {
        if let Some(place) = self.last.get(&server) {
            self.enter(server, Place { role: Role::Down, ..*place });
        }
    }

    fn enter(&mut self, server: ServerId, place: Place) {
        let before = self.last.insert(server, place);
        let log = place.log;
        let expected = before.map(|before| Place { log, ..before });
        if expected == Some(place) && before.is_some_and(|b| b.log.epoch() == log.epoch()) {
            return;
        }
        for (other, there) in &self.last {
            if *other != server {
                // Of the two orders of a pair, the lesser one.
                self.seen.insert(shape(&place, there).min(shape(there, &place)));
            }
        }
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Shapes) {
        self.seen.extend(&other.seen);
    }

    /// Number of distinct combinations seen.
    pub fn count(&self) -> usize {
        self.seen.len()
    }
}

fn shape(a: &Place, b: &Place) -> Shape {
    (
        a.role,
        b.role,
        a.accepted.cmp(&b.accepted),
        a.current.cmp(&b.current),
        a.log.epoch().cmp(&b.log.epoch()),
        a.log.cmp(&b.log),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(role: Role, log: u64) -> Place {
        Place { role, accepted: Epoch(1), current: Epoch(1), log: Zxid(log) }
    }

    #[test]
    fn combination_counts_once_for_any_pair_of_servers() {
        let mut shapes = Shapes::default();
        let (a, b) = (ServerId(1), ServerId(2));
        shapes.enter(a, place(Role::Leads, 7));
        assert_eq!(shapes.count(), 0, "one server is in no situation with another");
        shapes.enter(b, place(Role::Follows, 7));
        assert_eq!(shapes.count(), 1);
        shapes.enter(b, place(Role::Follows, 8));
        assert_eq!(shapes.count(), 1, "a log that grows is no news");
        shapes.down(a);
        assert_eq!(shapes.count(), 2);

        let mut others = Shapes::default();
        others.enter(a, place(Role::Follows, 3));
        others.enter(b, place(Role::Leads, 3));
        shapes.add(&others);
        assert_eq!(shapes.count(), 2, "the first one, the other way round");
    }
}
