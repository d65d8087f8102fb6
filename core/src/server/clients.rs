//! Client connections: handshakes, requests in, answers and events out (Java `ZooKeeperServer`, `ServerCnxn`).
//!
//! Owns what a connection is to a server. Must not change the role.

use std::cmp::Ordering;

use super::Server;
use crate::error::ErrorCode;
use crate::ids::{ConnId, Instant, SessionId};
use crate::io::{ClientCommand, ClientEvent, Cx, Mark, Pressure};
use crate::replica::{Applied, Replica};
use crate::request::order::{Form, Queue};
use crate::request::read;
use crate::session;
use crate::timer::Timer;
use crate::txn::{Origin, TxnOp};
use crate::wire::{
    ConnectRequest, ConnectResponse, MultiResult, Reply, ReplyBody, Request, RequestFrame, Stat,
    WatchEvent, XID_PING,
};
use crate::zab::Broadcast;

/// Error code of the operations behind the one that failed a multi (MULTI-03).
const RUNTIME_INCONSISTENCY: i32 = -2;

/// Number of the handshake among the writes of a connection; requests count from one.
const SESSION_REQUEST: u64 = 0;

/// One connection.
///
/// ```text
/// Held ──leader known──► Creating ──committed──► Open
///   └──────── session resumed ────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Conn {
    phase: ConnPhase,
    queue: Queue,
}

#[derive(Debug)]
enum ConnPhase {
    /// The handshake waits for a leader.
    Held(ConnectRequest),
    /// The new session's transaction is under way; requests wait for it (HS-07).
    Creating { session: SessionId, read_only: Option<bool> },
    /// Serves this session.
    Open { session: SessionId },
}

