//! Client connections and their sessions: handshakes, what is held until somebody serves, expiry (Java
//! `ZooKeeperServer`, `ServerCnxn`).
//!
//! Owns what a connection is to a server, and how it begins and ends. What is asked on it is `requests`'. Must not change
//! the role.

use super::{Role, Server};
use crate::auth::Identities;
use crate::cx::Cx;
use crate::ids::{ConnId, Instant, SessionId};
use crate::io::{ClientCommand, ClientEvent, Mark, Pressure};
use crate::notice::Notice;
use crate::peer::{FromLearner, LinkCloseReason, StepDownReason};
use crate::request::order::Queue;
use crate::timer::Timer;
use crate::txn::Origin;
use crate::wire::{ConnectRequest, ConnectResponse};
use crate::zab::Resumption;

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
    pub(super) phase: ConnPhase,
    pub(super) queue: Queue,
    /// Who the client has shown to be; they are of the connection, and only become more (ACL-17).
    pub(super) known: Identities,
    /// Is it among those whose reads have their turn?
    pub(super) is_ready: bool,
}

#[derive(Debug)]
pub(super) enum ConnPhase {
    /// The handshake waits for a leader.
    AwaitLeader(ConnectRequest),
    /// The new session's transaction is under way; requests wait for it (HS-07).
    Creating(ConnectRequest),
    /// The session exists; it is served with the next breath.
    Created { session: SessionId, timeout_ms: u32, read_only: Option<bool> },
    /// The leader is asked whether the session is alive; where it comes from another server, that it does is written
    /// down first.
    Revalidating(ConnectRequest),
    /// Serves this session, with the timeout that was granted.
    Open { session: SessionId, timeout_ms: u32 },
}

