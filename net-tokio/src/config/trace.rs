//! What becomes of each entry of `zoo.cfg` while it is read, for `zabkeeper check`.
//!
//! Owns the record. Must not decide anything: the readers of the keys do.

use std::collections::{BTreeMap, BTreeSet};

use super::properties::{Entry, Place};

/// An entry: where it is, and its key as it is written.
pub(crate) type EntryId = (Place, String);

/// What became of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is in force, with this value understood.
    InForce(String),
    /// It is accepted without effect; the text says why.
    NoEffect(String),
    /// Nobody knows its key; the text says what to look at.
    Unknown(String),
}

/// The record of one reading.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    entries: Vec<Entry>,
    fates: BTreeMap<EntryId, Fate>,
    notes: Vec<(EntryId, String)>,
    /// Entries that are read as if they were absent, because an earlier reading refused them.
    skipped: BTreeSet<EntryId>,
}

impl Entry {
    /// Which entry this is.
    pub(crate) fn id(&self) -> EntryId {
        (self.place, self.key.clone())
    }
}

impl Trace {
    /// A record of a reading without these entries.
    pub(crate) fn without(skipped: BTreeSet<EntryId>) -> Trace {
        Trace { skipped, ..Trace::default() }
    }

    /// Adds an entry; returns whether it counts.
    pub(crate) fn add(&mut self, entry: &Entry) -> bool {
        self.entries.push(entry.clone());
        !self.skipped.contains(&entry.id())
    }

    /// Records what became of an entry; the last record counts.
    pub(crate) fn settle(&mut self, entry: &Entry, fate: Fate) {
        self.fates.insert(entry.id(), fate);
    }

    /// Records a warning about an entry.
    pub(crate) fn note(&mut self, entry: &Entry, what: &str) {
        self.notes.push((entry.id(), what.to_owned()));
    }

    /// All entries in the order of their places.
    pub(crate) fn entries(&self) -> Vec<&Entry> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| entry.place);
        entries
    }

    /// What became of an entry; `None` if it was not read.
    pub(crate) fn fate(&self, entry: &Entry) -> Option<&Fate> {
        self.fates.get(&entry.id())
    }

    /// The warnings about an entry.
    pub(crate) fn notes_of(&self, entry: &Entry) -> Vec<&str> {
        let id = entry.id();
        self.notes.iter().filter(|(of, _)| *of == id).map(|(_, what)| what.as_str()).collect()
    }
}
