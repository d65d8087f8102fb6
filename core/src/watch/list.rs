//! Who watches one path: connections in the order of their slots, with the modes in which each does.
//!
//! Owns the layout: most paths have one or two watchers and cost no allocation; ten thousand cost four bytes each.

use super::{Modes, Slot};

/// How many watchers fit without an allocation.
const FEW: usize = 3;

/// A connection that watches, and how; one word, so that lists of thousands stay small.
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

/// The watchers of a path, by slot.
#[derive(Debug)]
pub(super) enum List {
    /// None is without modes.
    Few {
        len: u8,
        watchers: [Watcher; FEW],
    },
    Many(Box<Many>),
}

/// More than a few. Whoever goes leaves a watcher without modes behind, so that thousands can go one by one without
/// moving the others each time.
#[derive(Debug)]
pub(super) struct Many {
    watchers: Vec<Watcher>,
    /// How many have modes; at least half.
    live: usize,
}

impl Default for List {
    fn default() -> List {
        List::Few { len: 0, watchers: [Watcher(0); FEW] }
    }
}

impl List {
    /// All that watch, and some that do no longer, without modes.
    pub(super) fn as_slice(&self) -> &[Watcher] {
        match self {
            List::Few { len, watchers } => &watchers[..usize::from(*len)],
            List::Many(many) => &many.watchers,
        }
    }

    /// How many watch.
    pub(super) fn len(&self) -> usize {
        match self {
            List::Few { len, .. } => usize::from(*len),
            List::Many(many) => many.live,
        }
    }

    /// The modes in which the connection watches; none where it does not.
    pub(super) fn modes(&self, slot: Slot) -> Modes {
        self.place(slot).map_or(Modes::NONE, |at| self.as_slice()[at].modes())
    }

    /// From now on the connection watches in these modes, or, if there are none, no longer.
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

    /// Takes modes away from all watchers.
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
    /// `place` is where the watcher is, or would have to be.
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
    /// Takes modes away. Is any left?
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
    fn thousands_come_and_go_in_any_order_and_leave_no_holes_behind() {
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
