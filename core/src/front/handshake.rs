//! Handshakes: from the connect request of a client to an open session (the HS rows).
//!
//! Owns the phases of a connection up to `Open`. Must not decide what the leader decides: whether a
//! session exists, and where its client is connected.

use std::collections::BTreeSet;

use super::queue::Queue;
use super::{Conn, ConnPhase, Front, FrontEffect};
use crate::auth::Identities;
use crate::cx::Cx;
use crate::ids::{ConnId, SessionId};
use crate::io::{ClientCommand, Mark};
use crate::replica::Replica;
use crate::txn::Origin;
use crate::wire::{ConnectRequest, ConnectResponse};

impl Front {
    /// A client has connected and sent its connect request.
    pub(crate) fn accept(&mut self, conn: ConnId, request: ConnectRequest, known: Identities) {
        let (phase, queue) = (ConnPhase::AwaitLeader(request), Queue::default());
        let before = self.conns.insert(conn, Conn { phase, queue, known, is_ready: false });
        assert!(before.is_none(), "{conn} was allocated twice");
    }

    /// Processes the handshake of a connection that waits for a leader.
    pub(crate) fn connect(
        &mut self,
        conn: ConnId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        let Some(Conn { phase: ConnPhase::AwaitLeader(request), .. }) = self.conns.get(&conn)
        else {
            return FrontEffect::None;
        };
        let request = request.clone();
        if self.read_only && !self.may_serve_read_only(&request) {
            cx.mark(Mark::ReadOnlyRefused);
            self.close(conn, replica, cx);
            return FrontEffect::None;
        }
        if request.last_zxid_seen > replica.log().applied() {
            // HS-05: another server has transactions that this client has seen and this server
            // lacks.
            cx.mark(Mark::ClientAhead);
            self.close(conn, replica, cx);
            return FrontEffect::None;
        }
        if request.session != SessionId(0) {
            return self.claim_session(conn, request, replica, cx);
        }
        if self.read_only && !cx.config.sessions.local {
            self.refuse_to_create(conn, replica, cx);
            return FrontEffect::None;
        }
        if !cx.config.sessions.local {
            return FrontEffect::CreateSession(conn, request);
        }
        // HS-07: no other server has to know the session.
        cx.mark(Mark::SessionNew);
        cx.mark(Mark::SessionLocal);
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        let session = self.local.create(timeout_ms, replica.sessions(), cx);
        self.open(conn, session, timeout_ms, request.read_only, replica, cx)
    }

    /// The transaction that creates the session of this connection is under way.
    pub(crate) fn await_session(&mut self, conn: ConnId, request: ConnectRequest) {
        self.set_phase(conn, ConnPhase::Creating(request));
    }

    /// HS-09, HS-10. An older connection of the session is closed once the password has matched.
    fn claim_session(
        &mut self,
        conn: ConnId,
        request: ConnectRequest,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        let session = request.session;
        // ZooKeeper closes the older connection first, so a client without the password can
        // disconnect the owner.
        if !replica.is_password(session, &request.password) {
            self.refuse_session(conn, request.read_only, replica, cx);
            return FrontEffect::None;
        }
        if let Some(older) = self.by_session.get(&session).copied() {
            cx.mark(Mark::SessionTakenOver);
            self.close(older, replica, cx);
        }
        if self.local.is_own(session) {
            let timeout_ms = cx.config.negotiate(request.timeout_ms);
            self.local.reattach(session, timeout_ms, cx.now.mono);
            return FrontEffect::ResumeLocalSession(conn, request);
        }
        FrontEffect::ResumeSession(conn, request)
    }

    /// The connection waits for the leader's answer about its session, or for a transaction.
    pub(crate) fn revalidate(&mut self, conn: ConnId, request: ConnectRequest) {
        self.by_session.insert(request.session, conn);
        self.set_phase(conn, ConnPhase::Revalidating(request));
    }

    /// A quorum has confirmed the leader since the handshake arrived. For a local session, the
    /// leader has received all requests of an older connection. For any other session, the session
    /// table of this server is up to date.
    pub(crate) fn on_resumption_synced(
        &mut self,
        conn: ConnId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        let Some(Conn { phase: ConnPhase::Revalidating(request), .. }) = self.conns.get(&conn)
        else {
            return FrontEffect::None;
        };
        let request = request.clone();
        let (session, sessions) = (request.session, replica.sessions());
        if self.local.is_own(session) || sessions.owner(session) == Some(cx.config.id()) {
            return self.reopen_session(conn, &request, replica, cx);
        }
        if sessions.timeout_ms(session).is_none() {
            self.refuse_session(conn, request.read_only, replica, cx);
        } else {
            // The session has moved to yet another server meanwhile.
            self.close(conn, replica, cx);
        }
        FrontEffect::None
    }

