//! Sessions as their clients have seen them.
//!
//! Owns what a client knows of its session. Must not know what servers hold.

use std::collections::BTreeSet;

use zabkeeper_core::wire::Password;
use zabkeeper_core::{Instant, Zxid};

use super::conn::{Attached, Credential};
use super::timeouts::Timeouts;
use super::watch::Held;

/// A session as its clients have seen it.
#[derive(Clone, Default, Debug)]
pub(super) struct SessionView {
    /// The password in the connect responses.
    pub(super) password: Option<Password>,
    /// Highest zxid in its replies.
    pub(super) seen: Zxid,
    /// Highest zxid of its acknowledged writes.
    pub(super) acknowledged: Zxid,
    /// The connection that the session was accepted on last.
    pub(super) attached: Option<Attached>,
    /// The timeouts that the session may have.
    pub(super) timeouts: Timeouts,
    /// The greatest timeout in a connect response, ms.
    pub(super) granted_ms: u32,
    /// Observation number of the proposal of its closeSession, once that is committed.
    pub(super) ended: Option<u64>,
    /// A write of the session was refused because the session is closing; later writes must not
    /// succeed.
    pub(super) closing: bool,
    /// When the client's end of its last connection closed.
    pub(super) left: Instant,
    /// Watches that it holds while it has no connection.
    pub(super) held: Held,
    /// Several clients have used the session; each knows only what it has read itself.
    pub(super) shared: bool,
    /// The auth credentials whose success its client has read.
    pub(super) believed: BTreeSet<Credential>,
}

impl SessionView {
    /// The greatest timeout that a server may use, ms. A timeout that a handshake asked for counts
    /// even if its answer was never read.
    pub(super) fn longest_ms(&self) -> u32 {
        self.granted_ms.max(self.timeouts.greatest())
    }
}
