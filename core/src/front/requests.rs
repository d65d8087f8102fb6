//! The way of a request through a server: from its frame to its reply, and watch events (Java
//! `ZooKeeperServer`, `FinalRequestProcessor`).
//!
//! Owns which way a request takes, and the delivery of replies and events. Must not know how
//! sessions begin.

use std::mem;
use std::sync::Arc;

use super::queue::{PendingRequest, Resumed};
use super::read::{self, ReadContext};
use super::reply::{self, ReplyShape};
use super::{Conn, ConnPhase, Front, FrontEffect};
use crate::auth::{Access, AuthOutcome, Facts, Who};
use crate::cost;
use crate::cx::Cx;
use crate::error::ErrorCode;
use crate::ids::{ConnId, SessionId, Zxid};
use crate::io::{ClientCommand, Mark};
use crate::measure::ReadOf;
use crate::replica::{Applied, Fired, Replica};
use crate::txn::{Origin, Txn, TxnOp};
use crate::wire::{
    EventType, Id, OpCode, Perms, Reply, ReplyBody, Request, RequestFrame, SetWatches, WatchEvent,
    XID_PING,
};

impl Front {
    /// A request has arrived. Returns it with the identities that the client has now, unless it is
    /// finished, or waits for the session.
    pub(crate) fn receive(
        &mut self,
        conn: ConnId,
        frame: RequestFrame,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Option<PendingRequest> {
        // Late frames of a connection that this server has closed are ignored.
        let Conn { phase, queue, known, .. } = self.conns.get_mut(&conn)?;
        if !matches!(phase, ConnPhase::Open { .. }) {
            queue.push_before_session(frame);
            return None;
        }
        let RequestFrame { xid, mut request } = frame;
        cx.spend(cost::of_request(&request));
        if matches!(request, Request::Reconfigure(_)) && cx.config.reconfig.is_none() {
            request = Request::Reconfig;
        }
        // Authentication does not wait for queued requests, and does not renew the session.
        if let Request::Auth { scheme, auth } = &request {
            self.authenticate(conn, xid, scheme, auth.0.as_deref(), replica, cx);
            return None;
        }
        if let Request::Sasl { .. } = request {
            // OP-102: SASL is not configured. ZooKeeper sends the same reply; the client's
            // identities do not change.
            let reply = Reply { xid, zxid: 0, result: Ok(ReplyBody::Token(None)) };
            cx.send(conn, ClientCommand::Reply(reply));
            return None;
        }
        if let Request::Undecodable { op: OpCode::Auth | OpCode::Sasl } = request {
            cx.mark(Mark::RequestUndecodable);
            self.close(conn, replica, cx);
            return None;
        }
        if !cx.schemes.admit(known.ids()) {
            self.refuse_conn(conn, xid, ErrorCode::SchemeRequired, replica, cx);
            return None;
        }
        let ids = known.ids().clone();
        Some(PendingRequest { frame: RequestFrame { xid, request }, ids })
    }

    /// Does the request of this session become a transaction? The end of a local session does not:
    /// no other server knows the session.
    pub(crate) fn is_proposed(&self, session: SessionId, request: &Request) -> bool {
        let ends_local = matches!(request, Request::CloseSession) && self.local.is_own(session);
        request.is_write() && !ends_local
    }

    /// Processes a request of a session that is alive; clients are served.
    pub(crate) fn dispatch(
        &mut self,
        conn: ConnId,
        session: SessionId,
        pending: PendingRequest,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        if self.is_proposed(session, &pending.frame.request) {
            let session_kind = self.local.session_kind(session, &pending.frame.request, cx.config);
            let number = self.queue(conn).push_write(pending.clone());
            let origin = Origin { server: cx.config.id(), conn, request: number };
            return FrontEffect::Propose { session, session_kind, origin, pending };
        }
        if matches!(pending.frame.request, Request::CloseSession) {
            self.queue(conn).push_close_local(pending);
            self.serve_reads(conn, replica, cx);
        } else if matches!(pending.frame.request, Request::Sync { .. }) {
            return FrontEffect::Sync(conn, self.queue(conn).push_sync(pending));
        } else if self.queue(conn).is_empty() {
            self.read(conn, pending, replica, cx);
        } else {
            cx.mark(Mark::ReadBehindWrite);
            self.queue(conn).push(pending);
        }
        FrontEffect::None
    }

    /// The request waits: for service to begin, or for the end of its session.
    pub(crate) fn hold(&mut self, conn: ConnId, pending: PendingRequest) {
        self.queue(conn).push(pending);
    }

    /// Will a queued closeSession end the local session of this connection?
    pub(crate) fn is_ending_local(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|conn| conn.queue.ends())
    }

