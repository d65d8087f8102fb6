//! Client requests, replies and watch events (Java `ZooKeeperServer`, `FinalRequestProcessor`).
//!
//! Owns the path of a request through this server. Must not change the role, nor know how sessions
//! begin and end.

use std::sync::Arc;

use super::clients::{Conn, ConnPhase};
use super::{Role, Server};
use crate::auth::{Access, AuthOutcome, Facts, Who};
use crate::cost;
use crate::cx::Cx;
use crate::error::ErrorCode;
use crate::front::queue::{PendingRequest, ReplyShape, Resubmit, Resumed};
use crate::front::read::{self, Asker};
use crate::front::reply;
use crate::ids::{ConnId, SessionId, Zxid};
use crate::io::{ClientCommand, Mark};
use crate::peer::FromLearner;
use crate::replica::{Applied, Fired};
use crate::txn::{Origin, TxnOp};
use crate::wire::{
    EventType, Id, OpCode, Perms, Reply, ReplyBody, Request, RequestFrame, SetWatches, WatchEvent,
    XID_PING,
};
use crate::zab::{SyncWaiter, Write};

impl Server {
    pub(super) fn on_request(&mut self, conn: ConnId, frame: RequestFrame, cx: &mut Cx<'_>) {
        let known = match self.conns.get_mut(&conn) {
            // Late frames of a connection that this server has closed.
            None => return,
            Some(Conn { phase: ConnPhase::Open { .. }, known, .. }) => known,
            Some(Conn {
                phase:
                    ConnPhase::AwaitLeader(_)
                    | ConnPhase::Creating(_)
                    | ConnPhase::Created { .. }
                    | ConnPhase::Revalidating(_),
                queue,
                ..
            }) => return queue.push_early(frame),
        };
        let RequestFrame { xid, request } = frame;
        cx.spend(cost::of_request(&request));
        // Authentication does not wait for queued requests, and does not renew the session.
        if let Request::Auth { scheme, auth } = &request {
            return self.authenticate(conn, xid, scheme, auth.0.as_deref(), cx);
        }
        if let Request::Sasl { .. } = request {
            // OP-102: SASL is not configured. ZooKeeper sends the same reply; the client's
            // identities do not change.
            let reply = Reply { xid, zxid: 0, result: Ok(ReplyBody::Token(None)) };
            return cx.send(conn, ClientCommand::Reply(reply));
        }
        if let Request::Undecodable { op: OpCode::Auth | OpCode::Sasl } = request {
            cx.mark(Mark::RequestUndecodable);
            return self.close(conn, cx);
        }
        if !cx.schemes.admit(known.ids()) {
            return self.refuse_conn(conn, xid, ErrorCode::SchemeRequired, cx);
        }
        let ids = known.ids().clone();
        self.on_asked(conn, PendingRequest { frame: RequestFrame { xid, request }, ids }, cx);
    }

