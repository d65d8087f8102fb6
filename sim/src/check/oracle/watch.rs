//! The watches of client connections, and the events that they must receive.
//!
//! Owns the watch tables of each connection, as derived from the client's stream of replies and
//! events. The server sends both in one queue, so each registration has an exact place in the
//! history: the zxid of its reply. From there the model determines the transactions that fire it. A
//! change is reported to a connection once, however many of its watches it fires (WATCH-08). Must
//! not decode frames.

mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;

use zabkeeper_core::wire::{Acl, EventType, Id as Identity, Perms, WatchEvent, WatcherType};
use zabkeeper_core::{ConnId, Zxid};

use super::catalog::{Checks, Id, Verdict};
use super::conn::Who;
use crate::check::model::{Firing, Model, Rules, Table};

pub(super) use tables::{Armed, Slot, Tables};

/// The order of events: by transaction, then by place in it.
type Place = (Zxid, u32);

/// The watches of one connection.
#[derive(Clone, Default, Debug)]
pub(super) struct ConnWatches {
    tables: Tables<Watch>,
    /// Events that the client must read, in order.
    due: BTreeMap<Place, Due>,
    /// Why a path has no watch any more, to choose the oracle of a wrong event.
    gone: BTreeMap<String, Gone>,
}

/// The event that fires a one-shot watch, once known; always `None` for a persistent one.
type Watch = Option<Place>;

#[derive(Clone, Debug)]
struct Due {
    event: EventType,
    path: String,
    /// The node's ACL: a client that may not read it gets no event, but its watch is used up
    /// (WATCH-17).
    acl: Arc<[Acl]>,
}

/// The identities of a client, which decide about the events that it gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Audience<'a> {
    pub(super) rules: &'a Rules,
    pub(super) ids: &'a [Identity],
}

impl Audience<'_> {
    pub(super) fn may_receive(&self, acl: &[Acl]) -> bool {
        self.rules.may(self.ids, acl, Perms::READ)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gone {
    Fired(Zxid),
    Removed,
    FailedRead,
}

/// Watches that a client holds, as derived from its replies and events.
pub(super) type Held = Tables<Kept>;

/// A watch that a client holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    /// The watch reports changes after this zxid.
    pub(super) since: Zxid,
    /// A reply that set it has shown that the node exists.
    pub(super) present: bool,
    /// A reply that set it has shown that there is no node. Both are true where one of the two was
    /// used up without an event.
    pub(super) absent: bool,
}

impl ConnWatches {
    /// The watch is set at the state `since`. A second registration changes nothing.
    pub(super) fn register(
        &mut self,
        model: &Model,
        armed: &mut Armed,
        (conn, slot, path): (ConnId, Slot, &str),
        since: Zxid,
    ) {
        self.gone.remove(path);
        if self.tables.of(slot).contains_key(path) {
            return;
        }
        self.tables.of_mut(slot).insert(path.to_owned(), None);
        let table = match slot {
            Slot::Data => Table::Data,
            Slot::Child => Table::Child,
            Slot::Persistent | Slot::Recursive => {
                armed.add(slot, path, conn);
                for firing in model.firings_after(since) {
                    let fires = match slot {
                        Slot::Recursive => firing.table == Table::Data,
                        Slot::Data | Slot::Child | Slot::Persistent => firing.path == path,
                    };
                    if fires && tables::up_from(&firing.path).any(|above| above == path) {
                        self.fire(firing);
                    }
                }
                return;
            }
        };
        match model.next_firing(table, path, since) {
            Some(firing) => self.fire(firing),
            None => armed.add(slot, path, conn),
        }
    }

    /// A transaction has fired a watch of this connection.
    pub(super) fn fire(&mut self, firing: &Firing) {
        let place = (firing.zxid, firing.place);
        let once = self.tables.of_mut(Slot::of_table(firing.table)).get_mut(&firing.path);
        if let Some(watch @ None) = once {
            *watch = Some(place);
        }
        let Firing { event, path, acl, .. } = firing.clone();
        self.due.entry(place).or_insert(Due { event, path, acl });
    }

    pub(super) fn read_failed(&mut self, path: &str) {
        if Slot::of_kind(WatcherType::Any).iter().all(|s| !self.tables.of(*s).contains_key(path)) {
            self.gone.insert(path.to_owned(), Gone::FailedRead);
        }
    }

    /// Whether the path has a watch of this kind.
    pub(super) fn has(&self, path: &str, kind: WatcherType) -> bool {
        Slot::of_kind(kind).iter().any(|slot| self.tables.of(*slot).contains_key(path))
    }

    /// The client has removed its watches. Its other watches may still wait for the same events.
    pub(super) fn remove(
        &mut self,
        armed: &mut Armed,
        conn: ConnId,
        path: &str,
        kind: WatcherType,
    ) {
        for &slot in Slot::of_kind(kind) {
            if self.tables.of_mut(slot).remove(path).is_some() {
                self.gone.insert(path.to_owned(), Gone::Removed);
                armed.remove(slot, path, conn);
            }
        }
        let tables = &self.tables;
        self.due.retain(|place, due| waits(tables, *place, due));
    }

    /// Whether a one-shot watch waits for this event.
    fn is_due_once(&self, place: Place, due: &Due) -> bool {
        is_due_once(&self.tables, place, due)
    }

    /// The event at this place uses up its one-shot watches.
    fn settle(&mut self, place: Place) -> Option<Due> {
        let due = self.due.remove(&place)?;
        for slot in Slot::ONCE {
            let watches = self.tables.of_mut(slot);
            if watches.get(&due.path).is_some_and(|watch| *watch == Some(place)) {
                watches.remove(&due.path);
            }
        }
        self.gone.insert(due.path.clone(), Gone::Fired(place.0));
        Some(due)
    }

