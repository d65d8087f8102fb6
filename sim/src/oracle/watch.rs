//! What the connections of clients are watching, and which events they are owed.
//!
//! Owns the watch tables of each connection as the client's stream of replies and events implies them. A connection's
//! replies and events are one queue on the server, so each registration has an exact place in the history: the zxid
//! of its reply. From there the model says which transaction must fire it. Must not look at frames.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::wire::{EventType, WatchEvent, WatcherType};
use zabkeeper_core::{ConnId, Zxid};

use super::catalog::{Id, Tally, Verdict};
use super::conn::Who;
use crate::model::{Firing, Model, Table};

/// Which event comes before which: by transaction, then by place in it.
type Place = (Zxid, u32);

/// The watches of one connection.
#[derive(Clone, Default, Debug)]
pub(super) struct ConnWatches {
    tables: Tables<Watch>,
    /// What the client must hear next, in order.
    due: BTreeMap<Place, Due>,
    /// Why a path has no watch any more, for the name of a fault.
    gone: BTreeMap<String, Gone>,
}

/// One entry for each path, in each of the two tables.
#[derive(Clone, Debug)]
pub(super) struct Tables<T> {
    data: BTreeMap<String, T>,
    child: BTreeMap<String, T>,
}

/// What fires a watch, once that is known.
type Watch = Option<Place>;

#[derive(Clone, Debug)]
struct Due {
    event: EventType,
    path: String,
    /// Uses the watch up without a word, because nobody may read the node (WATCH-17).
    silent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gone {
    Fired(Zxid),
    Removed,
    FailedRead,
}

/// Watches that a client holds, as it must conclude from replies and events: changes after which zxid count.
pub(super) type Held = Tables<Zxid>;

/// The connections to tell when a path is touched.
#[derive(Clone, Default, Debug)]
pub(super) struct Armed {
    paths: BTreeMap<String, Watchers>,
}

#[derive(Clone, Default, Debug)]
struct Watchers {
    data: BTreeSet<ConnId>,
    child: BTreeSet<ConnId>,
}

impl<T> Default for Tables<T> {
    fn default() -> Tables<T> {
        Tables { data: BTreeMap::new(), child: BTreeMap::new() }
    }
}

impl<T> Tables<T> {
    pub(super) fn of(&self, table: Table) -> &BTreeMap<String, T> {
        match table {
            Table::Data => &self.data,
            Table::Child => &self.child,
        }
    }

    pub(super) fn of_mut(&mut self, table: Table) -> &mut BTreeMap<String, T> {
        match table {
            Table::Data => &mut self.data,
            Table::Child => &mut self.child,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.child.is_empty()
    }

    /// Takes all of `other`, too.
    pub(super) fn join(&mut self, other: Tables<T>) {
        self.data.extend(other.data);
        self.child.extend(other.child);
    }

    /// Moves an entry, if it is here.
    pub(super) fn hand_over(&mut self, table: Table, path: &str, to: &mut Tables<T>) {
        if let Some((path, entry)) = self.of_mut(table).remove_entry(path) {
            to.of_mut(table).insert(path, entry);
        }
    }

    /// Forgets what this event uses up on the client's side.
    pub(super) fn used_up(&mut self, event: EventType, path: &str) {
        match event {
            EventType::NodeCreated | EventType::NodeDataChanged => {
                self.data.remove(path);
            }
            EventType::NodeChildrenChanged => {
                self.child.remove(path);
            }
            EventType::NodeDeleted => {
                self.data.remove(path);
                self.child.remove(path);
            }
        }
    }
}

impl Armed {
    fn of(&mut self, table: Table, path: &str) -> &mut BTreeSet<ConnId> {
        if !self.paths.contains_key(path) {
            self.paths.insert(path.to_owned(), Watchers::default());
        }
        let tables = self.paths.get_mut(path).expect("inserted");
        match table {
            Table::Data => &mut tables.data,
            Table::Child => &mut tables.child,
        }
    }

