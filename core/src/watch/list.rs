//! The watchers of one path: connections by slot, with the modes in which each watches.
//!
//! Owns the memory layout: most paths have one or two watchers and need no allocation; a longer
//! list takes four bytes per watcher.

use super::{Modes, Slot};

/// Watchers that fit without an allocation.
const FEW: usize = 3;

/// A connection and its modes in one 32-bit word, so that lists of thousands stay small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watcher(u32);

impl Watcher {
    pub(super) fn new(slot: Slot, modes: Modes) -> Watcher {
        assert!(slot.0 <= u32::MAX >> Modes::BITS, "{slot:?} is beyond what a word holds");
        Watcher(slot.0 << Modes::BITS | u32::from(modes.0))
    }

    pub(super) fn slot(self) -> Slot {
        Slot(self.0 >> Modes::BITS)
    }

    pub(super) fn modes(self) -> Modes {
        let bits = self.0 & u32::from(Modes::ALL.0);
        Modes(u8::try_from(bits).expect("masked"))
    }
}

/// The watchers of a path, sorted by slot.
#[derive(Debug)]
pub(super) enum List {
    /// Every entry has modes.
    Few {
        len: u8,
        watchers: [Watcher; FEW],
    },
    Many(Box<Many>),
}

/// More than `FEW` watchers. A removed watcher leaves an entry without modes, so that removing
/// thousands one by one does not move the other entries each time.
#[derive(Debug)]
pub(super) struct Many {
    watchers: Vec<Watcher>,
    /// Entries with modes: at least half.
    live: usize,
}

impl Default for List {
    fn default() -> List {
        List::Few { len: 0, watchers: [Watcher(0); FEW] }
    }
}

impl List {
    /// All watchers; entries without modes may be among them.
    pub(super) fn as_slice(&self) -> &[Watcher] {
        match self {
            List::Few { len, watchers } => &watchers[..usize::from(*len)],
            List::Many(many) => &many.watchers,
        }
    }

    /// Number of watchers.
    pub(super) fn len(&self) -> usize {
        match self {
            List::Few { len, .. } => usize::from(*len),
            List::Many(many) => many.live,
        }
    }

    /// The modes in which the connection watches; `NONE` if it does not.
    pub(super) fn modes(&self, slot: Slot) -> Modes {
        self.place(slot).map_or(Modes::NONE, |at| self.as_slice()[at].modes())
    }

    /// Sets the modes of a connection; `NONE` removes it.
    pub(super) fn set(&mut self, slot: Slot, modes: Modes) {
        let (watcher, place) = (Watcher::new(slot, modes), self.place(slot));
        match self {
            List::Many(many) => many.set(watcher, place),
            List::Few { len, watchers } => {
                let count = usize::from(*len);
                match place {
                    Ok(at) if modes == Modes::NONE => {
                        watchers.copy_within(at + 1..count, at);
                        *len -= 1;
                    }
                    Ok(at) => watchers[at] = watcher,
                    Err(_) if modes == Modes::NONE => {}
                    Err(at) if count < FEW => {
                        watchers.copy_within(at..count, at + 1);
                        watchers[at] = watcher;
                        *len += 1;
                    }
                    Err(at) => {
                        let mut many = Many { watchers: watchers.to_vec(), live: count };
                        many.set(watcher, Err(at));
                        *self = List::Many(Box::new(many));
                    }
                }
            }
        }
    }

    /// Removes modes from all watchers.
    pub(super) fn strip(&mut self, spent: Modes) {
        match self {
            List::Few { len, watchers } => {
                let mut kept = 0;
                for at in 0..usize::from(*len) {
                    let mut watcher = watchers[at];
                    if watcher.strip(spent) {
                        watchers[kept] = watcher;
                        kept += 1;
                    }
                }
                *len = u8::try_from(kept).expect("few");
            }
            List::Many(many) => {
                many.watchers.retain_mut(|watcher| watcher.strip(spent));
                many.live = many.watchers.len();
            }
        }
    }

    fn place(&self, slot: Slot) -> Result<usize, usize> {
        self.as_slice().binary_search_by_key(&slot, |watcher| watcher.slot())
    }
}

impl Many {
    /// `place` is the index of the watcher, or the index to insert it at.
    fn set(&mut self, watcher: Watcher, place: Result<usize, usize>) {
        let is_live = watcher.modes() != Modes::NONE;
        let was_live = match place {
            Ok(at) => std::mem::replace(&mut self.watchers[at], watcher).modes() != Modes::NONE,
            Err(at) => {
                if is_live {
                    self.watchers.insert(at, watcher);
                }
                false
            }
        };
        self.live = self.live + usize::from(is_live) - usize::from(was_live);
        if self.live < self.watchers.len() / 2 {
            self.watchers.retain(|watcher| watcher.modes() != Modes::NONE);
        }
    }
}

impl Watcher {
    /// Removes modes. Returns whether any are left.
    fn strip(&mut self, spent: Modes) -> bool {
        let left = self.modes().without(spent);
        *self = Watcher::new(self.slot(), left);
        left != Modes::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_list_stays_sorted_and_compact() {
        assert_eq!(size_of::<List>(), 16);
        let mut list = List::default();
        let slots = (0..3000).map(|i| Slot(i * 7 % 3000));
        for slot in slots.clone() {
            list.set(slot, Modes::DATA);
            list.set(slot, Modes::DATA.with(Modes::CHILD));
        }
        assert!(list.len() == 3000 && list.as_slice().is_sorted_by_key(|watcher| watcher.slot()));
        for slot in slots.clone().take(2000) {
            list.set(slot, Modes::NONE);
            list.set(slot, Modes::NONE);
            assert_eq!(list.modes(slot), Modes::NONE);
        }
        assert!(list.len() == 1000 && list.as_slice().len() <= 2000);
        list.set(Slot(0), Modes::PERSISTENT);
        list.strip(Modes::ONCE);
        assert_eq!(list.as_slice(), [Watcher::new(Slot(0), Modes::PERSISTENT)]);
    }
}