    /// Does the connection have queued requests?
    pub(crate) fn has_queued(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|conn| !conn.queue.is_empty())
    }

    /// Continues the requests of a connection when it is served again, or for the first time. The
    /// writes in `found` are in the log already. Returns what the caller has to do, in this order:
    /// syncs, reads, and then the requests to submit anew; `None` if the connection is closed.
    pub(crate) fn resume(
        &mut self,
        conn: ConnId,
        found: impl Fn(u64) -> bool,
        cx: &mut Cx<'_>,
    ) -> Option<Resumed> {
        let resumed = self.conns.get_mut(&conn)?.queue.resume(found);
        if resumed.lost {
            cx.mark(Mark::WriteLost);
        }
        Some(resumed)
    }

    /// OP-100: executed at once and outside the queue, as in ZooKeeper. Later requests have the new
    /// identities.
    fn authenticate(
        &mut self,
        conn: ConnId,
        xid: i32,
        scheme: &str,
        auth: Option<&[u8]>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let known =
            &mut self.conns.get_mut(&conn).expect("a connection that is being served").known;
        let tree = replica.tree();
        let node = cx.schemes.node(scheme).and_then(|path| tree.find(path));
        let data = node.and_then(|id| tree.node(id).data.as_deref());
        match cx.schemes.authenticate(scheme, auth, &Facts { known: known.ids(), data }) {
            AuthOutcome::Accepted(ids) => match known.extend(ids) {
                Ok(()) => {
                    cx.mark(Mark::AuthAccepted);
                    let reply = Reply { xid, zxid: 0, result: Ok(ReplyBody::Empty) };
                    cx.send(conn, ClientCommand::Reply(reply));
                }
                Err(too_many) => {
                    cx.send(conn, ClientCommand::Complaint(too_many));
                    self.refuse_conn(conn, xid, ErrorCode::AuthFailed, replica, cx);
                }
            },
            AuthOutcome::Refused => {
                self.refuse_conn(conn, xid, ErrorCode::AuthFailed, replica, cx);
            }
            AuthOutcome::Closed => {
                cx.mark(Mark::AuthRefused);
                self.close(conn, replica, cx);
            }
        }
    }

    /// The client's identities are invalid or insufficient: replies with `code` and closes the
    /// connection (ACL-16, ACL-19).
    fn refuse_conn(
        &mut self,
        conn: ConnId,
        xid: i32,
        code: ErrorCode,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        cx.mark(Mark::AuthRefused);
        let reply = Reply { xid, zxid: 0, result: Err(code) };
        cx.send(conn, ClientCommand::Reply(reply));
        self.close(conn, replica, cx);
    }

    /// A quorum has confirmed the leader for this sync, and everything is applied that was
    /// committed before.
    pub(crate) fn confirm_sync(
        &mut self,
        conn: ConnId,
        request: u64,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        if let Some(Conn { queue, .. }) = self.conns.get_mut(&conn) {
            queue.confirm(request);
            self.serve_reads(conn, replica, cx);
        }
    }

    /// Does a connection have reads that an earlier step has left?
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Answers reads that earlier steps have left, as far as the budget of this step allows.
    pub(crate) fn serve_ready(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        for _ in 0..self.ready.len() {
            if cx.is_spent() {
                break;
            }
            let Some(conn) = self.ready.pop_front() else { break };
            if let Some(Conn { is_ready, .. }) = self.conns.get_mut(&conn) {
                *is_ready = false;
                self.serve_reads(conn, replica, cx);
            }
        }
    }

    /// Answers the pending reads of a connection, up to the next write. Returns `false` if the
    /// budget is spent; the connection is then in `ready`.
    pub(crate) fn serve_reads(
        &mut self,
        conn: ConnId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> bool {
        // Applied transactions are committed, so reads may be answered even while a new leader
        // still applies its history.
        while let Some(Conn { queue, is_ready, .. }) = self.conns.get_mut(&conn) {
            if !queue.has_read() {
                break;
            }
            if cx.is_spent() {
                cx.mark(Mark::ReadsSliced);
                if !mem::replace(is_ready, true) {
                    self.ready.push_back(conn);
                }
                return false;
            }
            if let Some(pending) = queue.next_read() {
                self.read(conn, pending, replica, cx);
            }
        }
        true
    }

    /// Answers a read, or another request without a transaction, whose turn has come.
    fn read(
        &mut self,
        conn: ConnId,
        pending: PendingRequest,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let PendingRequest { frame: RequestFrame { xid, request }, ids } = pending;
        cx.spend(1);
        if let Request::Unknown { .. } = request {
            // WIRE-14.
            cx.mark(Mark::RequestUnknown);
            let reply = Reply { xid, zxid: -1, result: Err(ErrorCode::Unimplemented) };
            cx.send(conn, ClientCommand::Reply(reply));
            return self.close(conn, replica, cx);
        }
        let Some((session, _)) = self.session_of(conn) else {
            unreachable!("{conn} has a request before its session is open")
        };
        if matches!(request, Request::CloseSession) {
            return self.close_local_session(conn, session, xid, replica, cx);
        }
        let (tree, watches) = replica.reading();
        if let Request::SetWatches(request) = &request {
            send_missed_events(conn, request, read::set_watches(tree, watches, conn, request), cx);
        }
        if matches!(request, Request::Undecodable { .. }) {
            cx.mark(Mark::RequestUndecodable);
        }
        // WIRE-08: the reply to a ping always has this xid.
        let xid = if matches!(request, Request::Ping) { XID_PING } else { xid };
        let (who, room) = (Who::new(&ids, cx.schemes), cx.config.limits.record_bytes);
        let membership = cx.config.membership.as_ref().filter(|_| cx.config.reconfig.is_none());
        let context = ReadContext { conn, session, who, room, membership };
        let readable = !matches!(request, Request::Undecodable { .. } | Request::NoPath { .. });
        let removes = matches!(request, Request::Watches { remove: true, .. });
        let read = ReadOf::new(&request);
        let result = read::answer(tree, watches, &context, request);
        if removes {
            let found = result.is_ok();
            cx.mark(if found { Mark::WatchRemoved } else { Mark::WatchMissing });
        }
        match &result {
            Ok(body) => {
                cx.spend(cost::of_answer(body));
                read.measure(body, &mut cx.out.measures);
            }
            Err(ErrorCode::Marshalling) if readable => {
                // The read has visited the data before it failed.
                cx.spend(cost::of_bytes(room));
                cx.mark(Mark::RecordTooLarge);
            }
            Err(_) => {}
        }
        reply_to(conn, xid, result, replica, cx);
    }

    /// Ends a local session, now that all earlier requests of its connection are answered.
    fn close_local_session(
        &mut self,
        conn: ConnId,
        session: SessionId,
        xid: i32,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        assert!(self.local.end(session), "nothing before its end makes {session} known to others");
        cx.mark(Mark::SessionClosed);
        reply_to(conn, xid, Ok(ReplyBody::Empty), replica, cx);
        self.end_session(session, replica, cx);
    }

    /// Called before a committed write is applied: the requests queued before it on its connection
    /// are answered from the tree without it (CONS-02). Returns whether all are answered, so that
    /// the write may be applied.
    pub(crate) fn before_apply(
        &mut self,
        origin: Origin,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> bool {
        if origin.server != cx.config.id() {
            return true;
        }
        let Some(Conn { queue, is_ready, .. }) = self.conns.get_mut(&origin.conn) else {
            return true;
        };
        let confirms = queue.confirm_before(origin.request);
        let waits = confirms || *is_ready;
        if confirms {
            cx.mark(Mark::SyncByWrite);
        }
        !waits || self.serve_reads(origin.conn, replica, cx)
    }

    /// A transaction has been applied: sends watch events first, and then the reply (WATCH-18).
    pub(crate) fn on_applied(
        &mut self,
        applied: Applied,
        serves: bool,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        let Applied { txn, effects } = applied;
        for fired in effects.fired {
            self.send_event(txn.zxid, fired, cx);
        }
        let mut effect = FrontEffect::None;
        if let Some(Origin { server, conn, request }) = txn.origin
            && server == cx.config.id()
            && self.conns.contains_key(&conn)
        {
            if matches!(txn.op, TxnOp::CreateSession { .. } | TxnOp::MoveSession { .. }) {
                effect = self.on_session_here(conn, txn.session, serves, replica, cx);
            } else {
                let pending = self.queue(conn).applied(request);
                let answer = pending.and_then(|frame| {
                    let shape = ReplyShape::of(&frame.request);
                    let result = reply::of(&shape, &txn.op, &mut effects.stats.into_iter())?;
                    Some((frame.xid, result))
                });
                match answer {
                    Some((xid, result)) => reply_to(conn, xid, result, replica, cx),
                    // The transaction does not match the pending request: another server has used
                    // this connection's origin, so the client's answer is unknown.
                    None => self.close(conn, replica, cx),
                }
                if !matches!(txn.op, TxnOp::CloseSession) {
                    self.serve_reads(conn, replica, cx);
                }
            }
        }
        self.note_session_change(&txn, replica, cx);
        effect
    }

    /// A session has ended: closes its connection, and refuses a handshake that tries to resume it.
    pub(super) fn end_session(
        &mut self,
        session: SessionId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let Some(conn) = self.by_session.get(&session).copied() else {
            return;
        };
        match self.conns.get(&conn).map(|conn| &conn.phase) {
            Some(ConnPhase::Revalidating(request)) => {
                let read_only = request.read_only;
                self.refuse_session(conn, read_only, replica, cx);
            }
            Some(
                ConnPhase::AwaitLeader(_)
                | ConnPhase::Creating(_)
                | ConnPhase::Created { .. }
                | ConnPhase::Open { .. },
            )
            | None => self.close(conn, replica, cx),
        }
    }

    /// A session has moved to another server: closes its connection, unless that connection is
    /// still revalidating, because its handshake may be newer than the move.
    fn leave_session(&mut self, session: SessionId, replica: &mut Replica, cx: &mut Cx<'_>) {
        let Some(conn) = self.by_session.get(&session).copied() else {
            return;
        };
        let asks = |conn: &Conn| matches!(conn.phase, ConnPhase::Revalidating(_));
        if !self.conns.get(&conn).is_some_and(asks) {
            self.close(conn, replica, cx);
        }
    }

    /// A transaction that ends, moves or upgrades a session concerns the connection of the session.
    fn note_session_change(&mut self, txn: &Txn, replica: &mut Replica, cx: &mut Cx<'_>) {
        match txn.op {
            TxnOp::CloseSession => {
                cx.mark(Mark::SessionClosed);
                // The leader proposes an expiry itself, so it has no origin.
                if txn.origin.is_none() {
                    self.note_expired(txn.session, cx);
                }
                self.end_session(txn.session, replica, cx);
            }
            TxnOp::MoveSession { server } if server != cx.config.id() => {
                self.leave_session(txn.session, replica, cx);
            }
            TxnOp::UpgradeSession { .. } => {
                if self.local.promote(txn.session) {
                    cx.mark(Mark::SessionUpgraded);
                }
            }
            TxnOp::MoveSession { .. }
            | TxnOp::Create { .. }
            | TxnOp::Delete { .. }
            | TxnOp::SetData { .. }
            | TxnOp::SetAcl { .. }
            | TxnOp::Check { .. }
            | TxnOp::Multi(_)
            | TxnOp::MultiRefused { .. }
            | TxnOp::CreateSession { .. }
            | TxnOp::Reconfig { .. }
            | TxnOp::Error { .. } => {}
        }
    }

    /// Sends the event to each watcher that may read the node (WATCH-17); all share one record.
    fn send_event(&self, zxid: Zxid, fired: Fired, cx: &mut Cx<'_>) {
        let Fired { event, path, conns, acl } = fired;
        if conns.len() > 1 {
            cx.mark(Mark::WatchShared);
        }
        let event = Arc::new(WatchEvent { zxid: Some(zxid), event, path });
        let access = Access::new(Perms::READ, &event.path);
        // WATCH-17: the current identities of the client count, not those it had when it set the
        // watch.
        let may = |ids: &[Arc<Id>]| Who::new(ids, cx.schemes).may(&acl, &access);
        // Identities only add permissions.
        let anybody = may(&[]);
        for conn in conns {
            let known = || self.conns.get(&conn).is_some_and(|conn| may(conn.known.ids()));
            if anybody || known() {
                cx.out.marks.hit(Mark::WatchFired);
                cx.out.clients.push((conn, ClientCommand::Event(event.clone())));
            } else {
                cx.out.marks.hit(Mark::WatchFiltered);
            }
        }
    }
}

/// Sends the events that a client has missed while it was disconnected (WATCH-24).
fn send_missed_events(
    conn: ConnId,
    request: &SetWatches,
    events: Vec<WatchEvent>,
    cx: &mut Cx<'_>,
) {
    let SetWatches { data, exist, child, persistent, recursive, .. } = request;
    let lists = [data, exist, child, persistent, recursive];
    if events.len() < lists.into_iter().map(Vec::len).sum() {
        cx.mark(Mark::SetWatchesKept);
    }
    for event in events {
        cx.mark(Mark::SetWatchesFired);
        cx.mark(match event.event {
            EventType::NodeDeleted => Mark::SetWatchesDeleted,
            EventType::NodeCreated => Mark::SetWatchesCreated,
            EventType::NodeDataChanged => Mark::SetWatchesData,
            EventType::NodeChildrenChanged => Mark::SetWatchesChildren,
        });
        cx.send(conn, ClientCommand::Event(Arc::new(event)));
    }
}

pub(super) fn reply_to(
    conn: ConnId,
    xid: i32,
    result: Result<ReplyBody, ErrorCode>,
    replica: &Replica,
    cx: &mut Cx<'_>,
) {
    let zxid = replica.log().applied().wire();
    cx.send(conn, ClientCommand::Reply(Reply { xid, zxid, result }));
}
