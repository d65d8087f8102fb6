//! All deadlines of a server: one for each reason to wake up.
//!
//! Owns when; the owners of the reasons set and clear them. Must not act.

use crate::ids::Instant;

/// Why a server wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Timer {
    /// An election goes on: the first one begins, what was said is repeated, or the last wait is over.
    Election,
    /// The role has something to do: pings, or somebody who was silent for too long.
    Role,
    /// The next sessions of the ensemble expire.
    SessionExpiry,
    /// The next sessions expire that only this server knows.
    LocalExpiry,
    /// Connections held for a leader have waited long enough.
    Hold,
    /// The leader looks for nodes that go by themselves, or for the next one.
    Cleaning,
    /// A step has left something to do.
    Work,
}

/// One deadline for each [`Timer`].
#[derive(Clone, Debug, Default)]
pub(crate) struct TimerTable([Option<Instant>; 7]);

impl TimerTable {
    pub(crate) fn set(&mut self, timer: Timer, deadline: Option<Instant>) {
        self.0[timer as usize] = deadline;
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.into_iter().flatten().min()
    }

    /// Has the deadline come? It is cleared then.
    pub(crate) fn due(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.0[timer as usize].is_some_and(|deadline| deadline <= now);
        if due {
            self.set(timer, None);
        }
        due
    }
}
