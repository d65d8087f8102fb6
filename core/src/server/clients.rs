//! Client connections: handshakes, requests in, answers and events out (Java `ZooKeeperServer`, `ServerCnxn`).
//!
//! Owns what a connection is to a server. Must not change the role.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Role, Server};
use crate::auth::{Access, Known, Verdict, Who};
use crate::error::ErrorCode;
use crate::ids::{ConnId, Instant, SessionId, Zxid};
use crate::io::{ClientCommand, ClientEvent, Cx, Mark, Pressure};
use crate::peer::PeerMessage;
use crate::replica::{Applied, Fired};
use crate::request::order::{Anew, Asked, Form, Queue, Resumed};
use crate::request::read::{self, Asker};
use crate::session;
use crate::timer::Timer;
use crate::txn::{Origin, TxnOp};
use crate::wire::{
    ConnectRequest, ConnectResponse, Id, MultiResult, OpCode, Perms, Reply, ReplyBody, Request,
    RequestFrame, Stat, WatchEvent, XID_PING,
};
use crate::zab::{Resumption, SyncWaiter, Write};

/// Error code of the operations behind the one that failed a multi (MULTI-03).
const RUNTIME_INCONSISTENCY: i32 = -2;

/// One connection.
///
/// ```text
/// Held ── new session ──► Creating ────────committed─► Created ──served──► Open
///  │ ▲                       │                           ▲                  ▲
///  │ └──── leader lost ──────┤                           │                  │
///  │                         │                           │                  │
///  └── known session ─► Revalidating ── move committed ──┘                  │
///                            └───────── live, and here before ──────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Conn {
    phase: ConnPhase,
    queue: Queue,
    /// Who the client has shown to be; they are of the connection, and only become more (ACL-17).
    known: Known,
}

#[derive(Debug)]
enum ConnPhase {
    /// The handshake waits for a leader.
    Held(ConnectRequest),
    /// The new session's transaction is under way; requests wait for it (HS-07).
    Creating(ConnectRequest),
    /// The session exists; it is served with the next breath.
    Created { session: SessionId, timeout_ms: u32, read_only: Option<bool> },
    /// The leader is asked whether the session is alive; where it comes from another server, that it does is written
    /// down first.
    Revalidating(ConnectRequest),
    /// Serves this session.
    Open { session: SessionId },
}

impl Server {
    pub(super) fn on_client(&mut self, conn: ConnId, event: ClientEvent, cx: &mut Cx<'_>) {
        match event {
            ClientEvent::Opened(request, ids) => {
                let (phase, queue) = (ConnPhase::Held(request), Queue::default());
                let new = Conn { phase, queue, known: cx.schemes.opened(ids) };
                let before = self.conns.insert(conn, new);
                assert!(before.is_none(), "{conn} was dealt twice");
                if self.serves() {
                    self.connect(conn, cx);
                } else {
                    cx.mark(Mark::ConnHeld);
                    self.start_hold_timer(cx);
                }
            }
            ClientEvent::Request(frame) => self.on_request(conn, frame, cx),
            ClientEvent::Closed => self.drop_conn(conn),
        }
    }

