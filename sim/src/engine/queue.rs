//! The event queue: ordered by virtual time, then by a seeded tie-break, then by insertion.
//!
//! Owns the order of events. Must not know their meaning. The tie-break permutes simultaneous
//! events in the same way whenever the seed runs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use zabkeeper_core::Instant;

use crate::engine::seed::Rng;

/// Pending events.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Slot<E>>,
    sequence: u64,
    tie: Rng,
}

#[derive(Debug)]
struct Slot<E> {
    at: Instant,
    tie: u32,
    sequence: u64,
    event: E,
}

impl<E> Queue<E> {
    /// An empty queue that breaks ties with `tie`.
    pub fn new(tie: Rng) -> Queue<E> {
        Queue { heap: BinaryHeap::with_capacity(1024), sequence: 0, tie }
    }

    /// Breaks the ties of events inserted from now on with `tie`.
    pub fn break_ties_with(&mut self, tie: Rng) {
        self.tie = tie;
    }

    /// Schedules `event` at `at`.
    pub fn push(&mut self, at: Instant, event: E) {
        self.sequence += 1;
        self.heap.push(Slot { at, tie: self.tie.next_u32(), sequence: self.sequence, event });
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|slot| (slot.at, slot.event))
    }

    /// When the next event is due.
    pub fn peek(&self) -> Option<Instant> {
        self.heap.peek().map(|slot| slot.at)
    }

    /// All pending events, in order.
    pub fn list(&self) -> Vec<(Instant, &E)> {
        let mut slots = Vec::from_iter(&self.heap);
        slots.sort_unstable_by_key(|slot| slot.key());
        slots.into_iter().map(|slot| (slot.at, &slot.event)).collect()
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Slot<E> {
    fn key(&self) -> (Instant, u32, u64) {
        (self.at, self.tie, self.sequence)
    }
}

impl<E> PartialEq for Slot<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Slot<E> {}

impl<E> PartialOrd for Slot<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Reversed, because the heap yields its greatest element first.
impl<E> Ord for Slot<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::seed::Seeds;

    fn drained(seed: u64) -> Vec<(u64, u32)> {
        let mut queue = Queue::new(Seeds::new(seed).stream("queue", 0));
        for event in 0..6 {
            queue.push(Instant(if event < 4 { 10 } else { 5 }), event);
        }
        std::iter::from_fn(|| queue.pop()).map(|(at, event)| (at.0, event)).collect()
    }

    #[test]
    fn queue_orders_by_time_and_permutes_ties_by_seed() {
        let order = drained(1);
        assert!(order.is_sorted_by_key(|(at, _)| *at));
        assert_eq!(order, drained(1));
        assert!((2..10).any(|seed| drained(seed) != order));
    }
}
