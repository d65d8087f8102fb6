//! All deadlines of a server: one for each reason to wake up.
//!
//! Owns when; the owners of the reasons set and clear them. Must not act.

use crate::ids::Instant;

/// Why a server wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Timer {
    /// An election goes on: the first one begins, notifications are repeated, or the last wait is over.
    Election,
    /// A follower has waited long enough for its leader.
    LeaderSilence,
    /// A leader has waited long enough for one of its learners.
    LearnerSilence,
    /// A leader gives up: no quorum has followed it in time.
    Establishment,
    /// A leader pings its learners.
    Ping,
    /// The next sessions of the ensemble expire.
    SessionExpiry,
    /// The next sessions expire that only this server knows.
    LocalSessionExpiry,
    /// Connections that wait for a leader have waited long enough.
    AwaitLeader,
    /// The leader looks for containers and expiring nodes, or deletes the next one.
    ContainerCheck,
    /// A step has left something to do.
    Work,
}

impl Timer {
    const ALL: [Timer; 10] = [
        Timer::Election,
        Timer::LeaderSilence,
        Timer::LearnerSilence,
        Timer::Establishment,
        Timer::Ping,
        Timer::SessionExpiry,
        Timer::LocalSessionExpiry,
        Timer::AwaitLeader,
        Timer::ContainerCheck,
        Timer::Work,
    ];

    /// Those that the role sets anew after each step.
    pub(crate) const OF_ROLES: [Timer; 7] = [
        Timer::Election,
        Timer::LeaderSilence,
        Timer::LearnerSilence,
        Timer::Establishment,
        Timer::Ping,
        Timer::SessionExpiry,
        Timer::ContainerCheck,
    ];
}

/// One deadline for each [`Timer`].
#[derive(Clone, Debug, Default)]
pub(crate) struct TimerTable([Option<Instant>; Timer::ALL.len()]);

impl TimerTable {
    pub(crate) fn set(&mut self, timer: Timer, deadline: Option<Instant>) {
        self.0[timer as usize] = deadline;
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// The earliest deadline, and the first reason for it.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let set = self.0.into_iter().zip(Timer::ALL);
        set.filter_map(|(deadline, timer)| Some((deadline?, timer))).min_by_key(|(at, _)| *at)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_comes_with_its_reason() {
        assert!(Timer::ALL.iter().enumerate().all(|(place, timer)| place == *timer as usize));
        let mut timers = TimerTable::default();
        assert_eq!(timers.next(), None);
        timers.set(Timer::Work, Some(Instant(5)));
        timers.set(Timer::Ping, Some(Instant(7)));
        assert_eq!(timers.next(), Some((Instant(5), Timer::Work)));
        assert!(!timers.due(Timer::Ping, Instant(6)));
        assert!(timers.due(Timer::Work, Instant(6)));
        assert_eq!(timers.next(), Some((Instant(7), Timer::Ping)));
    }
}
