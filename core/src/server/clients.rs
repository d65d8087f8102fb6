//! Client connections and their sessions: handshakes, connections that wait for a leader, expiry
//! (Java `ZooKeeperServer`, `ServerCnxn`).
//!
//! Owns the state of a connection from handshake to close. Requests belong to `requests`. Must not
//! change the role.

use super::{Role, Server};
use crate::auth::Identities;
use crate::cx::Cx;
use crate::front::queue::Queue;
use crate::ids::{ConnId, Instant, SessionId};
use crate::io::{ClientCommand, ClientEvent, Mark, Pressure};
use crate::notice::Notice;
use crate::peer::{FromLearner, LinkCloseReason, StepDownReason};
use crate::timer::Timer;
use crate::txn::Origin;
use crate::wire::{ConnectRequest, ConnectResponse};
use crate::zab::Resumption;

/// A client connection.
///
/// ```text
/// AwaitLeader ── new session ──► Creating ─── committed ───► Created ──served──► Open
///  │ ▲                              │                           ▲                  ▲
///  │ └──────── leader lost ─────────┤                           │                  │
///  │                                │                           │                  │
///  └───── known session ─────► Revalidating ── move committed ──┘                  │
///                                   └──────────── live, and here before ───────────┘
/// ```
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) phase: ConnPhase,
    pub(super) queue: Queue,
    /// The identities of the client; they belong to the connection and are only added to (ACL-17).
    pub(super) known: Identities,
    /// Is the connection in the queue of those with reads to serve?
    pub(super) is_ready: bool,
}

#[derive(Debug)]
pub(super) enum ConnPhase {
    /// The handshake waits for a leader.
    AwaitLeader(ConnectRequest),
    /// The transaction that creates the session is under way; requests wait for it (HS-07).
    Creating(ConnectRequest),
    /// The session exists; the connection opens once this server serves clients.
    Created { session: SessionId, timeout_ms: u32, read_only: Option<bool> },
    /// The leader checks whether the session is alive. If the session belongs to another server, a
    /// transaction moves it to this one first.
    Revalidating(ConnectRequest),
    /// The connection serves this session, with the negotiated timeout.
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

    /// SESS-05: while reads are paused, draining output counts as a heartbeat. It has no other
    /// effect.
    fn on_heard(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if let Some(Conn { phase: ConnPhase::Open { session, timeout_ms }, queue, .. }) =
            self.conns.get(&conn)
            && !queue.ends()
            && self.serves()
        {
            let (session, timeout_ms) = (*session, *timeout_ms);
            // A session that is closing or gone stays so.
            let _live = self.touch(session, timeout_ms, cx);
        }
    }

