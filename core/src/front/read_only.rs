//! Read-only mode (the RO rows; Java `ReadOnlyZooKeeperServer`): service from the applied state
//! while an election takes long.
//!
//! Owns when the mode begins and ends, whom it serves, and which requests it refuses. Must not know
//! why there is no leader, nor create anything that other servers have to know.
//!
//! While the mode lasts, every connection that is served belongs to a client that accepts a
//! read-only server, and every session is local. What such a client reads is committed: the state
//! does not change before a leader is found.

use super::queue::PendingRequest;
use super::{Conn, ConnPhase, Front, requests};
use crate::cx::Cx;
use crate::error::ErrorCode;
use crate::ids::{ConnId, SessionId};
use crate::io::{ClientCommand, Mark};
use crate::replica::Replica;
use crate::wire::{ConnectRequest, Reply};

impl Front {
    /// Does this server serve read-only clients, and no others?
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// RO-01: the server begins to serve read-only clients. Connections that have served a session
    /// are closed, so that their clients try other servers; handshakes are still to be processed
    /// one by one: see [`Front::connect`].
    pub(crate) fn begin_read_only(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        cx.mark(Mark::ReadOnlyBegun);
        self.read_only = true;
        self.await_leader_until = None;
        // No client could send heartbeats before.
        self.local.touch_all(cx.now.mono);
        let waits = |conn: &Conn| matches!(conn.phase, ConnPhase::AwaitLeader(_));
        let others = self.conns.iter().filter(|(_, conn)| !waits(conn));
        for conn in Vec::from_iter(others.map(|(id, _)| *id)) {
            self.close(conn, replica, cx);
        }
    }

    /// RO-01: the election is over. All clients connect again, because they were told that the
    /// server is read-only.
    pub(crate) fn end_read_only(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        if std::mem::take(&mut self.read_only) {
            cx.mark(Mark::ReadOnlyEnded);
            self.close_all(replica, cx);
        }
    }

    /// HS-04, RO-02: the client accepts a read-only server, and does not resume a session of the
    /// ensemble. This server cannot know whether such a session is alive, so it does not answer:
    /// ZooKeeper answers that a session is expired which it does not know.
    pub(super) fn may_serve_read_only(&self, request: &ConnectRequest) -> bool {
        let session = request.session;
        request.read_only == Some(true) && (session == SessionId(0) || self.local.is_own(session))
    }

    /// RO-02: without local sessions, the server has no session for the client. As in ZooKeeper, it
    /// sends the header of a reply in place of the connect response. It closes the connection, on
    /// which ZooKeeper would read no request.
    pub(super) fn refuse_to_create(
        &mut self,
        conn: ConnId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        cx.mark(Mark::ReadOnlyNoSession);
        let zxid = replica.log().applied().wire();
        let reply = Reply { xid: 0, zxid, result: Err(ErrorCode::NotReadOnly) };
        cx.send(conn, ClientCommand::Reply(reply));
        self.close(conn, replica, cx);
    }

    /// ERR-25, RO-03: refuses a request that needs a leader. The connection stays open.
    pub(crate) fn refuse_request(
        &self,
        conn: ConnId,
        pending: &PendingRequest,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) {
        cx.mark(Mark::ReadOnlyRequestRefused);
        let refused = Err(ErrorCode::NotReadOnly);
        requests::reply_to(conn, pending.frame.xid, refused, replica, cx);
    }
}
