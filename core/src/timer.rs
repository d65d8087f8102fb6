//! All deadlines of a server: one per reason to wake up.
//!
//! Owns the deadlines; the modules behind each reason set and clear them. Must not act on them.

use crate::ids::Instant;

/// The reason for a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Timer {
    /// Election: start the first round, resend notifications, or end the final wait.
    Election,
    /// The election has taken so long that the server begins to serve read-only clients.
    ReadOnly,
    /// A follower's leader has been silent for too long.
    LeaderSilence,
    /// A learner has been silent for too long.
    LearnerSilence,
    /// A leader resigns, because no quorum followed it in time.
    Establishment,
    /// A leader pings its learners.
    Ping,
    /// The next sessions of the ensemble expire.
    SessionExpiry,
    /// The next local sessions expire.
    LocalSessionExpiry,
    /// Connections have waited too long for a leader.
    AwaitLeader,
    /// The leader looks for empty containers and expired TTL nodes, or deletes the next one.
    ContainerCheck,
    /// The last step left work to do.
    Work,
    /// A leader that is to stop waits no longer for its proposals to be committed.
    HandOver,
}

impl Timer {
    const ALL: [Timer; 12] = [
        Timer::Election,
        Timer::ReadOnly,
        Timer::LeaderSilence,
        Timer::LearnerSilence,
        Timer::Establishment,
        Timer::Ping,
        Timer::SessionExpiry,
        Timer::LocalSessionExpiry,
        Timer::AwaitLeader,
        Timer::ContainerCheck,
        Timer::Work,
        Timer::HandOver,
    ];

    /// The timers that the server's role sets anew after each step.
    pub(crate) const OF_ROLES: [Timer; 9] = [
        Timer::Election,
        Timer::ReadOnly,
        Timer::LeaderSilence,
        Timer::LearnerSilence,
        Timer::Establishment,
        Timer::Ping,
        Timer::SessionExpiry,
        Timer::ContainerCheck,
        Timer::HandOver,
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

    /// The earliest deadline and its timer; of equal deadlines the first timer in `ALL`.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let mut next = None;
        for (place, deadline) in self.0.iter().enumerate() {
            if let Some(at) = *deadline
                && next.is_none_or(|(earliest, _)| at < earliest)
            {
                next = Some((at, Timer::ALL[place]));
            }
        }
        next
    }

    /// Whether the deadline has passed. If so, clears it.
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
    fn next_returns_earliest_deadline_and_its_timer() {
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