    /// Processes the handshake of a connection that waits for a leader (HS rows).
    fn connect(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        let Some(Conn { phase: ConnPhase::AwaitLeader(request), .. }) = self.conns.get(&conn)
        else {
            return;
        };
        let request = request.clone();
        if request.last_zxid_seen > self.replica.log().applied() {
            // HS-05: another server has transactions that this client has seen and this server
            // lacks.
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
            // HS-07: no other server has to know the session.
            cx.mark(Mark::SessionNew);
            cx.mark(Mark::SessionLocal);
            let timeout_ms = cx.config.negotiate(request.timeout_ms);
            let known = self.replica.sessions();
            let session = self.local.create(timeout_ms, known, cx);
            return self.open(conn, session, timeout_ms, request.read_only, cx);
        }
        // Without a free zxid, the handshake waits for the next leader.
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

    /// HS-09, HS-10. An older connection of the session is closed once the password has matched.
    fn resume_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        let session = request.session;
        // ZooKeeper closes the older connection first, so a client without the password can
        // disconnect the owner.
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
        // Without a free zxid, the handshake waits for the next leader.
        if !self.ensure_room(cx) {
            return;
        }
        match &mut self.role {
            Role::Looking(_) => unreachable!("only who serves connects"),
            Role::Following(follower) => {
                if let Some(link) = follower.serving() {
                    cx.tell(link, FromLearner::Revalidate { conn, session, timeout_ms });
                    // The timeout of an older connection must not reach the leader after this
                    // message.
                    follower.touch(session, timeout_ms);
                }
                self.revalidate(conn, request);
            }
            Role::Leading(leader) => {
                let origin = Origin::handshake(cx.config.id(), conn);
                match leader.resume_session(session, timeout_ms, origin, &mut self.replica, cx) {
                    Resumption::Dead | Resumption::Known => {
                        // A newer leader may have created or moved the session by now: the client
                        // gets no answer before a quorum has confirmed that there is no newer
                        // leader.
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

    /// No other server has to allow it. But writes of an older connection may be on their way to
    /// the leader, and none of them may be executed after this connection is served (SESS-09): the
    /// leader answers this sync after it has received them.
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

    /// A quorum has confirmed the leader since the handshake arrived. For a local session, the
    /// leader has received all requests of an older connection. For any other session, the session
    /// table of this server is up to date.
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
            // The session has moved to yet another server meanwhile.
            self.close(conn, cx);
        }
    }

    fn reopen_session(&mut self, conn: ConnId, request: &ConnectRequest, cx: &mut Cx<'_>) {
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        cx.mark(Mark::SessionReattached);
        self.open(conn, request.session, timeout_ms, request.read_only, cx);
    }

    /// The connection waits for the leader's answer about its session, or for a transaction.
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

    /// Completes the handshake; the requests queued after it continue.
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

    /// A session has ended: closes its connection, and refuses a handshake that tries to resume it.
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

    /// A session has moved to another server: closes its connection, unless that connection is
    /// still revalidating, because its handshake may be newer than the move.
    pub(super) fn leave_session(&mut self, session: SessionId, cx: &mut Cx<'_>) {
        let Some(conn) = self.by_session.get(&session).copied() else {
            return;
        };
        let asks = |conn: &Conn| matches!(conn.phase, ConnPhase::Revalidating(_));
        if !self.conns.get(&conn).is_some_and(asks) {
            self.close(conn, cx);
        }
    }

    /// The session of a connection exists and belongs to this server: answers the handshake, once
    /// clients are served.
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

    /// Attaches the session to this connection and closes its other one: concurrent handshakes of
    /// one session succeed one after the other.
    fn attach(&mut self, conn: ConnId, session: SessionId, cx: &mut Cx<'_>) {
        if let Some(older) = self.by_session.insert(session, conn).filter(|older| *older != conn) {
            cx.mark(Mark::SessionTakenOver);
            self.close(older, cx);
        }
    }

    /// Service has begun: all connections continue. A pending write that is in the log is answered
    /// when it is applied; one that is not in the log is lost, and is submitted again.
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
                // The connections so far have used up the epoch: the rest waits for the next one.
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
                        // The leader may be the same as before, and lacks the heartbeats that this
                        // server has received meanwhile.
                        self.touch(session, timeout_ms, cx);
                    }
                    let server = cx.config.id();
                    let is_found = |request| found.contains(&Origin { server, conn, request });
                    self.resume(conn, is_found, cx);
                }
            }
        }
    }

    /// The sessions that are connected to this server, with their timeouts in ms.
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

    /// There was no leader for too long: closes all connections, so that clients try other servers
    /// (WIRE-16).
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

    /// Proposes the end of the sessions whose deadline has passed (SESS-06).
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
            // Clients are not read, so the lack of heartbeats does not show that they are gone.
            return;
        }
        if stalled {
            // This server has stalled, so the lack of heartbeats does not show that clients are
            // gone.
            cx.mark(Mark::SessionsStalled);
            return broadcast.tracker.touch_all(now);
        }
        // If the epoch ends within the loop, the rest is not lost: the next leader tracks every
        // session anew.
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

    /// Ends local sessions whose deadline has passed, without a transaction: they own no nodes.
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

    /// If the client of an expired session is connected here, reports the connection: the
    /// operator's log then has the client's address.
    pub(super) fn note_expired(&self, session: SessionId, cx: &mut Cx<'_>) {
        if let Some(conn) = self.by_session.get(&session).copied() {
            cx.out.notices.push(Notice::SessionExpired { session, conn });
        }
    }

    /// Checks that a leader has a zxid left, and resigns if the epoch is used up. A follower leaves
    /// this to its leader. Returns whether clients are still served.
    pub(super) fn ensure_room(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Role::Leading(leader) = &mut self.role
            && leader.broadcast().is_none_or(|broadcast| !broadcast.has_room(cx))
        {
            cx.mark(Mark::EpochUsedUp);
            self.look(None, LinkCloseReason::Looks(StepDownReason::Epoch), cx);
        }
        self.serves()
    }

    /// Closes a connection; later requests of the client are ignored.
    pub(super) fn close(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        cx.send(conn, ClientCommand::Close);
        self.drop_conn(conn);
    }

    /// Removes a connection. Its session lives on.
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

    /// Counts the contradictions between the phases of connections and `by_session`.
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
