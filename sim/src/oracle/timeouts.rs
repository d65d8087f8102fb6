//! Which timeout a session may have (SESS-16): the one that was granted last, and on a new leader the first.
//!
//! Owns what was asked for, granted and committed. Must not know when anybody was heard.
//!
//! A handshake that is not answered may have come to the leader or not, and two that overlap may have come in either order:
//! then any of their timeouts may hold.

use zabkeeper_core::ConnId;

/// See the module. All in ms.
#[derive(Clone, Default, Debug)]
pub(super) struct Timeouts {
    /// Of the transaction that made the session.
    created: Option<u32>,
    /// By handshakes without an answer.
    asked: Vec<(ConnId, u32)>,
    /// By handshakes that none was asked after: when the answer was read, as a place among all observations.
    granted: Vec<(u64, u32)>,
}

impl Timeouts {
    /// A transaction makes the session.
    pub(super) fn are_created(&mut self, ms: u32) {
        self.created = Some(ms);
    }

    /// A handshake on this connection would be granted so much.
    pub(super) fn are_asked(&mut self, conn: ConnId, ms: u32) {
        self.asked.push((conn, ms));
    }

    /// It is answered, in one way or the other.
    pub(super) fn are_answered(&mut self, conn: ConnId) {
        self.asked.retain(|(other, _)| *other != conn);
    }

    /// It has been granted so much: asked for and read at these places among all observations.
    pub(super) fn are_granted(&mut self, (asked, read): (u64, u64), ms: u32) {
        self.granted.retain(|(before, _)| *before > asked);
        self.granted.push((read, ms));
    }

    /// The least that may hold. `renewed`: the leader has heard of the session from its server in this reign, and with that
    /// what was granted.
    pub(super) fn least(&self, renewed: bool) -> u32 {
        let told = self.asked.iter().map(|(_, ms)| *ms).chain(self.granted.iter().map(|g| g.1));
        let told = told.min();
        let first = self.created.filter(|_| !renewed || told.is_none());
        told.into_iter().chain(first).min().unwrap_or(0)
    }

    /// May it be this one? `renewed` as above.
    pub(super) fn may_be(&self, renewed: bool, ms: u32) -> bool {
        let mut told = self.asked.iter().map(|(_, ms)| *ms).chain(self.granted.iter().map(|g| g.1));
        let nothing_told = self.asked.is_empty() && self.granted.is_empty();
        let first = self.created == Some(ms) && (!renewed || nothing_told);
        first || told.any(|told| told == ms)
    }

    /// Those of which [`Self::may_be`] is true, and where they come from.
    pub(super) fn described(&self, renewed: bool) -> String {
        let made = self.created.filter(|ms| self.may_be(renewed, *ms));
        let made = made.into_iter().map(|ms| format!("{ms} ms, as it was created with"));
        let granted = self.granted.iter().map(|(_, ms)| format!("{ms} ms, as its client has read"));
        let asked = self.asked.iter().map(|(conn, ms)| format!("{ms} ms, as asked for on {conn}"));
        made.chain(granted).chain(asked).collect::<Vec<_>>().join(", or ")
    }

    /// The greatest that may hold.
    pub(super) fn greatest(&self) -> u32 {
        let told = self.asked.iter().map(|(_, ms)| *ms).chain(self.granted.iter().map(|g| g.1));
        told.chain(self.created).max().unwrap_or(0)
    }
}