impl Server {
    pub(super) fn on_client(&mut self, conn: ConnId, event: ClientEvent, cx: &mut Cx<'_>) {
        match event {
            ClientEvent::Opened(request, ids) => {
                let (phase, queue) = (ConnPhase::AwaitLeader(request), Queue::default());
                let known = cx.schemes.opened(ids);
                let new = Conn { phase, queue, known, is_ready: false };
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
            ClientEvent::Heard => self.on_heard(conn, cx),
        }
    }

    /// SESS-05 for a client that is alive but not read: it takes output. Nothing else comes of it.
    fn on_heard(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if let Some(Conn { phase: ConnPhase::Open { session, timeout_ms }, queue, .. }) =
            self.conns.get(&conn)
            && !queue.ends()
            && self.serves()
        {
            let (session, timeout_ms) = (*session, *timeout_ms);
            // One that is closing, or gone, stays so.
            let _live = self.touch(session, timeout_ms, cx);
        }
    }

    /// Carries out the handshake of a held connection (HS rows).
    fn connect(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::AwaitLeader(request), .. }) = self.conns.get(&conn)
        else {
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
        if cx.config.sessions.local {
            // HS-07: nobody else has to know.
            cx.mark(Mark::SessionNew);
            cx.mark(Mark::SessionLocal);
            let timeout_ms = cx.config.negotiate(request.timeout_ms);
            let known = self.replica.sessions();
            let session = self.local.create(timeout_ms, known, cx);
            return self.open(conn, session, timeout_ms, request.read_only, cx);
        }
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
                    cx.tell(link, FromLearner::CreateSession { timeout_ms, origin });
                }
            }
            Role::Leading(leader) => {
                let effect = leader.create_session(timeout_ms, origin, &mut self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
        }
    }

    /// HS-09, HS-10. An older connection of the session is closed once the password is found to be right.
    fn resume_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        let session = request.session;
        // ZooKeeper closes an older connection first; so anybody could throw anybody out, knowing no password.
        if !self.replica.is_password(session, &request.password) {
            return self.refuse_session(conn, request.read_only, cx);
        }
        if let Some(older) = self.by_session.get(&session).copied() {
            cx.mark(Mark::SessionTakenOver);
            self.close(older, cx);
        }
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        if self.local.is_own(session) {
            self.local.reattach(session, timeout_ms, cx.now.mono);
            return self.resume_local_session(conn, request, cx);
        }
        // Without room the connection stays held, for the next leader.
        if !self.ensure_room(cx) {
            return;
        }
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves connects"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.tell(link, FromLearner::Revalidate { conn, session, timeout_ms });
                    // What an older connection was granted must not come to the leader behind this.
                    follower.touch(session, timeout_ms);
                }
                self.revalidate(conn, request);
            }
            Role::Leading(leader) => {
                let origin = Origin::handshake(cx.config.id(), conn);
                match leader.resume_session(session, timeout_ms, origin, &mut self.replica, cx) {
                    Resumption::Dead | Resumption::Known => {
                        // Another leader may have begun it, or moved it, by now: who asks is told nothing before a quorum
                        // has confirmed that there is none.
                        self.revalidate(conn, request);
                        self.sync(conn, Origin::HANDSHAKE, cx);
                    }
                    Resumption::Moves(_) | Resumption::Closing => {
                        self.revalidate(conn, request);
                    }
                }
            }
        }
    }

    /// Nobody else has to allow it. But writes of an older connection may be on their way to the leader, and none of them
    /// must be done after this one is taken up (SESS-09): the leader's answer comes behind them.
    fn resume_local_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        let barrier = match &self.role {
            Role::Following(follower) => follower.serving(),
            Role::Looking(_) | Role::Leading(_) => None,
        };
        let Some(link) = barrier else {
            return self.reopen_session(conn, &request, cx);
        };
        cx.tell(link, FromLearner::Sync { conn, request: Origin::HANDSHAKE });
        self.revalidate(conn, request);
    }

    /// The leader, confirmed by a quorum, has seen the handshake. Of a local session: what an older connection had asked it
    /// for has arrived there. Of any other one: what is known of it here is true.
    pub(super) fn on_resumption_synced(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::Revalidating(request), .. }) = self.conns.get(&conn)
        else {
            return;
        };
        let request = request.clone();
        let (session, sessions) = (request.session, self.replica.sessions());
        if self.local.is_own(session) || sessions.owner(session) == Some(cx.config.id()) {
            self.reopen_session(conn, &request, cx);
        } else if sessions.timeout_ms(session).is_none() {
            self.refuse_session(conn, request.read_only, cx);
        } else {
            // It has gone on to yet another server meanwhile.
            self.close(conn, cx);
        }
    }

    fn reopen_session(&mut self, conn: ConnId, request: &ConnectRequest, cx: &mut Cx<'_>) {
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        cx.mark(Mark::SessionReattached);
        self.open(conn, request.session, timeout_ms, request.read_only, cx);
    }

    /// The connection waits for the leader's word on its session, or for a transaction.
    fn revalidate(&mut self, conn: ConnId, request: ConnectRequest) {
        self.by_session.insert(request.session, conn);
        self.set_phase(conn, ConnPhase::Revalidating(request));
    }

    pub(super) fn refuse_session(
        &mut self,
        conn: ConnId,
        read_only: Option<bool>,
        cx: &mut Cx<'_>,
    ) {
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
            password: self.replica.password(session),
            read_only: read_only.map(|_| false),
        };
        cx.send(conn, ClientCommand::Connected(response));
        self.attach(conn, session, cx);
        self.set_phase(conn, ConnPhase::Open { session, timeout_ms });
        self.touch(session, timeout_ms, cx);
        self.resume(conn, |_| false, cx);
    }

    /// A session has ended: its connection is closed, and whoever wanted to go on with it hears that it is too late.
    pub(super) fn end_session(&mut self, session: SessionId, cx: &mut Cx<'_>) {
        let Some(conn) = self.by_session.get(&session).copied() else {
            return;
        };
        match self.conns.get(&conn).map(|conn| &conn.phase) {
            Some(ConnPhase::Revalidating(request)) => {
                let read_only = request.read_only;
                self.refuse_session(conn, read_only, cx);
            }
            Some(
                ConnPhase::AwaitLeader(_)
                | ConnPhase::Creating(_)
                | ConnPhase::Created { .. }
                | ConnPhase::Open { .. },
            )
            | None => self.close(conn, cx),
        }
    }

    /// A session has gone on to another server. Whoever asks for it here may have come later, and waits on.
    pub(super) fn leave_session(&mut self, session: SessionId, cx: &mut Cx<'_>) {
        let Some(conn) = self.by_session.get(&session).copied() else {
            return;
        };
        let asks = |conn: &Conn| matches!(conn.phase, ConnPhase::Revalidating(_));
        if !self.conns.get(&conn).is_some_and(asks) {
            self.close(conn, cx);
        }
    }

    /// The session of a connection exists, and is this server's: the handshake can be answered, once clients are served.
    pub(super) fn on_session_here(&mut self, conn: ConnId, session: SessionId, cx: &mut Cx<'_>) {
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

    /// Service has begun: whoever was held goes on. A write that the leader has in its log is answered when it is
    /// applied; one that it does not have is lost, and is asked for again.
    pub(super) fn resume_clients(&mut self, cx: &mut Cx<'_>) {
        self.timers.set(Timer::AwaitLeader, None);
        if self.local.resume(&self.replica.unapplied_upgrades(), cx.now.mono) {
            cx.mark(Mark::UpgradeLost);
        }
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
                Some(ConnPhase::AwaitLeader(_)) => self.connect(conn, cx),
                Some(ConnPhase::Creating(request) | ConnPhase::Revalidating(request)) => {
                    let request = request.clone();
                    if self.by_session.get(&request.session) == Some(&conn) {
                        self.by_session.remove(&request.session);
                    }
                    self.set_phase(conn, ConnPhase::AwaitLeader(request));
                    self.connect(conn, cx);
                }
                Some(ConnPhase::Created { session, timeout_ms, read_only }) => {
                    let (session, timeout_ms, read_only) = (*session, *timeout_ms, *read_only);
                    self.open(conn, session, timeout_ms, read_only, cx);
                }
                Some(ConnPhase::Open { session, timeout_ms }) => {
                    let (session, timeout_ms) = (*session, *timeout_ms);
                    if waits {
                        // The leader may be the old one, and has not heard what this server has heard meanwhile.
                        self.touch(session, timeout_ms, cx);
                    }
                    let server = cx.config.id();
                    let is_found = |request| found.contains(&Origin { server, conn, request });
                    self.resume(conn, is_found, cx);
                }
            }
        }
    }

    /// The sessions that clients are connected here for, with their timeouts, ms.
    pub(super) fn sessions_here(&self, cx: &Cx<'_>) -> Vec<(SessionId, u32)> {
        let timeout_ms = |conn: &ConnId| match &self.conns.get(conn)?.phase {
            ConnPhase::Created { timeout_ms, .. } | ConnPhase::Open { timeout_ms, .. } => {
                Some(*timeout_ms)
            }
            ConnPhase::AwaitLeader(request)
            | ConnPhase::Creating(request)
            | ConnPhase::Revalidating(request) => Some(cx.config.negotiate(request.timeout_ms)),
        };
        self.by_session.iter().filter_map(|(id, conn)| Some((*id, timeout_ms(conn)?))).collect()
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
            cx.mark(Mark::SessionsStalled);
            return broadcast.tracker.touch_all(now);
        }
        // Where the epoch ends within the loop, the rest is not lost: the next leader tracks every session anew.
        for (session, notice) in broadcast.tracker.expire(now) {
            if !self.ensure_room(cx) {
                return;
            }
            if let Role::Leading(leader) = &mut self.role {
                cx.mark(Mark::SessionExpired);
                cx.out.notices.push(notice);
                leader.propose_expiry(session, &mut self.replica, cx);
            }
        }
    }

    /// Those whose deadline has come and that only this server knows end here and now: they own nothing.
    pub(super) fn expire_local_sessions(&mut self, deadline: Instant, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        if self.pressure() == Pressure::PauseClients || !self.serves() {
            return;
        }
        if now.since(deadline) > cx.config.tick() {
            return self.local.touch_all(now);
        }
        for (session, mut notice) in self.local.expire(now) {
            cx.mark(Mark::SessionExpired);
            if let Notice::SessionExpires { server, .. } = &mut notice {
                *server = Some(cx.config.id());
            }
            cx.out.notices.push(notice);
            self.note_expired(session, cx);
            self.end_session(session, cx);
        }
    }

    /// The client of a session that nothing was heard of may be connected here: its address is worth a line.
    pub(super) fn note_expired(&self, session: SessionId, cx: &mut Cx<'_>) {
        if let Some(conn) = self.by_session.get(&session).copied() {
            cx.out.notices.push(Notice::SessionExpired { session, conn });
        }
    }

    /// Does a leader have a zxid to give? An epoch that is used up ends here. A follower leaves that to its leader.
    pub(super) fn ensure_room(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Role::Leading(leader) = &mut self.role
            && leader.broadcast().is_none_or(|broadcast| !broadcast.has_room(cx))
        {
            cx.mark(Mark::EpochUsedUp);
            self.look(None, LinkCloseReason::Looks(StepDownReason::Epoch), cx);
        }
        self.serves()
    }

    /// Closes a connection; what the client sends from now on is ignored.
    pub(super) fn close(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        cx.send(conn, ClientCommand::Close);
        self.drop_conn(conn);
    }

    /// Forgets a connection. Its session lives on.
    pub(super) fn drop_conn(&mut self, conn: ConnId) {
        let Some(Conn { phase, .. }) = self.conns.remove(&conn) else {
            return;
        };
        self.replica.watches.drop_conn(conn);
        if let ConnPhase::Created { session, .. }
        | ConnPhase::Revalidating(ConnectRequest { session, .. })
        | ConnPhase::Open { session, .. } = phase
            && self.by_session.get(&session) == Some(&conn)
        {
            self.by_session.remove(&session);
        }
    }

    /// Sessions that have a connection here which is not known as theirs, and the other way round.
    pub(super) fn strays(&self) -> usize {
        let session = |conn: &Conn| match &conn.phase {
            ConnPhase::AwaitLeader(_) | ConnPhase::Creating(_) => None,
            ConnPhase::Revalidating(request) => Some(request.session),
            ConnPhase::Created { session, .. } | ConnPhase::Open { session, .. } => Some(*session),
        };
        let nameless = self.conns.iter().filter(|(id, conn)| {
            session(conn).is_some_and(|session| self.by_session.get(&session) != Some(id))
        });
        let names = self.by_session.iter();
        let empty = names.filter(|(id, conn)| self.conns.get(conn).and_then(session) != Some(**id));
        nameless.count() + empty.count()
    }

    pub(super) fn start_hold_timer(&mut self, cx: &mut Cx<'_>) {
        if self.timers.get(Timer::AwaitLeader).is_none() {
            let deadline = cx.now.mono.after(cx.config.limits.hold);
            self.timers.set(Timer::AwaitLeader, Some(deadline));
        }
    }

    pub(super) fn set_phase(&mut self, conn: ConnId, phase: ConnPhase) {
        self.conns.get_mut(&conn).expect("a connection that is being served").phase = phase;
    }

    pub(super) fn queue(&mut self, conn: ConnId) -> &mut Queue {
        &mut self.conns.get_mut(&conn).expect("a connection that is being served").queue
    }
}