    /// Takes the connections that a firing concerns.
    pub(super) fn take(&mut self, firing: &Firing) -> BTreeSet<ConnId> {
        match self.paths.get_mut(&firing.path) {
            None => BTreeSet::new(),
            Some(tables) => std::mem::take(match firing.table {
                Table::Data => &mut tables.data,
                Table::Child => &mut tables.child,
            }),
        }
    }
}

impl ConnWatches {
    /// A watch stands since the transaction `since`. Setting it twice changes nothing.
    pub(super) fn register(
        &mut self,
        model: &Model,
        armed: &mut Armed,
        (conn, table, path): (ConnId, Table, &str),
        since: Zxid,
    ) {
        self.gone.remove(path);
        if self.tables.of(table).contains_key(path) {
            return;
        }
        self.tables.of_mut(table).insert(path.to_owned(), None);
        match model.next_firing(table, path, since) {
            Some(firing) => self.fire(firing),
            None => {
                armed.of(table, path).insert(conn);
            }
        }
    }

    /// A transaction has touched a watched path.
    pub(super) fn fire(&mut self, firing: &Firing) {
        let place = (firing.zxid, firing.place);
        let watch = self.tables.of_mut(firing.table).get_mut(&firing.path);
        *watch.expect("armed for a watch that stands") = Some(place);
        let (event, path, silent) = (firing.event, firing.path.clone(), !firing.readable);
        self.due.insert(place, Due { event, path, silent });
    }

    pub(super) fn read_failed(&mut self, path: &str) {
        if [Table::Data, Table::Child].iter().all(|t| !self.tables.of(*t).contains_key(path)) {
            self.gone.insert(path.to_owned(), Gone::FailedRead);
        }
    }

    /// Is there a watch of this kind on the path?
    pub(super) fn has(&self, path: &str, kind: WatcherType) -> bool {
        tables_of(kind).iter().any(|table| self.tables.of(*table).contains_key(path))
    }

    /// The client has removed its watches.
    pub(super) fn remove(
        &mut self,
        armed: &mut Armed,
        conn: ConnId,
        path: &str,
        kind: WatcherType,
    ) {
        for &table in tables_of(kind) {
            let Some(watch) = self.tables.of_mut(table).remove(path) else {
                continue;
            };
            self.gone.insert(path.to_owned(), Gone::Removed);
            match watch {
                None => {
                    armed.of(table, path).remove(&conn);
                }
                Some(place) if !self.stands_for(place, path) => {
                    self.due.remove(&place);
                }
                Some(_) => {}
            }
        }
    }

    fn stands_for(&self, place: Place, path: &str) -> bool {
        let due =
            |table| self.tables.of(table).get(path).is_some_and(|watch| *watch == Some(place));
        due(Table::Data) || due(Table::Child)
    }

    /// A watch has been used up at this place.
    fn settle(&mut self, place: Place) -> Option<Due> {
        let due = self.due.remove(&place)?;
        for table in [Table::Data, Table::Child] {
            let watches = self.tables.of_mut(table);
            if watches.get(&due.path).is_some_and(|watch| *watch == Some(place)) {
                watches.remove(&due.path);
            }
        }
        self.gone.insert(due.path.clone(), Gone::Fired(place.0));
        Some(due)
    }

    /// A reply that shows the state at `zxid` has been read: every event up to there must have been.
    pub(super) fn replied(&mut self, tally: &mut Tally, zxid: Zxid, who: Who) -> Verdict {
        while let Some((&place, due)) = self.due.first_key_value() {
            if place.0 > zxid {
                break;
            }
            tally.hold(Id::W3, due.silent, || {
                vec![format!(
                    "{who} has read a reply at {zxid}, and not {:?} of {} at {} before it",
                    due.event, due.path, place.0
                )]
            })?;
            self.settle(place);
        }
        tally.hold(Id::W3, true, Vec::new)
    }

