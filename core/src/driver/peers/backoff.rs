//! Pauses before the next attempt to dial a server after a failure.
//!
//! Owns the length and the end of the pauses. Must not dial.

use std::time::Duration;

use crate::ids::Instant;
use crate::peer::greeting::Channel;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// A link that this server has dialled and that ends sooner counts as refused.
const BRIEF: Duration = Duration::from_millis(100);

/// The pauses before one server is dialled.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// After failures to reach its quorum port.
    link: Backoff,
    /// After failures to reach its election port.
    election: Backoff,
    /// After links that one of both sides has refused. A notification does not end it: the server
    /// leads, and refuses the next link as well. One that looks for a leader has ended its epoch.
    refused: Backoff,
}

impl Pauses {
    /// Notes that the server was not reached. Returns whether it is the first time since the last
    /// success.
    pub(super) fn fail(&mut self, channel: Channel, now: Instant) -> bool {
        match channel {
            Channel::Quorum => self.link.fail(now),
            Channel::Election => self.election.fail(now),
        }
    }

    /// Ends the pauses after failures to reach the server, because a message of it has arrived.
    pub(super) fn on_message(&mut self) {
        self.link.reset();
        self.election.reset();
    }

    /// The server looks for a leader. Whatever it has refused, the next leader judges anew.
    pub(super) fn on_looking(&mut self) {
        self.refused.reset();
    }

    /// The election port was reached.
    pub(super) fn on_election_up(&mut self) {
        self.election.reset();
    }

    /// Notes that a link that this server has dialled has ended, and was established at `since`.
    pub(super) fn on_link_down(&mut self, since: Instant, now: Instant) {
        if now.since(since) < BRIEF {
            self.refused.fail(now);
        } else {
            self.refused.reset();
        }
    }

    /// How often reaching the server at this channel has failed since the last success, links
    /// included that were refused.
    pub(super) fn failures(&self, channel: Channel) -> u32 {
        match channel {
            Channel::Quorum => self.link.failures.saturating_add(self.refused.failures),
            Channel::Election => self.election.failures,
        }
    }

    /// When a channel may be dialled; `None` is at once.
    pub(super) fn until(&self, channel: Channel) -> Option<Instant> {
        match channel {
            Channel::Quorum => self.link.until.max(self.refused.until),
            Channel::Election => self.election.until,
        }
    }
}

/// The pause doubles with each failure, from 10 ms to 1 s.
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// Notes a failed attempt. Returns whether it is the first since the last success.
    fn fail(&mut self, now: Instant) -> bool {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now.after(pause));
        self.failures == 1
    }

    /// Ends the pause, because the server was reached.
    fn reset(&mut self) {
        *self = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_10_ms_to_1_s_until_a_reset() {
        let (mut backoff, now) = (Backoff::default(), Instant(0));
        assert_eq!(backoff.until, None);
        let pauses: Vec<u64> = (0..40)
            .map(|attempt| {
                assert_eq!(backoff.fail(now), attempt == 0);
                backoff.until.expect("it has failed").0 / 1_000_000
            })
            .collect();
        assert_eq!(pauses[..9], [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(pauses[39], 1000);
        backoff.reset();
        assert!(backoff.until.is_none() && backoff.fail(now));
    }

    #[test]
    fn message_ends_the_pause_of_a_server_that_was_not_reached_and_not_of_one_that_refuses() {
        let (mut pauses, now) = (Pauses::default(), Instant(1));
        assert!(pauses.fail(Channel::Quorum, now) && pauses.fail(Channel::Election, now));
        pauses.on_message();
        assert_eq!([Channel::Quorum, Channel::Election].map(|of| pauses.until(of)), [None; 2]);
        pauses.on_link_down(now, now);
        pauses.on_message();
        assert_eq!(pauses.until(Channel::Quorum), Some(now.after(FIRST)));
        assert_eq!(pauses.until(Channel::Election), None);
        pauses.on_link_down(now, now.after(BRIEF));
        assert_eq!(pauses.until(Channel::Quorum), None);
        pauses.on_link_down(now, now);
        pauses.on_looking();
        assert_eq!(pauses.until(Channel::Quorum), None);
    }
}
