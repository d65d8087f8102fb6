//! Which situations two servers have been in with each other: their roles, how their epochs compare, and their logs.
//!
//! Owns the set of situations seen. A batch that sees fewer than the one before has lost something, whatever its marks
//! say. Must not influence the run.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{Epoch, ServerId, Status, Zxid};

use crate::roles::Role;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shapes {
    last: BTreeMap<ServerId, Place>,
    seen: BTreeSet<Shape>,
}

/// Where a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    role: Role,
    accepted: Epoch,
    current: Epoch,
    log: Zxid,
}

/// Two servers: what each does, how the epochs that they have promised and that they have taken over compare, and
/// whose log ends later, and whether in a later epoch.
type Shape = (Role, Role, Ordering, Ordering, Ordering, Ordering);

impl Shapes {
    /// A server that runs shows where it is. Logs alone change all the time and count when something else does.
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

    /// A server is gone; its disk stays as it was.
    pub fn down(&mut self, server: ServerId) {
        if let Some(place) = self.last.get(&server) {
            self.enter(server, Place { role: Role::Down, ..*place });
        }
    }

    fn enter(&mut self, server: ServerId, place: Place) {
        let before = self.last.insert(server, place);
        let log = place.log;
        let told = before.map(|before| Place { log, ..before });
        if told == Some(place) && before.is_some_and(|b| b.log.epoch() == log.epoch()) {
            return;
        }
        for (other, there) in &self.last {
            if *other != server {
                // Of the two ways to look at a pair, the one that comes first.
                self.seen.insert(shape(&place, there).min(shape(there, &place)));
            }
        }
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Shapes) {
        self.seen.extend(&other.seen);
    }

    /// How many different ones were seen.
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
    fn a_situation_counts_once_whoever_is_in_it() {
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
