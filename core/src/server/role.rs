//! The role of a server, and what clients need of it.
//!
//! Owns which message or call each role makes of a client's need. Must not know connections.

use crate::cx::Cx;
use crate::election::Election;
use crate::ids::{ConnId, ServerId, SessionId};
use crate::io::Mark;
use crate::peer::FromLearner;
use crate::replica::Replica;
use crate::txn::Origin;
use crate::zab::{Follower, Leader, LeaderEffect, Resumption, SyncWaiter, Write};

/// The role of a server; each variant owns the state that only this role needs.
#[derive(Debug)]
pub(super) enum Role {
    Looking(Election),
    Following(Follower),
    Leading(Leader),
}

/// All methods but the first two require that clients are served.
impl Role {
    /// Are clients served?
    pub(super) fn serves(&self) -> bool {
        match self {
            Role::Looking(_) => false,
            Role::Following(follower) => follower.serving().is_some(),
            Role::Leading(leader) => leader.serving().is_some(),
        }
    }

    /// The leader that this server follows, or its `own` id if it leads.
    pub(super) fn leader(&self, own: ServerId) -> Option<ServerId> {
        match self {
            Role::Looking(_) => None,
            Role::Following(follower) => Some(follower.leader()),
            Role::Leading(_) => Some(own),
        }
    }

    /// Renews a session of the ensemble (SESS-05); `false` if it is closing or gone, as far as this
    /// server knows.
    pub(super) fn touch(&mut self, session: SessionId, timeout_ms: u32, cx: &Cx<'_>) -> bool {
        match self {
            Role::Looking(_) => true,
            Role::Following(follower) => {
                follower.touch(session, timeout_ms);
                true
            }
            Role::Leading(leader) => leader.proposer().is_some_and(|proposer| {
                proposer.tracker.touch_by(cx.config.id(), session, timeout_ms, cx.now.mono)
            }),
        }
    }

    /// Has the leader decide a write.
    pub(super) fn propose(
        &mut self,
        write: Write,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        match self {
            Role::Looking(_) => unreachable!("only who serves writes"),
            Role::Following(follower) => {
                cx.mark(Mark::WriteForwarded);
                if let Some(link) = follower.serving() {
                    let Write { session, origin, ids, request, session_kind } = write;
                    cx.send_peer(
                        link,
                        FromLearner::Request { session, origin, ids, request, session_kind },
                    );
                }
                LeaderEffect::None
            }
            Role::Leading(leader) => leader.propose(write, replica, cx),
        }
    }

    /// Has a quorum confirm the leader.
    pub(super) fn sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) -> LeaderEffect {
        match self {
            Role::Looking(_) => unreachable!("only who serves syncs"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.send_peer(link, FromLearner::Sync { conn, request });
                }
                LeaderEffect::None
            }
            Role::Leading(leader) => {
                leader.sync(SyncWaiter { link: None, behind: None, conn, request }, cx)
            }
        }
    }

    /// Has the leader create a session.
    pub(super) fn create_session(
        &mut self,
        timeout_ms: u32,
        origin: Origin,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        match self {
            Role::Looking(_) => unreachable!("only who serves connects"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.send_peer(link, FromLearner::CreateSession { timeout_ms, origin });
                }
                LeaderEffect::None
            }
            Role::Leading(leader) => leader.create_session(timeout_ms, origin, replica, cx),
        }
    }

    /// Has the leader check whether a session is alive, and move it to this server. Returns whether
    /// the handshake needs a confirmed leader beyond that: a newer leader may have created or moved
    /// the session by now, so the client gets no answer before a quorum has confirmed that there is
    /// no newer leader. A follower's leader sees to it itself.
    pub(super) fn resume_session(
        &mut self,
        session: SessionId,
        timeout_ms: u32,
        conn: ConnId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> bool {
        match self {
            Role::Looking(_) => unreachable!("only who serves connects"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.send_peer(link, FromLearner::Revalidate { conn, session, timeout_ms });
                    // The timeout of an older connection must not reach the leader after this
                    // message.
                    follower.touch(session, timeout_ms);
                }
                false
            }
            Role::Leading(leader) => {
                let origin = Origin::handshake(cx.config.id(), conn);
                match leader.resume_session(session, timeout_ms, origin, replica, cx) {
                    Resumption::Dead | Resumption::Known => true,
                    Resumption::Moves(_) | Resumption::Closing => false,
                }
            }
        }
    }
}