    /// Processes a request of a session; it carries the identities that the client had when it was
    /// read.
    fn on_asked(&mut self, conn: ConnId, asked: PendingRequest, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::Open { session, timeout_ms }, .. }) =
            self.conns.get(&conn)
        else {
            // An earlier request has closed the connection.
            return;
        };
        let (session, timeout_ms) = (*session, *timeout_ms);
        if !self.serves() {
            self.start_hold_timer(cx);
            return self.queue(conn).push(asked);
        }
        let ends = self.queue(conn).ends();
        if ends || !self.touch(session, timeout_ms, cx) {
            // SESS-08: no reply; the connection closes when the session's end is committed. If that
            // transaction is lost with this leader, the session lives on, and the next leader
            // processes the request.
            cx.mark(Mark::RequestOnClosingSession);
            return self.queue(conn).push(asked);
        }
        if matches!(asked.frame.request, Request::CloseSession) && self.local.is_own(session) {
            self.queue(conn).push_farewell(asked);
            self.serve_reads(conn, cx);
        } else if asked.frame.request.is_write() {
            self.write(conn, session, asked, cx);
        } else if matches!(asked.frame.request, Request::Sync { .. }) {
            let number = self.queue(conn).push_sync(asked);
            self.sync(conn, number, cx);
        } else if self.queue(conn).is_empty() {
            self.read(conn, asked, cx);
        } else {
            cx.mark(Mark::ReadBehindWrite);
            self.queue(conn).push(asked);
        }
    }

    /// OP-100: executed at once and outside the queue, as in ZooKeeper. Later requests have the new
    /// identities.
    fn authenticate(
        &mut self,
        conn: ConnId,
        xid: i32,
        scheme: &str,
        auth: Option<&[u8]>,
        cx: &mut Cx<'_>,
    ) {
        let known =
            &mut self.conns.get_mut(&conn).expect("a connection that is being served").known;
        let tree = self.replica.tree();
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
                    self.refuse_conn(conn, xid, ErrorCode::AuthFailed, cx);
                }
            },
            AuthOutcome::Refused => self.refuse_conn(conn, xid, ErrorCode::AuthFailed, cx),
            AuthOutcome::Closed => {
                cx.mark(Mark::AuthRefused);
                self.close(conn, cx);
            }
        }
    }

    /// The client's identities are invalid or insufficient: replies with `code` and closes the
    /// connection (ACL-16, ACL-19).
    fn refuse_conn(&mut self, conn: ConnId, xid: i32, code: ErrorCode, cx: &mut Cx<'_>) {
        cx.mark(Mark::AuthRefused);
        let reply = Reply { xid, zxid: 0, result: Err(code) };
        cx.send(conn, ClientCommand::Reply(reply));
        self.close(conn, cx);
    }

    /// Renews the session (SESS-05); `false` if it is closing or gone, as far as this server knows.
    pub(super) fn touch(&mut self, session: SessionId, timeout_ms: u32, cx: &Cx<'_>) -> bool {
        if self.local.touch(session, cx.now.mono) {
            return true;
        }
        match &mut self.role {
            Role::Looking(_) => true,
            Role::Following(follower) => {
                follower.touch(session, timeout_ms);
                true
            }
            Role::Leading(leader) => leader.broadcast().is_some_and(|broadcast| {
                broadcast.tracker.touch_by(cx.config.id(), session, timeout_ms, cx.now.mono)
            }),
        }
    }

    fn write(&mut self, conn: ConnId, session: SessionId, asked: PendingRequest, cx: &mut Cx<'_>) {
        if !self.ensure_room(cx) {
            return self.queue(conn).push(asked);
        }
        let session_kind = self.local.session_kind(session, &asked.frame.request, cx.config);
        let (request, ids) = (asked.frame.request.clone(), asked.ids.clone());
        let number = self.queue(conn).push_write(asked);
        let origin = Origin { server: cx.config.id(), conn, request: number };
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves writes"),
            Role::Following(follower) => {
                cx.mark(Mark::WriteForwarded);
                if let Some(link) = follower.serving() {
                    let write =
                        FromLearner::Request { session, origin, ids, request, session_kind };
                    cx.tell(link, write);
                }
            }
            Role::Leading(leader) => {
                let write = Write { session, origin, ids, request, session_kind };
                let effect = leader.propose(write, &mut self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
        }
    }

    /// Asks for a quorum's confirmation of the leader; the result comes to `Server::confirm_sync`.
    pub(super) fn sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves syncs"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.tell(link, FromLearner::Sync { conn, request });
                }
            }
            Role::Leading(leader) => {
                let effect = leader.sync(SyncWaiter { link: None, conn, request }, cx);
                self.apply_leader_effect(effect, cx);
            }
        }
    }

    /// Everything is applied that was committed when a quorum confirmed the sync.
    pub(super) fn on_confirmed(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        if request == Origin::HANDSHAKE {
            return self.on_resumption_synced(conn, cx);
        }
        if let Some(Conn { queue, .. }) = self.conns.get_mut(&conn) {
            queue.confirm(request);
            self.serve_reads(conn, cx);
        }
    }

    /// Answers a read, or another request without a transaction, whose turn has come.
    pub(super) fn read(&mut self, conn: ConnId, asked: PendingRequest, cx: &mut Cx<'_>) {
        let PendingRequest { frame: RequestFrame { xid, request }, ids } = asked;
        cx.spend(1);
        if let Request::Unknown { .. } = request {
            // WIRE-14.
            cx.mark(Mark::RequestUnknown);
            let reply = Reply { xid, zxid: -1, result: Err(ErrorCode::Unimplemented) };
            cx.send(conn, ClientCommand::Reply(reply));
            return self.close(conn, cx);
        }
        if matches!(request, Request::CloseSession) {
            return self.say_farewell(conn, xid, cx);
        }
        let (tree, watches) = self.replica.reading();
        if let Request::SetWatches(request) = &request {
            let events = read::set_watches(tree, watches, conn, request);
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
        if matches!(request, Request::Undecodable { .. }) {
            cx.mark(Mark::RequestUndecodable);
        }
        // WIRE-08: the reply to a ping always has this xid.
        let xid = if matches!(request, Request::Ping) { XID_PING } else { xid };
        let Some(Conn { phase: ConnPhase::Open { session, .. }, .. }) = self.conns.get(&conn)
        else {
            unreachable!("{conn} asks before its session is open")
        };
        let (who, room) = (Who::new(&ids, cx.schemes), cx.config.limits.record_bytes);
        let membership = cx.config.membership.as_ref();
        let asker = Asker { conn, session: *session, who, room, membership };
        let readable = !matches!(request, Request::Undecodable { .. } | Request::NoPath { .. });
        let removes = matches!(request, Request::Watches { remove: true, .. });
        let result = read::answer(tree, watches, &asker, request);
        if removes {
            let found = result.is_ok();
            cx.mark(if found { Mark::WatchRemoved } else { Mark::WatchMissing });
        }
        match &result {
            Ok(body) => cx.spend(cost::of_answer(body)),
            Err(ErrorCode::Marshalling) if readable => {
                // The read has visited the data before it failed.
                cx.spend(cost::of_bytes(room));
                cx.mark(Mark::RecordTooLarge);
            }
            Err(_) => {}
        }
        self.reply(conn, xid, result, cx);
    }

    /// Ends a local session, now that all earlier requests of its connection are answered.
    fn say_farewell(&mut self, conn: ConnId, xid: i32, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::Open { session, .. }, .. }) = self.conns.get(&conn)
        else {
            unreachable!("{conn} asks before its session is open")
        };
        let session = *session;
        assert!(self.local.end(session), "nothing before its end makes {session} known to others");
        cx.mark(Mark::SessionClosed);
        self.reply(conn, xid, Ok(ReplyBody::Empty), cx);
        self.end_session(session, cx);
    }

    /// Called before a committed write is applied: the requests queued before it on its connection
    /// are answered from the tree without it (CONS-02). Returns whether all are answered, so that
    /// the write may be applied.
    pub(super) fn before_apply(&mut self, origin: Origin, cx: &mut Cx<'_>) -> bool {
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
        !waits || self.serve_reads(origin.conn, cx)
    }

    /// A transaction has been applied: sends watch events first, and then the reply (WATCH-18).
    pub(super) fn on_applied(&mut self, applied: Applied, cx: &mut Cx<'_>) {
        let Applied { txn, effects } = applied;
        for fired in effects.fired {
            self.tell_watchers(txn.zxid, fired, cx);
        }
        let asked_here = txn.origin.filter(|origin| {
            origin.server == cx.config.id() && self.conns.contains_key(&origin.conn)
        });
        if let Some(Origin { conn, request, .. }) = asked_here {
            if matches!(txn.op, TxnOp::CreateSession { .. } | TxnOp::MoveSession { .. }) {
                self.on_session_here(conn, txn.session, cx);
            } else {
                let asked = self.queue(conn).applied(request);
                let answer = asked.and_then(|frame| {
                    let form = ReplyShape::of(&frame.request);
                    let result = reply::of(&form, &txn.op, &mut effects.stats.into_iter())?;
                    Some((frame.xid, result))
                });
                match answer {
                    Some((xid, result)) => self.reply(conn, xid, result, cx),
                    // The transaction does not match the pending request: another server has used
                    // this connection's origin, so the client's answer is unknown.
                    None => self.close(conn, cx),
                }
                if !matches!(txn.op, TxnOp::CloseSession) {
                    self.serve_reads(conn, cx);
                }
            }
        }
        match txn.op {
            TxnOp::CloseSession => {
                cx.mark(Mark::SessionClosed);
                if txn.origin.is_none() {
                    self.note_expired(txn.session, cx);
                }
                self.end_session(txn.session, cx);
            }
            TxnOp::MoveSession { server } if server != cx.config.id() => {
                self.leave_session(txn.session, cx);
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
            | TxnOp::Error { .. } => {}
        }
    }

    /// Sends the event to each watcher that may read the node (WATCH-17); all share one record.
    fn tell_watchers(&self, zxid: Zxid, fired: Fired, cx: &mut Cx<'_>) {
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

    /// Continues the requests of a connection when it is served again, or for the first time. The
    /// writes in `found` are in the log already.
    pub(super) fn resume(&mut self, conn: ConnId, found: impl Fn(u64) -> bool, cx: &mut Cx<'_>) {
        let Resumed { syncs, anew, lost } = self.queue(conn).resume(found);
        if lost {
            cx.mark(Mark::WriteLost);
        }
        for request in syncs {
            if self.serves() {
                self.sync(conn, request, cx);
            }
        }
        self.serve_reads(conn, cx);
        for anew in anew {
            match anew {
                Resubmit::PendingRequest(asked) => self.on_asked(conn, asked, cx),
                Resubmit::BeforeSession(frame) => self.on_request(conn, frame, cx),
            }
        }
    }

    fn reply(
        &mut self,
        conn: ConnId,
        xid: i32,
        result: Result<ReplyBody, ErrorCode>,
        cx: &mut Cx<'_>,
    ) {
        let zxid = self.replica.log().applied().wire();
        cx.send(conn, ClientCommand::Reply(Reply { xid, zxid, result }));
    }
}
