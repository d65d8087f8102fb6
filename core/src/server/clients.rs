//! Clients meet the role: what a connection needs goes to the leader, and what the leader has
//! decided comes back.
//!
//! Owns the order of these steps. Must not know the phases of a connection. Changes the role in one
//! case only: it resigns when the epoch has no zxid left.

use super::Server;
use super::role::Role;
use crate::cx::Cx;
use crate::front::{FrontEffect, PendingRequest, Resubmit, Resumed};
use crate::ids::{ConnId, Instant, SessionId};
use crate::io::{ClientEvent, Mark, Pressure};
use crate::measure::{Measure, measure_writes};
use crate::replica::Applied;
use crate::txn::Origin;
use crate::wire::{ConnectRequest, RequestFrame};
use crate::zab::Write;

impl Server {
    pub(super) fn on_client(&mut self, conn: ConnId, event: ClientEvent, cx: &mut Cx<'_>) {
        match event {
            ClientEvent::Opened(request, ids) => {
                self.front.accept(conn, request, cx.schemes.opened(ids));
                if self.turns_clients_away(cx) {
                    self.turn_clients_away(cx);
                } else if self.serves_any() {
                    let effect = self.front.connect(conn, &mut self.replica, cx);
                    self.apply_front_effect(effect, cx);
                } else {
                    cx.mark(Mark::ConnHeld);
                    self.front.await_leader(cx);
                }
            }
            ClientEvent::Request(frame) => self.on_request(conn, frame, cx),
            ClientEvent::Closed => self.front.remove(conn, &mut self.replica),
            ClientEvent::Heartbeat => self.on_heartbeat(conn, cx),
        }
    }

    /// SESS-05: while reads are paused, draining output counts as a heartbeat. It has no other
    /// effect.
    fn on_heartbeat(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if let Some((session, timeout_ms)) = self.front.session_of(conn)
            && !self.front.is_ending_local(conn)
            && self.serves_any()
        {
            // A session that is closing or gone stays so.
            let _live = self.touch(session, timeout_ms, cx);
        }
    }

    fn on_request(&mut self, conn: ConnId, frame: RequestFrame, cx: &mut Cx<'_>) {
        if let Some(pending) = self.front.receive(conn, frame, &mut self.replica, cx) {
            self.submit(conn, pending, cx);
        }
    }

    /// Processes a request of a session; it carries the identities that the client had when it was
    /// read.
    fn submit(&mut self, conn: ConnId, pending: PendingRequest, cx: &mut Cx<'_>) {
        let Some((session, timeout_ms)) = self.front.session_of(conn) else {
            // An earlier request has closed the connection.
            return;
        };
        if !self.serves_any() {
            self.front.await_leader(cx);
            return self.front.hold(conn, pending);
        }
        if self.front.is_ending_local(conn) || !self.touch(session, timeout_ms, cx) {
            // SESS-08: no reply; the connection closes when the session's end is committed. If that
            // transaction is lost with this leader, the session lives on, and the next leader
            // processes the request.
            cx.mark(Mark::RequestOnClosingSession);
            return self.front.hold(conn, pending);
        }
        if self.front.is_read_only() && pending.frame.request.needs_leader() {
            return self.front.refuse_request(conn, &pending, &self.replica, cx);
        }
        if self.front.is_proposed(session, &pending.frame.request) && !self.ensure_room(cx) {
            return self.front.hold(conn, pending);
        }
        let effect = self.front.dispatch(conn, session, pending, &mut self.replica, cx);
        self.apply_front_effect(effect, cx);
    }

    /// Are clients served, be they only read-only ones?
    pub(super) fn serves_any(&self) -> bool {
        self.serves() || self.front.is_read_only()
    }

    /// Does this server lead others, and serve no clients meanwhile (CONF-39)?
    fn turns_clients_away(&self, cx: &Cx<'_>) -> bool {
        matches!(self.role, Role::Leading(_)) && !cx.config.leader_serves && !cx.voters.alone()
    }

    fn turn_clients_away(&mut self, cx: &mut Cx<'_>) {
        cx.mark(Mark::LeaderServesNobody);
        self.front.close_all(&mut self.replica, cx);
    }

    /// When this server begins to serve read-only clients, unless it finds a leader before (RO-01).
    /// A server that has logged nothing, or has lost what it had, has no state to show.
    pub(super) fn read_only_from(&mut self, now: Instant) -> Option<Instant> {
        let grace = self.config.read_only_grace()?;
        let Role::Looking(looking) = &mut self.role else { return None };
        let from = looking.read_only_from(now, grace);
        let has_state = self.replica.ensemble_id() != 0 && !self.replica.state().damaged;
        (has_state && !self.front.is_read_only()).then_some(from)
    }