    /// An event that names its transaction has been read.
    pub(super) fn heard(
        &mut self,
        tally: &mut Tally,
        model: &Model,
        (event, zxid): (&WatchEvent, Zxid),
        who: Who,
    ) -> Verdict {
        let owes = |place: &Place, due: &Due| {
            !due.silent && place.0 == zxid && due.event == event.event && due.path == event.path
        };
        let Some((&place, _)) = self.due.iter().find(|(place, due)| owes(place, due)) else {
            return self.has_no_cause(tally, model, event, zxid, who);
        };
        let skipped = self.due.range(..place).find(|(_, due)| !due.silent);
        tally.hold(Id::W3, skipped.is_none(), || {
            let (first, due) = skipped.expect("does not hold");
            let owed = format!("{:?} of {} at {}", due.event, due.path, first.0);
            vec![format!("{who} has read {}, and not {owed} before it", describe(event))]
        })?;
        let silent: Vec<Place> = self.due.range(..place).map(|(place, _)| *place).collect();
        for place in silent {
            self.settle(place);
        }
        self.settle(place);
        for id in [Id::W1, Id::W4, Id::W6, Id::W7, Id::W8] {
            tally.hold(id, true, Vec::new)?;
        }
        Ok(())
    }

    /// Names the fault of an event that nothing owed.
    fn has_no_cause(
        &self,
        tally: &mut Tally,
        model: &Model,
        event: &WatchEvent,
        zxid: Zxid,
        who: Who,
    ) -> Verdict {
        let mut evidence = vec![format!("{who} has read {}", describe(event))];
        let owed = self.due.iter().find(|(place, due)| place.0 == zxid || due.path == event.path);
        let gone = self.gone.get(&event.path);
        let caused = [Table::Data, Table::Child].into_iter().any(|table| {
            let before = Zxid(zxid.0.saturating_sub(1));
            let firing = model.next_firing(table, &event.path, before);
            firing.is_some_and(|firing| firing.zxid == zxid && firing.event == event.event)
        });
        let id = match (owed, gone) {
            (Some(((zxid, _), due)), _) => {
                evidence.push(format!("it was owed {:?} of {} at {zxid}", due.event, due.path));
                Id::W4
            }
            (None, Some(Gone::Fired(at))) => {
                evidence.push(format!("its watch there has fired at {at}"));
                Id::W1
            }
            (None, Some(Gone::Removed)) => {
                evidence.push("its watch there was removed".to_owned());
                Id::W6
            }
            (None, Some(Gone::FailedRead)) => {
                evidence.push("the read that was to set a watch there had failed".to_owned());
                Id::W8
            }
            (None, None) => {
                let why = if caused { "it has no watch there" } else { "no such change" };
                evidence.push(why.to_owned());
                Id::W7
            }
        };
        tally.hold(id, false, || evidence)
    }

    /// The connection is gone, and its watches with it.
    pub(super) fn close(self, armed: &mut Armed, conn: ConnId) {
        for table in [Table::Data, Table::Child] {
            for (path, watch) in self.tables.of(table) {
                if watch.is_none() {
                    armed.of(table, path).remove(&conn);
                }
            }
        }
    }
}

/// The event as it stands in evidence.
pub(super) fn describe(event: &WatchEvent) -> String {
    match event.zxid {
        Some(zxid) => format!("{:?} of {} at {zxid}", event.event, event.path),
        None => format!("{:?} of {} without a zxid", event.event, event.path),
    }
}

/// The tables in which a kind of watch stands.
pub(super) fn tables_of(kind: WatcherType) -> &'static [Table] {
    match kind {
        WatcherType::Children => &[Table::Child],
        WatcherType::Data => &[Table::Data],
        WatcherType::Any => &[Table::Data, Table::Child],
        WatcherType::Persistent | WatcherType::PersistentRecursive => &[],
    }
}
