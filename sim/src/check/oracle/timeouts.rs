//! The timeouts that a session may have (SESS-16): the one granted last, or on a new leader the one
//! that it was created with.
//!
//! Owns the timeouts that were asked for, granted and committed. Must not know when servers touched
//! the session.
//!
//! An unanswered handshake may have reached the leader or not, and two overlapping handshakes may
//! have reached it in either order: then any of their timeouts is possible.

use zabkeeper_core::ConnId;

/// All timeouts in ms.
#[derive(Clone, Default, Debug)]
pub(super) struct Timeouts {
    /// The timeout in the session's createSession.
    created: Option<u32>,
    /// What each unanswered handshake would be granted.
    asked: Vec<(ConnId, u32)>,
    /// Timeouts granted by handshakes that no later handshake follows, with the observation number
    /// at which the client read the answer.
    granted: Vec<(u64, u32)>,
}

impl Timeouts {
    /// The session's createSession is committed.
    pub(super) fn are_created(&mut self, ms: u32) {
        self.created = Some(ms);
    }

    /// A handshake on this connection would be granted this timeout.
    pub(super) fn are_asked(&mut self, conn: ConnId, ms: u32) {
        self.asked.push((conn, ms));
    }

    /// The handshake on this connection is answered, whether accepted or refused.
    pub(super) fn are_answered(&mut self, conn: ConnId) {
        self.asked.retain(|(other, _)| *other != conn);
    }

    /// The handshake with these observation numbers, of request and reading of the answer, was
    /// granted this timeout.
    pub(super) fn are_granted(&mut self, (asked, read): (u64, u64), ms: u32) {
        self.granted.retain(|(before, _)| *before > asked);
        self.granted.push((read, ms));
    }

    /// The least possible timeout. `renewed`: the leader has touched the session by a report of the
    /// session's server while it leads, and so knows what was granted.
    pub(super) fn least(&self, renewed: bool) -> u32 {
        let named = self.asked.iter().map(|(_, ms)| *ms).chain(self.granted.iter().map(|g| g.1));
        let named = named.min();
        let first = self.created.filter(|_| !renewed || named.is_none());
        named.into_iter().chain(first).min().unwrap_or(0)
    }

    /// Whether this timeout is possible. `renewed` as in [`Self::least`].
    pub(super) fn may_be(&self, renewed: bool, ms: u32) -> bool {
        let mut named =
            self.asked.iter().map(|(_, ms)| *ms).chain(self.granted.iter().map(|g| g.1));
        let none_named = self.asked.is_empty() && self.granted.is_empty();
        let first = self.created == Some(ms) && (!renewed || none_named);
        first || named.any(|named| named == ms)
    }

    /// The timeouts for which [`Self::may_be`] is true, and their sources.
    pub(super) fn described(&self, renewed: bool) -> String {
        let made = self.created.filter(|ms| self.may_be(renewed, *ms));
        let made = made.into_iter().map(|ms| format!("{ms} ms, as it was created with"));
        let granted = self.granted.iter().map(|(_, ms)| format!("{ms} ms, as its client has read"));
        let asked = self.asked.iter().map(|(conn, ms)| format!("{ms} ms, as asked for on {conn}"));
        made.chain(granted).chain(asked).collect::<Vec<_>>().join(", or ")
    }

    /// The greatest possible timeout.
    pub(super) fn greatest(&self) -> u32 {
        let named = self.asked.iter().map(|(_, ms)| *ms).chain(self.granted.iter().map(|g| g.1));
        named.chain(self.created).max().unwrap_or(0)
    }
}