    /// The session is alive and was connected to this server before.
    pub(crate) fn reopen_session(
        &mut self,
        conn: ConnId,
        request: &ConnectRequest,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        cx.mark(Mark::SessionReattached);
        self.open(conn, request.session, timeout_ms, request.read_only, replica, cx)
    }

    pub(super) fn refuse_session(
        &mut self,
        conn: ConnId,
        read_only: Option<bool>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        cx.mark(Mark::SessionRefused);
        let read_only = read_only.map(|_| self.read_only);
        let refused = ConnectResponse { read_only, ..ConnectResponse::refused(read_only) };
        cx.send(conn, ClientCommand::Connected(refused));
        self.close(conn, replica, cx);
    }

    /// Completes the handshake.
    fn open(
        &mut self,
        conn: ConnId,
        session: SessionId,
        timeout_ms: u32,
        read_only: Option<bool>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        if self.read_only {
            cx.mark(Mark::ReadOnlyServed);
        }
        let response = ConnectResponse {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session,
            password: replica.password(session),
            read_only: read_only.map(|_| self.read_only),
        };
        cx.send(conn, ClientCommand::Connected(response));
        self.attach(conn, session, replica, cx);
        self.set_phase(conn, ConnPhase::Open { session, timeout_ms });
        FrontEffect::Open { conn, session, timeout_ms }
    }

    /// The session of a connection exists and belongs to this server: answers the handshake, once
    /// clients are served.
    pub(super) fn on_session_here(
        &mut self,
        conn: ConnId,
        session: SessionId,
        serves: bool,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        let Some(Conn {
            phase: ConnPhase::Creating(request) | ConnPhase::Revalidating(request),
            ..
        }) = self.conns.get(&conn)
        else {
            return FrontEffect::None;
        };
        let (timeout_ms, read_only) = (cx.config.negotiate(request.timeout_ms), request.read_only);
        self.attach(conn, session, replica, cx);
        if serves {
            return self.open(conn, session, timeout_ms, read_only, replica, cx);
        }
        self.set_phase(conn, ConnPhase::Created { session, timeout_ms, read_only });
        FrontEffect::None
    }

    /// Attaches the session to this connection and closes its other one: concurrent handshakes of
    /// one session succeed one after the other.
    fn attach(&mut self, conn: ConnId, session: SessionId, replica: &mut Replica, cx: &mut Cx<'_>) {
        if let Some(older) = self.by_session.insert(session, conn).filter(|older| *older != conn) {
            cx.mark(Mark::SessionTakenOver);
            self.close(older, replica, cx);
        }
    }

    /// Service has begun: continues a handshake, unless the transaction that it waits for is in the
    /// log (`found`).
    pub(crate) fn resume_handshake(
        &mut self,
        conn: ConnId,
        found: &BTreeSet<Origin>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FrontEffect {
        match self.conns.get(&conn).map(|conn| &conn.phase) {
            Some(ConnPhase::Creating(_) | ConnPhase::Revalidating(_))
                if found.contains(&Origin::handshake(cx.config.id(), conn)) =>
            {
                FrontEffect::None
            }
            None | Some(ConnPhase::Open { .. }) => FrontEffect::None,
            Some(ConnPhase::AwaitLeader(_)) => self.connect(conn, replica, cx),
            Some(ConnPhase::Creating(request) | ConnPhase::Revalidating(request)) => {
                let request = request.clone();
                if self.by_session.get(&request.session) == Some(&conn) {
                    self.by_session.remove(&request.session);
                }
                self.set_phase(conn, ConnPhase::AwaitLeader(request));
                self.connect(conn, replica, cx)
            }
            Some(ConnPhase::Created { session, timeout_ms, read_only }) => {
                let (session, timeout_ms, read_only) = (*session, *timeout_ms, *read_only);
                self.open(conn, session, timeout_ms, read_only, replica, cx)
            }
        }
    }
}