impl Server {
    pub(super) fn on_client(&mut self, conn: ConnId, event: ClientEvent, cx: &mut Cx<'_>) {
        match event {
            ClientEvent::Opened(request) => {
                let phase = ConnPhase::Held(request);
                let before = self.conns.insert(conn, Conn { phase, queue: Queue::default() });
                assert!(before.is_none(), "{conn} was dealt twice");
                if self.serving().is_some() {
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
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        if request.session == SessionId(0) {
            self.create_session(conn, timeout_ms, request.read_only, cx);
        } else {
            self.resume_session(conn, timeout_ms, &request, cx);
        }
    }

    fn create_session(
        &mut self,
        conn: ConnId,
        timeout_ms: u32,
        read_only: Option<bool>,
        cx: &mut Cx<'_>,
    ) {
        // Without room the connection stays held, for the next leader.
        let Some((broadcast, replica)) = self.with_room(cx) else {
            return;
        };
        let origin = Origin { server: cx.config.id(), conn, request: SESSION_REQUEST };
        let session = broadcast.propose_session(timeout_ms, origin, replica, cx);
        cx.mark(Mark::SessionNew);
        self.by_session.insert(session, conn);
        self.set_phase(conn, ConnPhase::Creating { session, read_only });
    }

    /// HS-09, HS-10. An older connection of the session is closed first, before the password is looked at.
    fn resume_session(
        &mut self,
        conn: ConnId,
        timeout_ms: u32,
        request: &ConnectRequest,
        cx: &mut Cx<'_>,
    ) {
        let session = request.session;
        if let Some(older) = self.by_session.get(&session).copied() {
            cx.mark(Mark::SessionTakenOver);
            self.close(older, cx);
        }
        let password = session::password(session);
        let welcome = request.password == password[..];
        let now = cx.now.mono;
        let Some((broadcast, _)) = self.serving() else {
            return;
        };
        if !welcome || !broadcast.tracker.is_live(session) {
            cx.mark(Mark::SessionRefused);
            let refused = ConnectResponse::refused(request.read_only);
            cx.send(conn, ClientCommand::Connected(refused));
            return self.close(conn, cx);
        }
        cx.mark(Mark::SessionReattached);
        broadcast.tracker.track(session, timeout_ms, now);
        self.by_session.insert(session, conn);
        self.open(conn, session, password, request.read_only, cx);
    }

    /// The handshake has succeeded; what has queued up behind it may go on.
    fn open(
        &mut self,
        conn: ConnId,
        session: SessionId,
        password: [u8; 16],
        read_only: Option<bool>,
        cx: &mut Cx<'_>,
    ) {
        let Some((broadcast, _)) = self.serving() else { unreachable!("only who serves opens") };
        let timeout_ms = broadcast.tracker.get(session).map_or(0, |(timeout_ms, _)| timeout_ms);
        let response = ConnectResponse {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session,
            password,
            read_only: read_only.map(|_| false),
        };
        cx.send(conn, ClientCommand::Connected(response));
        self.set_phase(conn, ConnPhase::Open { session });
        self.dispatch_queued(conn, cx);
    }

    fn on_request(&mut self, conn: ConnId, frame: RequestFrame, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        let session = match self.conns.get_mut(&conn) {
            // Late frames of a connection that this server has closed.
            None => return,
            Some(Conn { phase: ConnPhase::Open { session }, .. }) => *session,
            Some(Conn { phase: ConnPhase::Held(_) | ConnPhase::Creating { .. }, queue }) => {
                return queue.push(frame);
            }
        };
        let Some((broadcast, _)) = self.serving() else {
            self.start_hold_timer(cx);
            return self.queue(conn).push(frame);
        };
        if !broadcast.tracker.touch(session, now) {
            // SESS-08: no reply; the connection closes when the session's end is committed.
            return cx.mark(Mark::RequestOnClosingSession);
        }
        if matches!(frame.request, Request::Auth { .. }) {
            return self.refuse_auth(conn, frame.xid, cx);
        }
        if frame.request.is_write() {
            self.write(conn, session, frame, cx);
        } else if self.queue(conn).is_empty() {
            self.read(conn, frame, cx);
        } else {
            cx.mark(Mark::ReadBehindWrite);
            self.queue(conn).push(frame);
        }
    }

    fn write(&mut self, conn: ConnId, session: SessionId, frame: RequestFrame, cx: &mut Cx<'_>) {
        if self.with_room(cx).is_none() {
            return self.queue(conn).push(frame);
        }
        let request = self.queue(conn).push_write(&frame);
        let origin = Origin { server: cx.config.id(), conn, request };
        if let Some((broadcast, replica)) = self.serving() {
            broadcast.propose(session, Some(origin), frame.request, replica, cx);
        }
    }

    /// Answers a request whose turn has come and that is no write.
    fn read(&mut self, conn: ConnId, frame: RequestFrame, cx: &mut Cx<'_>) {
        let RequestFrame { xid, request } = frame;
        if let Request::Auth { .. } = request {
            return self.refuse_auth(conn, xid, cx);
        }
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
                cx.send(conn, ClientCommand::Event(event));
            }
        }
        if matches!(request, Request::Undecodable { .. }) {
            cx.mark(Mark::RequestUndecodable);
        }
        // WIRE-08: whatever number a ping came with.
        let xid = if request == Request::Ping { XID_PING } else { xid };
        let result = read::answer(tree, watches, conn, request);
        self.reply(conn, xid, result, cx);
    }

    /// ACL-16: the only scheme offered is `world`, and nobody authenticates by it. Outside the queue, as in ZooKeeper.
    fn refuse_auth(&mut self, conn: ConnId, xid: i32, cx: &mut Cx<'_>) {
        let reply = Reply { xid, zxid: 0, result: Err(ErrorCode::AuthFailed) };
        cx.send(conn, ClientCommand::Reply(reply));
        self.close(conn, cx);
    }

    /// A transaction has been applied: watchers hear of it before whoever asked for it (WATCH-18).
    pub(super) fn on_applied(&mut self, applied: Applied, cx: &mut Cx<'_>) {
        let Applied { txn, effects } = applied;
        for event in effects.fired {
            for conn in event.conns {
                cx.mark(Mark::WatchFired);
                let path = event.path.clone();
                let event = WatchEvent { zxid: Some(txn.zxid), event: event.event, path };
                cx.send(conn, ClientCommand::Event(event));
            }
        }
        let asked_here = txn.origin.filter(|origin| {
            origin.server == cx.config.id() && self.conns.contains_key(&origin.conn)
        });
        if let Some(Origin { conn, request, .. }) = asked_here {
            if request == SESSION_REQUEST {
                self.open_created(conn, cx);
            } else {
                let write = self.queue(conn).applied(request);
                let result = outcome(&write.form, &txn.op, &mut effects.stats.into_iter());
                self.reply(conn, write.xid, result, cx);
                if !matches!(txn.op, TxnOp::CloseSession { .. }) {
                    self.serve_reads(conn, cx);
                }
            }
        }
        if matches!(txn.op, TxnOp::CloseSession { .. }) {
            cx.mark(Mark::SessionClosed);
            if let Some(conn) = self.by_session.get(&txn.session).copied() {
                self.close(conn, cx);
            }
        }
    }

    /// The session of a connection exists: the handshake can be answered, by whoever serves.
    fn open_created(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::Creating { session, read_only }, .. }) =
            self.conns.get(&conn)
        else {
            return;
        };
        let (session, read_only) = (*session, *read_only);
        let live = |broadcast: &Broadcast| broadcast.tracker.is_live(session);
        if self.serving().is_some_and(|(broadcast, _)| live(broadcast)) {
            self.open(conn, session, session::password(session), read_only, cx);
        }
    }

    /// Reads that waited for a write, up to the next one.
    fn serve_reads(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        // What is applied is committed, so they may be answered even while a new leader still applies its history.
        while let Some(frame) = self.conns.get_mut(&conn).and_then(|conn| conn.queue.next_read()) {
            self.read(conn, frame, cx);
        }
    }

    /// All that has queued up while the connection was not served.
    fn dispatch_queued(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        let Some(Conn { queue, .. }) = self.conns.get_mut(&conn) else {
            return;
        };
        for frame in queue.take() {
            self.on_request(conn, frame, cx);
        }
    }

    /// Service has begun: whoever was held goes on.
    pub(super) fn admit_held(&mut self, cx: &mut Cx<'_>) {
        for conn in Vec::from_iter(self.conns.keys().copied()) {
            match self.conns.get(&conn).map(|conn| &conn.phase) {
                None => {}
                Some(ConnPhase::Held(_)) => self.connect(conn, cx),
                Some(ConnPhase::Creating { .. }) => self.open_created(conn, cx),
                Some(ConnPhase::Open { .. }) => self.dispatch_queued(conn, cx),
            }
        }
    }

    /// No leader for too long: clients had better try elsewhere (WIRE-16).
    pub(super) fn close_held(&mut self, cx: &mut Cx<'_>) {
        for conn in Vec::from_iter(self.conns.keys().copied()) {
            cx.mark(Mark::ConnHeldTooLong);
            self.close(conn, cx);
        }
    }

    /// The sessions whose deadline has come end by a transaction (SESS-06).
    pub(super) fn expire_sessions(&mut self, deadline: Instant, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        let stalled = now.since(deadline) > cx.config.tick();
        let deaf = self.pressure() == Pressure::PauseClients;
        let Some((broadcast, _)) = self.serving() else {
            return;
        };
        if stalled || deaf {
            // This server has not listened, so silence says nothing about the clients.
            return broadcast.tracker.touch_all(now);
        }
        // Where the epoch ends within the loop, the rest is not lost: the next leader tracks every session anew.
        for session in broadcast.tracker.expire(now) {
            let Some((broadcast, replica)) = self.with_room(cx) else {
                return;
            };
            cx.mark(Mark::SessionExpired);
            broadcast.propose(session, None, Request::CloseSession, replica, cx);
        }
    }

    /// Who serves, with a zxid to give; an epoch that is used up ends here.
    fn with_room(&mut self, cx: &mut Cx<'_>) -> Option<(&mut Broadcast, &mut Replica)> {
        if self.serving().is_some_and(|(broadcast, _)| !broadcast.has_room(cx)) {
            self.start_hold_timer(cx);
            self.resign(cx);
        }
        self.serving()
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
        if let ConnPhase::Creating { session, .. } | ConnPhase::Open { session } = phase
            && self.by_session.get(&session) == Some(&conn)
        {
            self.by_session.remove(&session);
        }
    }

    fn start_hold_timer(&mut self, cx: &mut Cx<'_>) {
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
        TxnOp::Create { .. } | TxnOp::SetData { .. } => match part(form, op, stats) {
            MultiResult::Created(path) => ReplyBody::Path(path),
            MultiResult::CreatedStat(path, stat) => ReplyBody::PathStat(path, stat),
            MultiResult::Changed(stat) => ReplyBody::Stat(stat),
            MultiResult::Deleted | MultiResult::Checked | MultiResult::Failed(_) => {
                unreachable!("{op} creates or changes")
            }
        },
        TxnOp::Delete { .. }
        | TxnOp::Check { .. }
        | TxnOp::CreateSession { .. }
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
        TxnOp::SetData { .. } => MultiResult::Changed(stat()),
        TxnOp::Delete { .. } => MultiResult::Deleted,
        TxnOp::Check { .. } => MultiResult::Checked,
        TxnOp::CreateSession { .. }
        | TxnOp::CloseSession { .. }
        | TxnOp::Multi(_)
        | TxnOp::MultiRefused { .. }
        | TxnOp::Error { .. } => unreachable!("{op} is no part of a multi"),
    }
}
