//! Heartbeats of clients that take output while they are not read (E6).
//!
//! Owns when the core last received an input of each connection, and which heartbeats the driver
//! owes it. Must not ask the driver when its own last heartbeat was.

use std::collections::BTreeMap;
use std::time::Duration;

use zabkeeper_core::io::ClientEvent;
use zabkeeper_core::{ConnId, Instant};

/// A connection without an input for this time is owed a heartbeat when it takes output: four times
/// the driver's own interval.
const SILENT: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    received: BTreeMap<ConnId, Instant>,
    /// Number of turns for which a heartbeat is owed.
    owed: BTreeMap<ConnId, usize>,
}

impl Heartbeats {
    /// The core receives an input of a connection.
    pub(super) fn stepped(&mut self, conn: ConnId, event: &ClientEvent, now: Instant) {
        self.owed.remove(&conn);
        match event {
            ClientEvent::Opened(..) | ClientEvent::Request(_) | ClientEvent::Heartbeat => {
                self.received.insert(conn, now);
            }
            ClientEvent::Closed => drop(self.received.remove(&conn)),
        }
    }

    /// Is a heartbeat due when the connection takes output now?
    pub(super) fn is_due(&self, conn: ConnId, now: Instant) -> bool {
        self.received.get(&conn).is_some_and(|at| now.since(*at) >= SILENT)
    }

    /// A connection for which a heartbeat is due takes output, and is not read.
    pub(super) fn took(&mut self, conn: ConnId) {
        self.owed.entry(conn).or_default();
    }

    /// Ends a turn. Returns a connection whose heartbeat has not come, although a turn has taken at
    /// least one from the driver's queue.
    pub(super) fn end_turn(&mut self, is_read: impl Fn(ConnId) -> bool) -> Option<ConnId> {
        self.owed.retain(|conn, turns| {
            *turns += 1;
            !is_read(*conn)
        });
        let most = 4 + 2 * self.received.len();
        self.owed.iter().find(|(_, turns)| **turns > most).map(|(conn, _)| *conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeat_is_owed_until_an_input_or_an_end_and_not_for_ever() {
        let (conn, second) = (ConnId(1), Instant(1_000_000_000));
        let mut heartbeats = Heartbeats::default();
        heartbeats.stepped(conn, &ClientEvent::Heartbeat, Instant(0));
        assert!(!heartbeats.is_due(conn, Instant(999_999_999)) && heartbeats.is_due(conn, second));
        for event in [Some(ClientEvent::Heartbeat), Some(ClientEvent::Closed), None] {
            heartbeats.took(conn);
            assert_eq!(heartbeats.end_turn(|_| false), None);
            event.iter().for_each(|event| heartbeats.stepped(conn, event, second));
            let late = (0..9).find_map(|_| heartbeats.end_turn(|_| false));
            assert_eq!(late, event.is_none().then_some(conn));
        }
        assert_eq!(heartbeats.end_turn(|_| true), None);
        assert!(!heartbeats.is_due(conn, second), "it has ended");
    }
}