    /// W3, W5: the client has read a reply that shows the state at `zxid`. Before that it has read
    /// each earlier event of a node that it could read by the identities that were settled (see
    /// `Shown`).
    pub(super) fn replied(
        &mut self,
        checks: &mut Checks,
        zxid: Zxid,
        settled: Audience<'_>,
        who: Who,
    ) -> Verdict {
        while let Some((&place, due)) = self.due.first_key_value() {
            if place.0 > zxid {
                break;
            }
            let persists = self.tables.of(Slot::Persistent).contains_key(&due.path)
                || self.tables.is_below_recursive(&due.path);
            let id = if persists && !self.is_due_once(place, due) { Id::W5 } else { Id::W3 };
            checks.check(id, !settled.may_receive(&due.acl), || {
                vec![format!(
                    "{who} has read a reply at {zxid}, and not {:?} of {} at {} before it",
                    due.event, due.path, place.0
                )]
            })?;
            self.settle(place);
        }
        checks.check(Id::W3, true, Vec::new)
    }

    /// An event that names its transaction was read.
    pub(super) fn event_received(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        (event, zxid): (&WatchEvent, Zxid),
        (settled, answered): (Audience<'_>, Audience<'_>),
        who: Who,
    ) -> Verdict {
        let owes = |place: &Place, due: &Due| {
            place.0 == zxid && due.event == event.event && due.path == event.path
        };
        // A multi may cause the same event twice, for nodes with different ACLs.
        let mut owed = self.due.iter().filter(|(place, due)| owes(place, due));
        let may = owed.clone().find(|(_, due)| answered.may_receive(&due.acl));
        let Some((&place, due)) = may.or_else(|| owed.next()) else {
            return self.has_no_cause(checks, model, event, zxid, who);
        };
        checks.check(Id::T7, answered.may_receive(&due.acl), || {
            let ids = answered.ids;
            vec![format!("{who} has read {}, and may not read that: {ids:?}", describe(event))]
        })?;
        let skipped = self.due.range(..place).find(|(_, due)| settled.may_receive(&due.acl));
        checks.check(Id::W3, skipped.is_none(), || {
            let (first, due) = skipped.expect("does not hold");
            let owed = format!("{:?} of {} at {}", due.event, due.path, first.0);
            vec![format!("{who} has read {}, and not {owed} before it", describe(event))]
        })?;
        let silent: Vec<Place> = self.due.range(..place).map(|(place, _)| *place).collect();
        for place in silent {
            self.settle(place);
        }
        self.settle(place);
        for id in [Id::W1, Id::W4, Id::W5, Id::W6, Id::W7, Id::W8] {
            checks.check(id, true, Vec::new)?;
        }
        Ok(())
    }

    /// Chooses the oracle that an unexpected event violates.
    fn has_no_cause(
        &self,
        checks: &mut Checks,
        model: &Model,
        event: &WatchEvent,
        zxid: Zxid,
        who: Who,
    ) -> Verdict {
        let mut evidence = vec![format!("{who} has read {}", describe(event))];
        let owed = self.due.iter().find(|(place, due)| place.0 == zxid || due.path == event.path);
        let gone = self.gone.get(&event.path);
        let persists = self.tables.of(Slot::Persistent).contains_key(&event.path)
            || self.tables.is_below_recursive(&event.path);
        let caused = [Table::Data, Table::Child].into_iter().any(|table| {
            let before = Zxid(zxid.0.saturating_sub(1));
            let firing = model.next_firing(table, &event.path, before);
            firing.is_some_and(|firing| firing.zxid == zxid && firing.event == event.event)
        });
        let id = match (owed, gone) {
            (Some(((zxid, _), due)), _) if !persists || due.path == event.path => {
                evidence.push(format!("it was owed {:?} of {} at {zxid}", due.event, due.path));
                Id::W4
            }
            (_, _) if persists => {
                evidence.push("what its persistent watch owed there was sent before".to_owned());
                Id::W5
            }
            (_, Some(Gone::Fired(at))) => {
                evidence.push(format!("its watch there has fired at {at}"));
                Id::W1
            }
            (_, Some(Gone::Removed)) => {
                evidence.push("its watch there was removed".to_owned());
                Id::W6
            }
            (_, Some(Gone::FailedRead)) => {
                evidence.push("the read that was to set a watch there had failed".to_owned());
                Id::W8
            }
            (_, None) => {
                let why = if caused { "it has no watch there" } else { "no such change" };
                evidence.push(why.to_owned());
                Id::W7
            }
        };
        checks.check(id, false, || evidence)
    }

    /// The connection is closed, and its watches are removed.
    pub(super) fn close(self, armed: &mut Armed, conn: ConnId) {
        for (slot, path, _) in self.tables.iter() {
            armed.remove(slot, path, conn);
        }
    }
}

/// Whether a one-shot watch waits for the event at this place.
fn is_due_once(tables: &Tables<Watch>, place: Place, due: &Due) -> bool {
    let fires = |slot: &Slot| tables.of(*slot).get(&due.path) == Some(&Some(place));
    Slot::ONCE.iter().any(fires)
}

/// Whether any watch waits for it.
fn waits(tables: &Tables<Watch>, place: Place, due: &Due) -> bool {
    let covers_names = due.event == EventType::NodeChildrenChanged;
    is_due_once(tables, place, due)
        || tables.of(Slot::Persistent).contains_key(&due.path)
        || !covers_names && tables.is_below_recursive(&due.path)
}

/// The event as evidence shows it.
pub(super) fn describe(event: &WatchEvent) -> String {
    match event.zxid {
        Some(zxid) => format!("{:?} of {} at {zxid}", event.event, event.path),
        None => format!("{:?} of {} without a zxid", event.event, event.path),
    }
}
