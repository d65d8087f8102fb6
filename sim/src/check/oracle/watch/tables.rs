//! Watch tables by kind and path, for one connection and for all.
//!
//! Owns the four kinds of watches and which connections a change concerns. Must not check anything.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::wire::{AddWatchMode, EventType, WatcherType};
use zabkeeper_core::{ConnId, Zxid};

use super::Kept;
use crate::check::model::{Firing, Table};

/// The kinds of watches on a path. A connection may have all four on one path (WATCH-07).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::check::oracle) enum Slot {
    /// Set by getData and exists; one-shot.
    Data,
    /// Set by getChildren; one-shot.
    Child,
    /// Set by addWatch: fires for the node and for its list of children (WATCH-05).
    Persistent,
    /// Set by addWatch: fires for the node and all nodes below it, but never for lists of children
    /// (WATCH-06).
    Recursive,
}

impl Slot {
    const ALL: [Slot; 4] = [Slot::Data, Slot::Child, Slot::Persistent, Slot::Recursive];
    /// The one-shot kinds.
    pub(super) const ONCE: [Slot; 2] = [Slot::Data, Slot::Child];

    pub(in crate::check::oracle) fn of_table(table: Table) -> Slot {
        match table {
            Table::Data => Slot::Data,
            Table::Child => Slot::Child,
        }
    }

    pub(in crate::check::oracle) fn of_mode(mode: AddWatchMode) -> Slot {
        match mode {
            AddWatchMode::Persistent => Slot::Persistent,
            AddWatchMode::PersistentRecursive => Slot::Recursive,
        }
    }

    /// The kinds that a checkWatches or removeWatches request selects (WATCH-26, WATCH-27).
    pub(in crate::check::oracle) fn of_kind(kind: WatcherType) -> &'static [Slot] {
        match kind {
            WatcherType::Children => &[Slot::Child],
            WatcherType::Data => &[Slot::Data],
            WatcherType::Any => &Slot::ALL,
            WatcherType::Persistent => &[Slot::Persistent],
            WatcherType::PersistentRecursive => &[Slot::Recursive],
        }
    }
}

/// One entry per path and kind.
#[derive(Clone, Debug)]
pub(in crate::check::oracle) struct Tables<T>([BTreeMap<String, T>; 4]);

impl<T> Default for Tables<T> {
    fn default() -> Tables<T> {
        Tables([const { BTreeMap::new() }; 4])
    }
}

impl<T> Tables<T> {
    pub(in crate::check::oracle) fn of(&self, slot: Slot) -> &BTreeMap<String, T> {
        &self.0[slot as usize]
    }

    pub(in crate::check::oracle) fn of_mut(&mut self, slot: Slot) -> &mut BTreeMap<String, T> {
        &mut self.0[slot as usize]
    }

    pub(in crate::check::oracle) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &str, &T)> {
        let each = |slot| self.of(slot).iter().map(move |(path, entry)| (slot, &**path, entry));
        Slot::ALL.into_iter().flat_map(each)
    }

    /// Whether the path or an ancestor has a recursive watch.
    pub(super) fn is_below_recursive(&self, path: &str) -> bool {
        let recursive = self.of(Slot::Recursive);
        !recursive.is_empty() && up_from(path).any(|each| recursive.contains_key(each))
    }

    /// Moves an entry to another table, if it is in this one.
    pub(in crate::check::oracle) fn hand_over(
        &mut self,
        slot: Slot,
        path: &str,
        to: &mut Tables<T>,
    ) {
        if let Some((path, entry)) = self.of_mut(slot).remove_entry(path) {
            to.of_mut(slot).insert(path, entry);
        }
    }

    /// Removes the one-shot watches that the client drops on this event.
    pub(in crate::check::oracle) fn used_up(&mut self, event: EventType, path: &str) {
        let slots: &[Slot] = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => &[Slot::Data],
            EventType::NodeChildrenChanged => &[Slot::Child],
            EventType::NodeDeleted => &Slot::ONCE,
        };
        for slot in slots {
            self.of_mut(*slot).remove(path);
        }
    }
}

