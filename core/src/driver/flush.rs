//! The order in which the output of clients is offered to their sockets.
//!
//! Owns the list of connections whose output has not been offered. Must not know the output.

use std::collections::VecDeque;

use super::conn::Due;
use crate::ids::ConnId;

/// Connections whose events are offered to their sockets in a turn: a change that ten thousand
/// clients watch may delay other requests by some milliseconds at most.
const NOTIFIED_PER_TURN: usize = 256;

/// Connections with output to be offered.
#[derive(Debug, Default)]
pub(super) struct FlushQueue {
    /// Connections with an answer to be sent.
    answered: VecDeque<ConnId>,
    /// Connections with events to be sent, oldest first, each once. An answer may have taken the
    /// events along since.
    notified: VecDeque<ConnId>,
    /// How many connections of `notified` may still be flushed in this turn.
    notified_left: usize,
}

impl FlushQueue {
    /// Adds a connection whose output has become this urgent.
    pub(super) fn push(&mut self, conn: ConnId, due: Due) {
        match due {
            Due::No => {}
            Due::Notified => self.notified.push_back(conn),
            Due::Answered => self.answered.push_back(conn),
        }
    }

    /// The next connection, and the list that it was in; `None` when there is none left in this
    /// turn. Its output may have been offered already.
    pub(super) fn next(&mut self) -> Option<(ConnId, Due)> {
        if let Some(conn) = self.answered.pop_front() {
            return Some((conn, Due::Answered));
        }
        if self.notified_left == 0 {
            return None;
        }
        self.notified.pop_front().map(|conn| (conn, Due::Notified))
    }

    /// Events of a connection are offered to its socket.
    pub(super) fn count_notified(&mut self) {
        self.notified_left = self.notified_left.saturating_sub(1);
    }

    /// Allows a turn's number of connections with events.
    pub(super) fn begin_turn(&mut self) {
        self.notified_left = NOTIFIED_PER_TURN;
    }

    /// Do connections wait for the next turn?
    pub(super) fn has_work(&self) -> bool {
        !self.notified.is_empty()
    }
}
