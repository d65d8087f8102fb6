//! Local sessions, which only this server knows (Java `LocalSessionTracker`,
//! `UpgradeableSessionTracker`).
//!
//! Owns their ids, timeouts and expiry, and which of them are being upgraded to global sessions.
//! Must not know connections, nor send to the leader.
//!
//! ```text
//! a client connects ──► own ── first ephemeral node is requested ───► upgrading
//!                        ▲ │                                           │     │
//!   closed, or expired ◄─┼─┘                                           │     └─ applied ─► global
//!                        └───────── upgrade lost with its leader ──────┘
//! ```
//!
//! Local sessions end with the process. In ZooKeeper, they also end when the server's role changes.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::Duration;

use crate::config::Config;
use crate::cx::Cx;
use crate::ids::{Instant, SessionId};
use crate::notice::Notice;
use crate::peer::SessionKind;
use crate::session::{SessionTable, SessionTracker};
use crate::status::SessionInfo;
use crate::wire::{CreateMode, Request};

/// See the module.
#[derive(Debug)]
pub(super) struct LocalSessions {
    /// Local sessions that are not being upgraded.
    own: SessionTracker,
    /// Sessions that the leader was asked to upgrade, with their timeouts in ms. The leader expires
    /// them from then on.
    upgrading: BTreeMap<SessionId, u32>,
    /// The last id that was assigned.
    last: Option<SessionId>,
}

impl LocalSessions {
    pub(super) fn new(tick: Duration) -> LocalSessions {
        let own = SessionTracker::new(&SessionTable::default(), tick, Instant(0));
        LocalSessions { own, upgrading: BTreeMap::new(), last: None }
    }

    /// Creates a session (SESS-14) with an id that contains this server's and is unknown to the
    /// ensemble.
    pub(super) fn create(
        &mut self,
        timeout_ms: u32,
        known: &SessionTable,
        cx: &mut Cx<'_>,
    ) -> SessionId {
        let (server, now) = (cx.config.id(), cx.now.wall);
        let id = match self.last {
            None => known.first_local_id(server, now, cx.rng),
            Some(last) => known.local_id_after(last, server, now, cx.rng),
        };
        self.last = Some(id);
        self.own.track(id, timeout_ms, cx.now.mono);
        id
    }

    /// Is the session local, and not being upgraded?
    pub(super) fn is_own(&self, id: SessionId) -> bool {
        self.own.is_live(id)
    }

    /// Renews the session; `false` if it is not local, or is being upgraded.
    pub(super) fn touch(&mut self, id: SessionId, now: Instant) -> bool {
        self.own.touch(id, None, now)
    }

    /// Gives all sessions a full timeout from now on, after this server has not received
    /// heartbeats.
    pub(super) fn touch_all(&mut self, now: Instant) {
        self.own.touch_all(now);
    }

    /// A client resumes its session here, with this timeout (SESS-16).
    pub(super) fn reattach(&mut self, id: SessionId, timeout_ms: u32, now: Instant) {
        assert!(self.is_own(id), "session {id} is not this server's");
        self.own.track(id, timeout_ms, now);
    }

    /// The kind of session that the request states to the leader. The first write that creates an
    /// ephemeral node begins an upgrade (SESS-15, MULTI-09); later writes on the same link reach
    /// the leader after it, so the session is global for them.
    pub(super) fn session_kind(
        &mut self,
        id: SessionId,
        request: &Request,
        config: &Config,
    ) -> SessionKind {
        let Some((timeout_ms, _)) = self.own.get(id) else {
            return SessionKind::Global;
        };
        if !config.sessions.upgrade || !creates_ephemeral(request) {
            return SessionKind::Local;
        }
        self.own.set_closing(id);
        self.upgrading.insert(id, timeout_ms);
        SessionKind::Upgrading { timeout_ms }
    }

    /// The session is global from now on. Was it local or being upgraded?
    pub(super) fn promote(&mut self, id: SessionId) -> bool {
        let before = self.is_own(id);
        self.own.set_closing(id);
        self.upgrading.remove(&id).is_some() || before
    }

    /// The session has ended. Was it local, and not being upgraded?
    pub(super) fn end(&mut self, id: SessionId) -> bool {
        let before = self.is_own(id);
        self.own.set_closing(id);
        before
    }

    /// Service begins again: renews all sessions, and makes those local again whose upgrade is not
    /// `logged`, because it was lost with its leader; the write that needed the upgrade is
    /// submitted again. Returns whether there was one.
    pub(super) fn resume(&mut self, logged: &BTreeSet<SessionId>, now: Instant) -> bool {
        self.touch_all(now);
        let before = self.upgrading.len();
        for (id, timeout_ms) in self.upgrading.extract_if(.., |id, _| !logged.contains(id)) {
            self.own.track(id, timeout_ms, now);
        }
        self.upgrading.len() < before
    }

    /// A leader's snapshot has replaced the history: every upgraded session is in it, or has ended
    /// before.
    pub(super) fn on_installed(&mut self) {
        self.upgrading.clear();
    }

    /// The time at which the next sessions expire unless they are renewed.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.own.next_expiry()
    }

    /// Removes and returns the sessions that have expired.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(SessionId, Notice)> {
        self.own.expire(now, usize::MAX)
    }

    pub(super) fn len(&self) -> usize {
        self.own.len() + self.upgrading.len()
    }

    /// The number of sessions that are being upgraded.
    pub(super) fn upgrading(&self) -> usize {
        self.upgrading.len()
    }

    /// All local sessions, by id, with those being upgraded.
    pub(super) fn infos(&self) -> Vec<SessionInfo> {
        let own = self.own.iter().map(|(id, timeout_ms, expires)| SessionInfo {
            id,
            timeout_ms,
            expires: Some(expires),
            server: None,
        });
        let upgrading = self.upgrading.iter().map(|(id, timeout_ms)| SessionInfo {
            id: *id,
            timeout_ms: *timeout_ms,
            expires: None,
            server: None,
        });
        let mut infos = Vec::from_iter(own.chain(upgrading));
        infos.sort_by_key(|info| info.id);
        infos
    }
}

/// Would this request create an ephemeral node? As in ZooKeeper, the search ends at an invalid
/// create mode: the request will be refused there.
fn creates_ephemeral(request: &Request) -> bool {
    let mode = |request: &Request| {
        if let Request::Create { flags, .. } = request {
            CreateMode::from_wire(*flags)
        } else {
            Some(CreateMode::PERSISTENT)
        }
    };
    let parts =
        if let Request::Multi(parts) = request { &parts[..] } else { slice::from_ref(request) };
    parts.iter().map_while(mode).any(|mode| mode.ephemeral)
}
