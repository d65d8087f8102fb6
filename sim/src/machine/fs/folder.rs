//! The names of files in a folder: those that programs see, and those that a power failure leaves.
//!
//! Owns changes of names that are not yet durable. Must not know the contents of files.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use zabkeeper_core::Instant;

use super::content::{Span, newest_sync};

/// A directory of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FolderId {
    /// Log segments and the state file.
    Log = 0,
    /// Snapshots.
    Snapshots = 1,
}

/// A file, independent of its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FileId(pub(super) u64);

/// A directory: names that programs see, durable names, and pending changes. Copies share the names
/// until one of them changes, since sampling of recovery copies whole disks.
#[derive(Clone, Debug, Default)]
pub(super) struct Folder {
    pub(super) live: Rc<Names>,
    pub(super) durable: Rc<Names>,
    pub(super) pending: Vec<(Span, NameChange)>,
    pub(super) syncs: Vec<Span>,
    pub(super) locked: bool,
}

/// Names and their files. A file has at most one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) by_name: BTreeMap<String, FileId>,
    pub(super) files: BTreeSet<FileId>,
}

/// A change of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NameChange {
    Create { name: String, file: FileId },
    Rename { from: String, to: String },
    Remove { name: String },
}

impl Folder {
    /// Makes a change visible, and pending. Returns the file that lost its name, if any.
    pub(super) fn change(&mut self, span: Span, change: NameChange) -> Option<FileId> {
        let lost = Rc::make_mut(&mut self.live).apply(&change);
        self.pending.push((span, change));
        lost
    }

    /// Makes durable the changes that had ended by `begin`. Returns whether a name was removed.
    pub(super) fn synced(&mut self, begin: Instant) -> bool {
        let mut removed = false;
        let durable = &mut self.durable;
        self.pending.retain(|(span, change)| {
            let covered = span.end <= begin;
            if covered {
                Rc::make_mut(durable).apply(change);
                removed |= !matches!(change, NameChange::Create { .. });
            }
            !covered
        });
        removed
    }

    /// Recomputes the visible names.
    pub(super) fn rebuild(&mut self) {
        self.live = Rc::clone(&self.durable);
        for (_, change) in &self.pending {
            Rc::make_mut(&mut self.live).apply(change);
        }
    }

    /// The intervals of the changes that settling at `now` would leave pending.
    pub(super) fn unsettled(&self, now: Instant) -> impl Iterator<Item = &Span> {
        let covers = newest_sync(&self.syncs, now);
        let left = move |span: &&Span| covers.is_none_or(|begin| span.end > begin);
        self.pending.iter().map(|(span, _)| span).filter(left)
    }

    /// An unlocked copy that keeps what settling at `now` would make durable, and of the rest the
    /// changes in the intervals that `keeps` selects.
    pub(super) fn survivor(&self, now: Instant, keeps: impl Fn(&Span) -> bool) -> Folder {
        let covers = newest_sync(&self.syncs, now);
        let covered = |span: &Span| covers.is_some_and(|begin| span.end <= begin);
        let settled = self.pending.iter().filter(|(span, _)| covered(span));
        let kept = self.pending.iter().filter(|(span, _)| !covered(span) && keeps(span));
        let mut durable = Rc::clone(&self.durable);
        for (_, change) in settled.chain(kept) {
            Rc::make_mut(&mut durable).apply(change);
        }
        let live = Rc::clone(&durable);
        Folder { live, durable, pending: Vec::new(), syncs: Vec::new(), locked: false }
    }

    /// Whether a name leads to this file, or may do so after a crash.
    pub(super) fn mentions(&self, id: FileId) -> bool {
        let made = |change: &NameChange| match change {
            NameChange::Create { file, .. } => *file == id,
            NameChange::Rename { .. } | NameChange::Remove { .. } => false,
        };
        self.live.leads_to(id)
            || self.durable.leads_to(id)
            || self.pending.iter().any(|(_, change)| made(change))
    }
}

impl Names {
    pub(super) fn get(&self, name: &str) -> Option<FileId> {
        self.by_name.get(name).copied()
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.by_name.keys().cloned().collect()
    }

    /// In order of names.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, FileId)> {
        self.by_name.iter().map(|(name, file)| (name.as_str(), *file))
    }

    pub(super) fn leads_to(&self, file: FileId) -> bool {
        self.files.contains(&file)
    }

    /// Returns the file that lost its name, if any.
    pub(super) fn apply(&mut self, change: &NameChange) -> Option<FileId> {
        let lost = match change {
            NameChange::Create { name, file } => {
                self.files.insert(*file);
                self.by_name.insert(name.clone(), *file)
            }
            NameChange::Rename { from, to } => {
                let file = self.by_name.remove(from)?;
                self.by_name.insert(to.clone(), file)
            }
            NameChange::Remove { name } => self.by_name.remove(name),
        };
        if let Some(file) = lost {
            self.files.remove(&file);
        }
        lost
    }
}
