//! The sessions that only this server knows (Java `LocalSessionTracker`, `UpgradeableSessionTracker`).
//!
//! Owns their ids, timeouts and expiry, and which of them are being made known to the ensemble. Must not know connections,
//! nor speak to the leader.
//!
//! ```text
//! a client connects ──► own ──── first ephemeral node is asked for ───► upgrading
//!                        ▲ │                                             │     │
//!   closed, or expired ◄─┼─┘                                             │     └── upgrade is applied ──► replicated
//!                        └────────── upgrade lost with its leader ───────┘
//! ```
//!
//! They die with the process. In ZooKeeper they die with its role, too.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::Duration;

use crate::config::Config;
use crate::cx::Cx;
use crate::ids::{Instant, SessionId};
use crate::notice::Notice;
use crate::peer::SessionKind;
use crate::session::{self, SessionTable, SessionTracker};
use crate::status::SessionInfo;
use crate::wire::{CreateMode, Request};

/// See the module.
#[derive(Debug)]
pub(super) struct LocalSessions {
    /// Those that are nobody else's business.
    own: SessionTracker,
    /// Timeouts (ms) of those that the leader has been asked to propose. It decides about them from then on.
    upgrading: BTreeMap<SessionId, u32>,
    /// The last id that was dealt.
    last: Option<SessionId>,
}

impl LocalSessions {
    pub(super) fn new(tick: Duration) -> LocalSessions {
        let own = SessionTracker::new(&SessionTable::default(), tick, Instant(0));
        LocalSessions { own, upgrading: BTreeMap::new(), last: None }
    }

    /// A new session (SESS-14): its id is this server's, and not one that the ensemble knows.
    pub(super) fn create(
        &mut self,
        timeout_ms: u32,
        known: &SessionTable,
        cx: &mut Cx<'_>,
    ) -> SessionId {
        let id = match self.last {
            None => known.first_local_id(cx.config.id(), cx.now.wall, cx.rng),
            Some(last) => known.free_id(session::next_id(last)),
        };
        self.last = Some(id);
        self.own.track(id, timeout_ms, cx.now.mono);
        id
    }

    /// Is the session this server's, and not about to become more?
    pub(super) fn is_own(&self, id: SessionId) -> bool {
        self.own.is_live(id)
    }

    /// The session has been heard of; `false` where that is not for this server alone to know.
    pub(super) fn touch(&mut self, id: SessionId, now: Instant) -> bool {
        self.own.touch(id, None, now)
    }

    /// All get a full timeout from now on: this server was the one that did not listen.
    pub(super) fn touch_all(&mut self, now: Instant) {
        self.own.touch_all(now);
    }

    /// A client goes on with its session here, with this timeout (SESS-16).
    pub(super) fn reattach(&mut self, id: SessionId, timeout_ms: u32, now: Instant) {
        assert!(self.is_own(id), "session {id} is not this server's");
        self.own.track(id, timeout_ms, now);
    }

    /// What the leader is told of the session that wants this to be written. The first write that needs an owner whom all
    /// servers know begins an upgrade (SESS-15, MULTI-09); what follows it on the same link finds the session known.
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
        self.own.forget(id);
        self.upgrading.insert(id, timeout_ms);
        SessionKind::Upgrading { timeout_ms }
    }

    /// The session is replicated from now on. Was it one of these?
    pub(super) fn promote(&mut self, id: SessionId) -> bool {
        let before = self.is_own(id);
        self.own.forget(id);
        self.upgrading.remove(&id).is_some() || before
    }

    /// The session is over. Was it one of these?
    pub(super) fn end(&mut self, id: SessionId) -> bool {
        let before = self.is_own(id);
        self.own.forget(id);
        before
    }

    /// Service begins anew: nobody was heard meanwhile, and an upgrade that is not `logged` was lost with its leader. Whoever
    /// asked for the write behind it asks again. Was there such a one?
    pub(super) fn resume(&mut self, logged: &BTreeSet<SessionId>, now: Instant) -> bool {
        self.touch_all(now);
        let before = self.upgrading.len();
        for (id, timeout_ms) in self.upgrading.extract_if(.., |id, _| !logged.contains(id)) {
            self.own.track(id, timeout_ms, now);
        }
        self.upgrading.len() < before
    }

    /// A leader's snapshot has replaced the history: what was upgraded is in it, or was, and is over.
    pub(super) fn on_installed(&mut self) {
        self.upgrading.clear();
    }

    /// When the next ones expire, if nothing is heard of them.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.own.next_expiry()
    }

    /// Those whose time has come; they are forgotten here.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(SessionId, Notice)> {
        self.own.expire(now)
    }

    pub(super) fn len(&self) -> usize {
        self.own.len() + self.upgrading.len()
    }

    /// Those that are being made known to all.
    pub(super) fn upgrading(&self) -> usize {
        self.upgrading.len()
    }

    /// All of them, by id.
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

/// Would this leave a node that goes with its session? As in ZooKeeper, a mode that means nothing ends the search: the
/// request will be refused there.
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