    /// The election takes long: serves the clients that accept a read-only server.
    pub(super) fn begin_read_only(&mut self, cx: &mut Cx<'_>) {
        self.front.begin_read_only(&mut self.replica, cx);
        for conn in self.front.conns() {
            let effect = self.front.connect(conn, &mut self.replica, cx);
            self.apply_front_effect(effect, cx);
        }
    }

    /// Does for a connection what only the role can do.
    pub(super) fn apply_front_effect(&mut self, effect: FrontEffect, cx: &mut Cx<'_>) {
        match effect {
            FrontEffect::None => {}
            FrontEffect::CreateSession(conn, request) => self.create_session(conn, request, cx),
            FrontEffect::ResumeSession(conn, request) => self.resume_session(conn, request, cx),
            FrontEffect::ResumeLocalSession(conn, request) => {
                self.resume_local_session(conn, request, cx)
            }
            FrontEffect::Open { conn, session, timeout_ms } => {
                self.touch(session, timeout_ms, cx);
                self.resume(conn, |_| false, cx);
            }
            FrontEffect::Propose { session, session_kind, origin, pending } => {
                let PendingRequest { frame: RequestFrame { request, .. }, ids } = pending;
                let write = Write { session, origin, ids, request, session_kind };
                let effect = self.role.propose(write, &mut self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
            FrontEffect::Sync(conn, request) => self.sync(conn, request, cx),
        }
    }

    fn create_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        // Without a free zxid, the handshake waits for the next leader.
        if !self.ensure_room(cx) {
            return;
        }
        let timeout_ms = cx.config.negotiate(request.timeout_ms);
        cx.mark(Mark::SessionNew);
        self.front.await_session(conn, request);
        let origin = Origin::handshake(cx.config.id(), conn);
        let effect = self.role.create_session(timeout_ms, origin, &mut self.replica, cx);
        self.apply_leader_effect(effect, cx);
    }

    fn resume_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        // Without a free zxid, the handshake waits for the next leader.
        if !self.ensure_room(cx) {
            return;
        }
        let (session, timeout_ms) = (request.session, cx.config.negotiate(request.timeout_ms));
        let syncs = self.role.resume_session(session, timeout_ms, conn, &mut self.replica, cx);
        self.front.revalidate(conn, request);
        if syncs {
            self.sync(conn, Origin::HANDSHAKE, cx);
        }
    }

    /// No other server has to allow it. But writes of an older connection may be on their way to
    /// the leader, and none of them may be executed after this connection is served (SESS-09): the
    /// leader answers this sync after it has received them.
    fn resume_local_session(&mut self, conn: ConnId, request: ConnectRequest, cx: &mut Cx<'_>) {
        match &self.role {
            Role::Following(_) => {
                self.front.revalidate(conn, request);
                self.sync(conn, Origin::HANDSHAKE, cx);
            }
            Role::Looking(_) | Role::Leading(_) => {
                let effect = self.front.reopen_session(conn, &request, &mut self.replica, cx);
                self.apply_front_effect(effect, cx);
            }
        }
    }

    /// Renews the session; `false` if it is closing or gone, as far as this server knows.
    pub(super) fn touch(&mut self, session: SessionId, timeout_ms: u32, cx: &Cx<'_>) -> bool {
        self.front.touch_local(session, cx.now.mono) || self.role.touch(session, timeout_ms, cx)
    }