impl Tables<Kept> {
    /// The watch is set, possibly again.
    pub(in crate::check::oracle) fn keep(&mut self, slot: Slot, path: String, watch: Kept) {
        let kept = self.of_mut(slot).entry(path).or_insert(watch);
        kept.since = watch.since;
        kept.present |= watch.present;
        kept.absent |= watch.absent;
    }

    /// Adds all entries of `other`.
    pub(in crate::check::oracle) fn join(&mut self, other: Tables<Kept>) {
        for (slot, paths) in Slot::ALL.into_iter().zip(other.0) {
            for (path, watch) in paths {
                self.keep(slot, path, watch);
            }
        }
    }

    /// As [`Tables::used_up`]; returns since when the removed watches were held.
    pub(in crate::check::oracle) fn used_up_since(
        &mut self,
        event: EventType,
        path: &str,
    ) -> Vec<(Table, Zxid)> {
        let before = |(slot, table)| Some((table, self.of(slot).get(path)?.since));
        let tables = [(Slot::Data, Table::Data), (Slot::Child, Table::Child)];
        let before: Vec<_> = tables.into_iter().filter_map(before).collect();
        self.used_up(event, path);
        before
            .into_iter()
            .filter(|(table, _)| !self.of(Slot::of_table(*table)).contains_key(path))
            .collect()
    }
}

/// The path and its ancestors, component by component (edge 112).
pub(super) fn up_from(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |at| match at.rfind('/') {
        Some(0) if at.len() > 1 => Some("/"),
        Some(0) | None => None,
        Some(slash) => Some(&at[..slash]),
    })
}

/// The connections with a watch on each path.
#[derive(Clone, Default, Debug)]
pub(in crate::check::oracle) struct Armed {
    paths: BTreeMap<String, [BTreeSet<ConnId>; 4]>,
    /// Number of recursive watches: while it is zero, ancestors are not searched.
    recursive: usize,
}

impl Armed {
    pub(super) fn add(&mut self, slot: Slot, path: &str, conn: ConnId) {
        if !self.paths.contains_key(path) {
            self.paths.insert(path.to_owned(), <[BTreeSet<ConnId>; 4]>::default());
        }
        let slots = self.paths.get_mut(path).expect("inserted");
        let new = slots[slot as usize].insert(conn);
        self.recursive += usize::from(new && slot == Slot::Recursive);
    }

    pub(super) fn remove(&mut self, slot: Slot, path: &str, conn: ConnId) {
        if let Some(slots) = self.paths.get_mut(path) {
            let was = slots[slot as usize].remove(&conn);
            self.recursive -= usize::from(was && slot == Slot::Recursive);
        }
    }

    /// The connections that a firing concerns. Their one-shot watches on the path are removed.
    pub(in crate::check::oracle) fn take(&mut self, firing: &Firing) -> BTreeSet<ConnId> {
        let mut conns = BTreeSet::new();
        if let Some(slots) = self.paths.get_mut(&firing.path) {
            conns = std::mem::take(&mut slots[Slot::of_table(firing.table) as usize]);
            conns.extend(&slots[Slot::Persistent as usize]);
        }
        if self.recursive > 0 && firing.table == Table::Data {
            for above in up_from(&firing.path) {
                if let Some(slots) = self.paths.get(above) {
                    conns.extend(&slots[Slot::Recursive as usize]);
                }
            }
        }
        conns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edge 112.
    #[test]
    fn recursive_watch_covers_whole_path_components() {
        let all = |path| up_from(path).collect::<Vec<_>>();
        assert_eq!(all("/rx/a"), ["/rx/a", "/rx", "/"]);
        assert_eq!(all("/"), ["/"]);
        let mut tables = Tables::default();
        tables.of_mut(Slot::Recursive).insert("/r".into(), ());
        assert!(tables.is_below_recursive("/r/a/b") && tables.is_below_recursive("/r"));
        assert!(!tables.is_below_recursive("/rx"));
    }
}