    /// Carries out the handshake of a held connection (HS rows).
    fn connect(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::Held(request), .. }) = self.conns.get(&conn) else {
            return;
        };
        let request = request.clone();
        if request.last_zxid_seen > self.replica.log().applied() {
            // HS-05: some other server has what this client has seen.
            cx.mark(Mark::ClientAhead);
            return self.close(conn, cx);
        }
        if request.session == SessionId(0) {
            self.create_session(conn, request, cx);
        } else {
            self.resume_session(conn, request, cx);
        }
    }

    fn create_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        // Without room the connection stays held, for the next leader.
        if !self.ensure_room(cx) {
            return;
        }
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        let origin = Origin::handshake(cx.config.id(), conn);
        cx.mark(Mark::SessionNew);
        self.set_phase(conn, ConnPhase::Creating(request));
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves connects"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.tell(link, PeerMessage::CreateSession { timeout_ms, origin });
                }
            }
            Role::Leading(leader) => {
                let verdict = leader.create_session(timeout_ms, origin, &mut self.replica, cx);
                self.carry_out(verdict, cx);
            }
        }
    }

    /// HS-09, HS-10. An older connection of the session is closed once the password is found to be right.
    fn resume_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        let session = request.session;
        // ZooKeeper closes an older connection first; so anybody could throw anybody out, knowing no password.
        if request.password != session::password(session)[..] {
            return self.refuse_session(conn, request.read_only, cx);
        }
        if let Some(older) = self.by_session.get(&session).copied() {
            cx.mark(Mark::SessionTakenOver);
            self.close(older, cx);
        }
        // Without room the connection stays held, for the next leader.
        if !self.ensure_room(cx) {
            return;
        }
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves connects"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.tell(link, PeerMessage::Revalidate { conn, session, timeout_ms });
                }
                self.revalidate(conn, request);
            }
            Role::Leading(leader) => {
                let origin = Origin::handshake(cx.config.id(), conn);
                match leader.resume_session(session, timeout_ms, origin, &mut self.replica, cx) {
                    Resumption::Dead => self.refuse_session(conn, request.read_only, cx),
                    Resumption::Known => {
                        cx.mark(Mark::SessionReattached);
                        self.open(conn, session, timeout_ms, request.read_only, cx);
                    }
                    Resumption::Moves(_) | Resumption::Closing => {
                        self.revalidate(conn, request);
                    }
                }
            }
        }
    }

    /// The connection waits for the leader's word on its session, or for a transaction.
    fn revalidate(&mut self, conn: ConnId, request: ConnectRequest) {
        self.by_session.insert(request.session, conn);
        self.set_phase(conn, ConnPhase::Revalidating(request));
    }

    /// The leader has answered for a session that a client wants to go on with here.
    pub(super) fn on_revalidated(
        &mut self,
        conn: ConnId,
        session: SessionId,
        live: bool,
        cx: &mut Cx<'_>,
    ) {
        let Some(Conn { phase: ConnPhase::Revalidating(request), .. }) = self.conns.get(&conn)
        else {
            return;
        };
        let (asked, read_only) = (request.session, request.read_only);
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        // The answer may have been overtaken by the end of the session, which this server knows then.
        if asked != session || !live || self.replica.sessions().timeout_ms(session).is_none() {
            return self.refuse_session(conn, read_only, cx);
        }
        cx.mark(Mark::SessionReattached);
        self.open(conn, session, timeout_ms, read_only, cx);
    }

    fn refuse_session(&mut self, conn: ConnId, read_only: Option<bool>, cx: &mut Cx<'_>) {
        cx.mark(Mark::SessionRefused);
        let refused = ConnectResponse::refused(read_only);
        cx.send(conn, ClientCommand::Connected(refused));
        self.close(conn, cx);
    }

    /// The handshake has succeeded; what has queued up behind it may go on.
    fn open(
        &mut self,
        conn: ConnId,
        session: SessionId,
        timeout_ms: u32,
        read_only: Option<bool>,
        cx: &mut Cx<'_>,
    ) {
        let response = ConnectResponse {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session,
            password: session::password(session),
            read_only: read_only.map(|_| false),
        };
        cx.send(conn, ClientCommand::Connected(response));
        self.attach(conn, session, cx);
        self.set_phase(conn, ConnPhase::Open { session });
        self.touch(session, cx);
        self.resume(conn, |_| false, cx);
    }

    fn on_request(&mut self, conn: ConnId, frame: RequestFrame, cx: &mut Cx<'_>) {
        let known = match self.conns.get_mut(&conn) {
            // Late frames of a connection that this server has closed.
            None => return,
            Some(Conn { phase: ConnPhase::Open { .. }, known, .. }) => known,
            Some(Conn {
                phase:
                    ConnPhase::Held(_)
                    | ConnPhase::Creating(_)
                    | ConnPhase::Created { .. }
                    | ConnPhase::Revalidating(_),
                queue,
                ..
            }) => return queue.push_early(frame),
        };
        let RequestFrame { xid, request } = frame;
        // These do not wait for others, and do not show that the session is in use.
        if let Request::Auth { scheme, auth } = &request {
            return self.authenticate(conn, xid, scheme, auth.0.as_deref(), cx);
        }
        if let Request::Sasl { .. } = request {
            // OP-102: nobody has set SASL up here. ZooKeeper answers so, too; the client is who it was.
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
        self.on_asked(conn, Asked { frame: RequestFrame { xid, request }, ids }, cx);
    }

    /// A request of a session, with the identities that it was read with.
    fn on_asked(&mut self, conn: ConnId, asked: Asked, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::Open { session }, .. }) = self.conns.get(&conn) else {
            // Closed because of a request before it.
            return;
        };
        let session = *session;
        if !self.serves() {
            self.start_hold_timer(cx);
            return self.queue(conn).push(asked);
        }
        if !self.touch(session, cx) {
            // SESS-08: no reply; the connection closes when the session's end is committed. If that is lost with this
            // reign, the session lives on, and the next leader is asked.
            cx.mark(Mark::RequestOnClosingSession);
            return self.queue(conn).push(asked);
        }
        if asked.frame.request.is_write() {
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

    /// OP-100: at once and outside the queue, as in ZooKeeper. Later requests have the identities that it shows.
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
        match cx.schemes.authenticate(scheme, auth, known.ids()) {
            Verdict::Accepted(ids) => {
                cx.mark(Mark::AuthAccepted);
                known.extend(ids);
                let reply = Reply { xid, zxid: 0, result: Ok(ReplyBody::Empty) };
                cx.send(conn, ClientCommand::Reply(reply));
            }
            Verdict::Refused => self.refuse_conn(conn, xid, ErrorCode::AuthFailed, cx),
            Verdict::Closed => {
                cx.mark(Mark::AuthRefused);
                self.close(conn, cx);
            }
        }
    }

    /// Who the client has shown to be, or has not, does not suffice to be served (ACL-16, ACL-19).
    fn refuse_conn(&mut self, conn: ConnId, xid: i32, code: ErrorCode, cx: &mut Cx<'_>) {
        cx.mark(Mark::AuthRefused);
        let reply = Reply { xid, zxid: 0, result: Err(code) };
        cx.send(conn, ClientCommand::Reply(reply));
        self.close(conn, cx);
    }

    /// The session has been heard of (SESS-05); `false` where it is closing or gone, as far as this server can know.
    fn touch(&mut self, session: SessionId, cx: &Cx<'_>) -> bool {
        match &mut self.role {
            Role::Looking(_) => true,
            Role::Following(follower) => {
                follower.touch(session);
                true
            }
            Role::Leading(leader) => leader
                .broadcast()
                .is_some_and(|broadcast| broadcast.tracker.touch(session, cx.now.mono)),
        }
    }

    fn write(&mut self, conn: ConnId, session: SessionId, asked: Asked, cx: &mut Cx<'_>) {
        if !self.ensure_room(cx) {
            return self.queue(conn).push(asked);
        }
        let (request, ids) = (asked.frame.request.clone(), asked.ids.clone());
        let number = self.queue(conn).push_write(asked);
        let origin = Origin { server: cx.config.id(), conn, request: number };
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves writes"),
            Role::Following(follower) => {
                cx.mark(Mark::WriteForwarded);
                if let Some(link) = follower.serving() {
                    cx.tell(link, PeerMessage::Request { session, origin, ids, request });
                }
            }
            Role::Leading(leader) => {
                let write = Write { session, origin, ids, request };
                leader.propose(write, &mut self.replica, cx);
            }
        }
    }

    fn sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves syncs"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.tell(link, PeerMessage::Sync { conn, request });
                }
            }
            Role::Leading(leader) => {
                let verdict = leader.sync(SyncWaiter { link: None, conn, request }, cx);
                self.carry_out(verdict, cx);
            }
        }
    }

    /// A quorum has confirmed that what is committed here is all there was when the sync came.
    pub(super) fn confirm_sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        if let Some(Conn { queue, .. }) = self.conns.get_mut(&conn) {
            queue.confirm(request);
            self.serve_reads(conn, cx);
        }
    }

    /// Answers a request whose turn has come and that is no write.
    fn read(&mut self, conn: ConnId, asked: Asked, cx: &mut Cx<'_>) {
        let Asked { frame: RequestFrame { xid, request }, ids } = asked;
        if let Request::Unknown { .. } = request {
            // WIRE-14.
            cx.mark(Mark::RequestUnknown);
            let reply = Reply { xid, zxid: -1, result: Err(ErrorCode::Unimplemented) };
            cx.send(conn, ClientCommand::Reply(reply));
            return self.close(conn, cx);
        }
        let (tree, watches) = self.replica.reading();
        if let Request::SetWatches(request) = &request {
            for event in read::set_watches(tree, watches, conn, request) {
                cx.mark(Mark::SetWatchesFired);
                cx.send(conn, ClientCommand::Event(Arc::new(event)));
            }
        }
        if matches!(request, Request::Undecodable { .. }) {
            cx.mark(Mark::RequestUndecodable);
        }
        // WIRE-08: whatever number a ping came with.
        let xid = if request == Request::Ping { XID_PING } else { xid };
        let Some(Conn { phase: ConnPhase::Open { session }, .. }) = self.conns.get(&conn) else {
            unreachable!("{conn} asks before its session is open")
        };
        let asker = Asker { conn, session: *session, who: Who::new(&ids, cx.schemes) };
        let result = read::answer(tree, watches, &asker, request);
        self.reply(conn, xid, result, cx);
    }

    /// A write is committed: what waits before it on its connection is answered while the tree is as it was (CONS-02).
    pub(super) fn before_apply(&mut self, origin: Origin, cx: &mut Cx<'_>) {
        if origin.server == cx.config.id()
            && let Some(Conn { queue, .. }) = self.conns.get_mut(&origin.conn)
            && queue.confirm_before(origin.request)
        {
            cx.mark(Mark::SyncByWrite);
            self.serve_reads(origin.conn, cx);
        }
    }

    /// A transaction has been applied: watchers hear of it before whoever asked for it (WATCH-18).
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
                let frame = self.queue(conn).applied(request);
                let form = Form::of(&frame.request);
                let result = outcome(&form, &txn.op, &mut effects.stats.into_iter());
                self.reply(conn, frame.xid, result, cx);
                if !matches!(txn.op, TxnOp::CloseSession { .. }) {
                    self.serve_reads(conn, cx);
                }
            }
        }
        match txn.op {
            TxnOp::CloseSession { .. } => {
                cx.mark(Mark::SessionClosed);
                self.end_session(txn.session, cx);
            }
            TxnOp::MoveSession { server } if server != cx.config.id() => {
                self.leave_session(txn.session, cx);
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

    /// Whoever may read the node hears of it (WATCH-17); all share one record.
    fn tell_watchers(&self, zxid: Zxid, fired: Fired, cx: &mut Cx<'_>) {
        let Fired { event, path, conns, acl } = fired;
        let event = Arc::new(WatchEvent { zxid: Some(zxid), event, path });
        let access = Access::new(Perms::READ, &event.path);
        // WATCH-17: by who the client is now, not when it set the watch.
        let may = |ids: &[Id]| Who::new(ids, cx.schemes).may(&acl, &access);
        // Identities only ever add to what one may.
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

    /// A session has ended: its connection is closed, and whoever wanted to go on with it hears that it is too late.
    fn end_session(&mut self, session: SessionId, cx: &mut Cx<'_>) {
        let Some(conn) = self.by_session.get(&session).copied() else {
            return;
        };
        match self.conns.get(&conn).map(|conn| &conn.phase) {
            Some(ConnPhase::Revalidating(request)) => {
                let read_only = request.read_only;
                self.refuse_session(conn, read_only, cx);
            }
            Some(
                ConnPhase::Held(_)
                | ConnPhase::Creating(_)
                | ConnPhase::Created { .. }
                | ConnPhase::Open { .. },
            )
            | None => self.close(conn, cx),
        }
    }

    /// A session has gone on to another server. Whoever asks for it here may have come later, and waits on.
    fn leave_session(&mut self, session: SessionId, cx: &mut Cx<'_>) {
        let Some(conn) = self.by_session.get(&session).copied() else {
            return;
        };
        let asks = |conn: &Conn| matches!(conn.phase, ConnPhase::Revalidating(_));
        if !self.conns.get(&conn).is_some_and(asks) {
            self.close(conn, cx);
        }
    }

    /// The session of a connection exists, and is this server's: the handshake can be answered, once clients are served.
    fn on_session_here(&mut self, conn: ConnId, session: SessionId, cx: &mut Cx<'_>) {
        let Some(Conn {
            phase: ConnPhase::Creating(request) | ConnPhase::Revalidating(request),
            ..
        }) = self.conns.get(&conn)
        else {
            return;
        };
        let (timeout_ms, read_only) = (cx.config.negotiate(request.timeout_ms), request.read_only);
        self.attach(conn, session, cx);
        if self.serves() {
            self.open(conn, session, timeout_ms, read_only, cx);
        } else {
            self.set_phase(conn, ConnPhase::Created { session, timeout_ms, read_only });
        }
    }

    /// The session goes on over this connection, and over no other one: handshakes that were under way at the same time
    /// succeed one after the other.
    fn attach(&mut self, conn: ConnId, session: SessionId, cx: &mut Cx<'_>) {
        if let Some(older) = self.by_session.insert(session, conn).filter(|older| *older != conn) {
            cx.mark(Mark::SessionTakenOver);
            self.close(older, cx);
        }
    }

    /// Reads that waited for a write, up to the next one.
    fn serve_reads(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        // What is applied is committed, so they may be answered even while a new leader still applies its history.
        while let Some(asked) = self.conns.get_mut(&conn).and_then(|conn| conn.queue.next_read()) {
            self.read(conn, asked, cx);
        }
    }

    /// Carries on with the requests of a connection that is served again, or for the first time. Writes among `found` are
    /// in the log already.
    fn resume(&mut self, conn: ConnId, found: impl Fn(u64) -> bool, cx: &mut Cx<'_>) {
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
                Anew::Asked(asked) => self.on_asked(conn, asked, cx),
                Anew::Early(frame) => self.on_request(conn, frame, cx),
            }
        }
    }

    /// Service has begun: whoever was held goes on. A write that the leader has in its log is answered when it is
    /// applied; one that it does not have is lost, and is asked for again.
    pub(super) fn resume_clients(&mut self, cx: &mut Cx<'_>) {
        self.timers.set(Timer::Hold, None);
        let found = self.replica.unapplied_origins(cx.config.id());
        if !found.is_empty() {
            cx.mark(Mark::WriteFound);
        }
        for conn in Vec::from_iter(self.conns.keys().copied()) {
            if !self.serves() {
                // The others have used up the epoch: the rest waits for the next one.
                return;
            }
            let waits = self.conns.get(&conn).is_some_and(|conn| !conn.queue.is_empty());
            match self.conns.get(&conn).map(|conn| &conn.phase) {
                Some(ConnPhase::Creating(_) | ConnPhase::Revalidating(_))
                    if found.contains(&Origin::handshake(cx.config.id(), conn)) => {}
                None => {}
                Some(ConnPhase::Held(_)) => self.connect(conn, cx),
                Some(ConnPhase::Creating(request) | ConnPhase::Revalidating(request)) => {
                    let request = request.clone();
                    if self.by_session.get(&request.session) == Some(&conn) {
                        self.by_session.remove(&request.session);
                    }
                    self.set_phase(conn, ConnPhase::Held(request));
                    self.connect(conn, cx);
                }
                Some(ConnPhase::Created { session, timeout_ms, read_only }) => {
                    let (session, timeout_ms, read_only) = (*session, *timeout_ms, *read_only);
                    self.open(conn, session, timeout_ms, read_only, cx);
                }
                Some(ConnPhase::Open { session }) => {
                    if waits {
                        // The leader may be the old one, and has not heard what this server has heard meanwhile.
                        self.touch(*session, cx);
                    }
                    let server = cx.config.id();
                    let is_found = |request| found.contains(&Origin { server, conn, request });
                    self.resume(conn, is_found, cx);
                }
            }
        }
    }

    /// No leader for too long: clients had better try elsewhere (WIRE-16).
    pub(super) fn close_held(&mut self, cx: &mut Cx<'_>) {
        if !self.conns.is_empty() {
            cx.mark(Mark::ConnHeldTooLong);
        }
        self.close_all(cx);
    }

    pub(super) fn close_all(&mut self, cx: &mut Cx<'_>) {
        for conn in Vec::from_iter(self.conns.keys().copied()) {
            self.close(conn, cx);
        }
    }

    /// The sessions whose deadline has come end by a transaction (SESS-06).
    pub(super) fn expire_sessions(&mut self, deadline: Instant, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        let stalled = now.since(deadline) > cx.config.tick();
        let deaf = self.pressure() == Pressure::PauseClients;
        let Role::Leading(leader) = &mut self.role else {
            return;
        };
        let Some(broadcast) = leader.broadcast() else {
            return;
        };
        if deaf {
            // Clients are not read: their time has not come, whatever the clock says.
            return;
        }
        if stalled {
            // This server has not listened, so silence says nothing about the clients.
            return broadcast.tracker.touch_all(now);
        }
        // Where the epoch ends within the loop, the rest is not lost: the next leader tracks every session anew.
        for session in broadcast.tracker.expire(now) {
            if !self.ensure_room(cx) {
                return;
            }
            if let Role::Leading(leader) = &mut self.role {
                cx.mark(Mark::SessionExpired);
                leader.propose_expiry(session, &mut self.replica, cx);
            }
        }
    }

    /// Does a leader have a zxid to give? An epoch that is used up ends here. A follower leaves that to its leader.
    fn ensure_room(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Role::Leading(leader) = &mut self.role
            && leader.broadcast().is_none_or(|broadcast| !broadcast.has_room(cx))
        {
            cx.mark(Mark::EpochUsedUp);
            self.look(None, cx);
        }
        self.serves()
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

    /// Closes a connection; what the client sends from now on is ignored.
    fn close(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        cx.send(conn, ClientCommand::Close);
        self.drop_conn(conn);
    }

    /// Forgets a connection. Its session lives on.
    fn drop_conn(&mut self, conn: ConnId) {
        let Some(Conn { phase, .. }) = self.conns.remove(&conn) else {
            return;
        };
        self.replica.watches.drop_conn(conn);
        if let ConnPhase::Created { session, .. }
        | ConnPhase::Revalidating(ConnectRequest { session, .. })
        | ConnPhase::Open { session } = phase
            && self.by_session.get(&session) == Some(&conn)
        {
            self.by_session.remove(&session);
        }
    }

    pub(super) fn start_hold_timer(&mut self, cx: &mut Cx<'_>) {
        if self.timers.get(Timer::Hold).is_none() {
            let deadline = cx.now.mono.after(cx.config.limits.hold);
            self.timers.set(Timer::Hold, Some(deadline));
        }
    }

    fn set_phase(&mut self, conn: ConnId, phase: ConnPhase) {
        self.conns.get_mut(&conn).expect("a connection that is being served").phase = phase;
    }

    fn queue(&mut self, conn: ConnId) -> &mut Queue {
        &mut self.conns.get_mut(&conn).expect("a connection that is being served").queue
    }
}

/// What a write is answered with, once its transaction is applied; `stats` are those of the nodes it created and
/// changed, in order.
fn outcome(
    form: &Form,
    op: &TxnOp,
    stats: &mut impl Iterator<Item = Stat>,
) -> Result<ReplyBody, ErrorCode> {
    Ok(match op {
        TxnOp::Error { code } => return Err(*code),
        TxnOp::Create { .. } | TxnOp::SetData { .. } | TxnOp::SetAcl { .. } => {
            match part(form, op, stats) {
                MultiResult::Created(path) => ReplyBody::Path(path),
                MultiResult::CreatedStat(path, stat) => ReplyBody::PathStat(path, stat),
                MultiResult::Changed(stat) => ReplyBody::Stat(stat),
                MultiResult::Deleted
                | MultiResult::Checked
                | MultiResult::Failed(_)
                | MultiResult::Data(..)
                | MultiResult::Children(_) => unreachable!("{op} creates or changes"),
            }
        }
        TxnOp::Delete { .. }
        | TxnOp::Check { .. }
        | TxnOp::CreateSession { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::CloseSession { .. } => ReplyBody::Empty,
        TxnOp::Multi(ops) => {
            let Form::Multi(forms) = form else { unreachable!("a multi asked for {op}") };
            ReplyBody::Multi(
                ops.iter().zip(forms).map(|(op, form)| part(form, op, stats)).collect(),
            )
        }
        TxnOp::MultiRefused { count, failed, code } => {
            let refusal = |index: u32| match index.cmp(failed) {
                Ordering::Less => MultiResult::Failed(0),
                Ordering::Equal => MultiResult::Failed(code.wire()),
                Ordering::Greater => MultiResult::Failed(RUNTIME_INCONSISTENCY),
            };
            ReplyBody::Multi((0..*count).map(refusal).collect())
        }
    })
}

/// What became of one operation that a multi can have.
fn part(form: &Form, op: &TxnOp, stats: &mut impl Iterator<Item = Stat>) -> MultiResult {
    let mut stat = || stats.next().expect("creating and changing a node yields its statistics");
    match op {
        TxnOp::Create { path, .. } => {
            let stat = stat();
            match form {
                Form::WithStat => MultiResult::CreatedStat(path.clone(), stat),
                Form::Plain | Form::Multi(_) => MultiResult::Created(path.clone()),
            }
        }
        TxnOp::SetData { .. } | TxnOp::SetAcl { .. } => MultiResult::Changed(stat()),
        TxnOp::Delete { .. } => MultiResult::Deleted,
        TxnOp::Check { .. } => MultiResult::Checked,
        TxnOp::CreateSession { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::CloseSession { .. }
        | TxnOp::Multi(_)
        | TxnOp::MultiRefused { .. }
        | TxnOp::Error { .. } => unreachable!("{op} is no part of a multi"),
    }
}