    /// Has a quorum confirm the leader; the result comes to `Server::await_applied`.
    fn sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        let effect = self.role.sync(conn, request, cx);
        self.apply_leader_effect(effect, cx);
    }

    /// Everything is applied that was committed when a quorum confirmed the sync.
    pub(super) fn complete_sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        if request == Origin::HANDSHAKE {
            let effect = self.front.on_resumption_synced(conn, &mut self.replica, cx);
            self.apply_front_effect(effect, cx);
        } else {
            self.front.confirm_sync(conn, request, &mut self.replica, cx);
        }
    }

    /// A transaction has been applied: clients get its events and its reply.
    pub(super) fn on_applied(&mut self, applied: Applied, cx: &mut Cx<'_>) {
        let serves = self.serves();
        if serves {
            // What is applied before is history, however long.
            measure_applied(&applied, &mut cx.out.measures);
        }
        let effect = self.front.on_applied(applied, serves, &mut self.replica, cx);
        self.apply_front_effect(effect, cx);
    }

    /// Service has begun: all connections continue. A pending write that is in the log is answered
    /// when it is applied; one that is not in the log is lost, and is submitted again.
    pub(super) fn resume_clients(&mut self, cx: &mut Cx<'_>) {
        self.front.begin_service(&self.replica, cx);
        if self.turns_clients_away(cx) {
            return self.turn_clients_away(cx);
        }
        let server = cx.config.id();
        let found = self.replica.unapplied_origins(server);
        if !found.is_empty() {
            cx.mark(Mark::WriteFound);
        }
        for conn in self.front.conns() {
            if !self.serves() {
                // The connections so far have used up the epoch: the rest waits for the next one.
                return;
            }
            let Some((session, timeout_ms)) = self.front.session_of(conn) else {
                let effect = self.front.resume_handshake(conn, &found, &mut self.replica, cx);
                self.apply_front_effect(effect, cx);
                continue;
            };
            if self.front.has_queued(conn) {
                // The leader may be the same as before, and lacks the heartbeats that this server
                // has received meanwhile.
                self.touch(session, timeout_ms, cx);
            }
            let is_found = |request| found.contains(&Origin { server, conn, request });
            self.resume(conn, is_found, cx);
        }
    }

    /// Continues the requests of a connection when it is served again, or for the first time. The
    /// writes in `found` are in the log already.
    fn resume(&mut self, conn: ConnId, found: impl Fn(u64) -> bool, cx: &mut Cx<'_>) {
        let Some(Resumed { syncs, resubmit, .. }) = self.front.resume(conn, found, cx) else {
            return;
        };
        for request in syncs {
            if self.serves() {
                self.sync(conn, request, cx);
            }
        }
        self.front.serve_reads(conn, &mut self.replica, cx);
        for resubmit in resubmit {
            match resubmit {
                Resubmit::PendingRequest(pending) => self.submit(conn, pending, cx),
                Resubmit::BeforeSession(frame) => self.on_request(conn, frame, cx),
            }
        }
    }

    /// A session's deadline has passed (SESS-06). While clients are not read, a client that
    /// sends nothing may still be alive.
    pub(super) fn expire_sessions(&mut self, deadline: Instant, cx: &mut Cx<'_>) {
        if self.pressure() == Pressure::PauseClients {
            return;
        }
        if let Role::Leading(leader) = &mut self.role
            && !leader.hands_over()
        {
            let effect = leader.expire_sessions(deadline, &mut self.replica, cx);
            self.apply_leader_effect(effect, cx);
        }
    }

    /// The same for sessions that only this server knows.
    pub(super) fn expire_local_sessions(&mut self, deadline: Instant, cx: &mut Cx<'_>) {
        if self.pressure() != Pressure::PauseClients && self.serves_any() {
            self.front.expire_local_sessions(deadline, &mut self.replica, cx);
        }
    }

    /// While clients are not read, their heartbeats do not arrive. A long pause renews all
    /// sessions, because clients could not reconnect either.
    pub(super) fn note_pressure(&mut self, cx: &mut Cx<'_>) {
        let paused = self.pressure() == Pressure::PauseClients;
        if !self.front.note_pause(paused, cx) {
            return;
        }
        if let Role::Leading(leader) = &mut self.role
            && let Some(proposer) = leader.proposer()
        {
            proposer.tracker.touch_all(cx.now.mono);
        }
        for (session, timeout_ms) in self.front.sessions(cx.config) {
            self.touch(session, timeout_ms, cx);
        }
    }

    /// Checks that a leader may propose. It is about to resign if the epoch is used up, or if it
    /// hands over. A follower leaves this to its leader. Returns whether writes are still taken.
    fn ensure_room(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Role::Leading(leader) = &mut self.role
            && !leader.hands_over()
            && leader.proposer().is_none_or(|proposer| !proposer.has_room(cx))
        {
            let effect = leader.end_epoch(cx);
            self.apply_leader_effect(effect, cx);
        }
        if let Role::Leading(leader) = &self.role
            && leader.hands_over()
        {
            cx.mark(Mark::HandOverHeld);
            return false;
        }
        self.serves()
    }
}

fn measure_applied(applied: &Applied, measures: &mut Vec<Measure>) {
    let Applied { txn, effects } = applied;
    measures.push(Measure::Applied(txn.time));
    measure_writes(&txn.op, measures);
    measures.extend(effects.fired.iter().map(|of| Measure::Fired(of.event, of.conns.len())));
    if effects.ephemerals_deleted > 0 {
        measures.push(Measure::EphemeralsDeleted(effects.ephemerals_deleted));
    }
}
