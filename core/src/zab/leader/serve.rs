//! What a leader does once it serves: it proposes, counts acknowledgements, and answers learners.
//!
//! Owns the way of a write, a session and a sync through the leader, and the answers to pings. Must
//! not know how an epoch begins: `establish` does.

use super::sync_requests::SyncWaiter;
use super::{Leader, LeaderEffect};
use crate::cx::Cx;
use crate::ids::{ConnId, Instant, LinkId, ServerId, SessionId, Zxid};
use crate::io::Mark;
use crate::notice::Notice;
use crate::peer::{Behind, FromLeader, PeerMisbehaved, SessionKind, StepDownReason};
use crate::replica::{Membership, Replica};
use crate::store::Entry;
use crate::txn::Origin;
use crate::wire::Request;
use crate::zab::propose::{Resumption, Write};

impl Leader {
    /// Proposes a client's write and, if its session is to be upgraded, the upgrade before it. The
    /// caller ensures that one zxid is free.
    pub(crate) fn propose(
        &mut self,
        write: Write,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let Some(proposer) = self.proposer() else { unreachable!("only who serves proposes") };
        let (session, server) = (write.session, write.origin.server);
        if let SessionKind::Upgrading { timeout_ms } = write.session_kind
            && let Some(entry) = proposer.propose_upgrade(session, timeout_ms, server, replica, cx)
        {
            let room = proposer.has_room(cx);
            self.send(&entry, cx);
            if !room {
                // Under the next leader the session is global; the client's server submits the
                // write again.
                return self.end_epoch(cx);
            }
        }
        let reconfigures = matches!(write.request, Request::Reconfigure(_));
        let servers = if reconfigures {
            self.progress(cx.config.id(), cx.members, replica, cx.now.mono)
        } else {
            Vec::new()
        };
        let Some(proposer) = self.proposer() else { unreachable!("only who serves proposes") };
        if let Some(entry) = proposer.propose(write, &servers, replica, cx) {
            self.send(&entry, cx);
        }
        LeaderEffect::None
    }

    /// Puts the configuration of the files into the log, unless there is one. While a learner of an
    /// older release is connected, that waits, because the learner could not read it.
    pub(crate) fn propose_config(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        if self.hands_over() || replica.membership().is_none_or(Membership::is_in_history) {
            return;
        }
        let older = self.learners.values().filter(|learner| learner.older);
        let older: Vec<ServerId> = older.map(|learner| learner.server).collect();
        if !older.is_empty() {
            if !std::mem::replace(&mut self.reported_older, true) {
                cx.out.notices.push(Notice::ConfigHeld { older });
            }
            return;
        }
        let proposer = self.proposer().filter(|proposer| proposer.has_room(cx));
        if let Some(entry) = proposer.and_then(|proposer| proposer.propose_config(replica, cx)) {
            self.send(&entry, cx);
        }
    }

    /// The members have changed: what is acknowledged may suffice now, and this server may have no
    /// vote any more.
    pub(crate) fn on_new_members(&mut self, replica: &Replica, cx: &mut Cx<'_>) -> LeaderEffect {
        let serves = self.serving().is_some();
        for learner in self.learners.values_mut() {
            learner.set_votes(cx.voters.contains(learner.server), replica, cx);
            // An observer may have waited for a commit: a voter need not. (A fork of seed
            // 0x11290b00094c of the swarm at b3ae77f: such a server never served.)
            if serves && learner.may_serve(replica.log()) {
                cx.mark(Mark::LearnerJoined);
                learner.serve(replica, cx);
            }
        }
        if !cx.voters.may_lead(cx.config.id()) {
            // RECONF-11.
            return LeaderEffect::StepDown(StepDownReason::Removed);
        }
        self.commit_agreed(cx)
    }

    /// Proposes the end of an expired session.
    pub(crate) fn expire_sessions(
        &mut self,
        deadline: Instant,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let now = cx.now.mono;
        let Some(proposer) = self.proposer() else {
            return LeaderEffect::None;
        };
        if now.since(deadline) > cx.config.tick() {
            // This server has stalled, so the lack of heartbeats does not show that clients are
            // gone.
            cx.mark(Mark::SessionsStalled);
            proposer.tracker.touch_all(now);
            return LeaderEffect::None;
        }
        let room = proposer.room(cx);
        for (session, notice) in proposer.tracker.expire(now, room) {
            cx.mark(Mark::SessionExpired);
            cx.out.notices.push(notice);
            let Some(proposer) = self.proposer() else { unreachable!("it serves") };
            let entry = proposer.propose_expiry(session, replica, cx);
            self.send(&entry, cx);
        }
        let left = self.proposer().and_then(|proposer| proposer.tracker.next_expiry());
        if left.is_some_and(|deadline| deadline <= now) {
            return self.end_epoch(cx);
        }
        LeaderEffect::None
    }

    /// Proposes the deletion of the next container or TTL node, if one can be deleted now.
    pub(crate) fn check_containers(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        if let Some(entry) =
            self.proposer().and_then(|proposer| proposer.check_containers(replica, cx))
        {
            self.send(&entry, cx);
        }
    }

    /// Proposes a new session for a client of `origin.server`.
    pub(crate) fn create_session(
        &mut self,
        timeout_ms: u32,
        origin: Origin,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        match self.proposer() {
            Some(proposer) if proposer.has_room(cx) => {
                let entry = proposer.propose_session(timeout_ms, origin, replica, cx);
                self.send(&entry, cx);
                LeaderEffect::None
            }
            Some(_) => self.end_epoch(cx),
            // No learner sends this before service begins, so there is nothing to answer.
            None => LeaderEffect::None,
        }
    }

    /// Resumes a session for a client of `origin.server`.
    pub(crate) fn resume_session(
        &mut self,
        session: SessionId,
        timeout_ms: u32,
        origin: Origin,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Resumption {
        let Some(proposer) = self.proposer() else { unreachable!("only who serves resumes") };
        let resumption = proposer.resume_session(session, timeout_ms, origin, replica, cx);
        if let Resumption::Moves(entry) = &resumption {
            self.send(entry, cx);
        }
        resumption
    }

    /// Adds a sync, which completes once a quorum has confirmed this leader, and what was proposed
    /// before it is committed.
    pub(crate) fn sync(&mut self, waiter: SyncWaiter, cx: &mut Cx<'_>) -> LeaderEffect {
        let Some(proposer) = self.proposer() else {
            return LeaderEffect::None;
        };
        if proposer.syncs.push(waiter, proposer.last_proposed) {
            cx.mark(Mark::SyncShared);
            return LeaderEffect::None;
        }
        self.ping(cx);
        self.confirm(cx)
    }

    /// Informs the learners that the history is committed up to `zxid`. An observer that has waited
    /// for that serves from now on, and syncs that have waited for it complete.
    pub(crate) fn send_commit(
        &mut self,
        zxid: Zxid,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let serves = self.serving().is_some();
        for learner in self.learners.values_mut() {
            learner.commit(zxid, replica, cx);
            if serves && learner.is_informed() && learner.may_serve(replica.log()) {
                cx.mark(Mark::LearnerJoined);
                learner.serve(replica, cx);
            }
        }
        if serves {
            replica.hold_recent(Some(zxid));
        }
        let Some(proposer) = self.proposer() else { return LeaderEffect::None };
        proposer.syncs.on_committed(zxid);
        if proposer.syncs.len() == 0 { LeaderEffect::None } else { self.confirm(cx) }
    }

    pub(super) fn on_ack(
        &mut self,
        link: LinkId,
        zxid: Zxid,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let learner = self.learners.get_mut(&link).filter(|learner| learner.is_synced());
        // Above the committed zxid, only zxids of transactions are valid: a position between two of
        // them cannot be committed.
        let exists = zxid <= replica.log().committed()
            || replica.history().last_at_or_before(zxid) == Some(zxid);
        let Some(learner) = learner.filter(|_| exists) else {
            return self.refuse(link, PeerMisbehaved::AckNotSent(zxid), cx);
        };
        learner.on_ack(zxid);
        let server = learner.server;
        self.acked(server, zxid, cx)
    }

    pub(super) fn on_pong(
        &mut self,
        link: LinkId,
        round: u64,
        touched: &[(SessionId, u32)],
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let server = self.learners.get(&link).map(|learner| learner.server);
        let (Some(server), true) = (server, round <= self.round) else {
            let last = self.round;
            return self.refuse(link, PeerMisbehaved::PongNotAsked { round, last }, cx);
        };
        self.answered.insert(server, round);
        let now = cx.now.mono;
        if let Some(proposer) = self.proposer() {
            for (session, timeout_ms) in touched {
                proposer.tracker.touch_by(server, *session, *timeout_ms, now);
            }
        }
        self.confirm(cx)
    }

    pub(super) fn on_request(
        &mut self,
        link: LinkId,
        write: Write,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let now = cx.now.mono;
        let Some(proposer) = self.proposer() else {
            return self.refuse(
                link,
                PeerMisbehaved::OutOfTurn("a write before service".into()),
                cx,
            );
        };
        if !proposer.has_room(cx) {
            return self.end_epoch(cx);
        }
        proposer.tracker.touch(write.session, None, now);
        self.propose(write, replica, cx)
    }

    pub(super) fn on_revalidate(
        &mut self,
        (link, behind): (LinkId, Option<Behind>),
        conn: ConnId,
        session: SessionId,
        timeout_ms: u32,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let server = self.learners.get(&link).map(|learner| learner.server);
        let server = behind.map(|behind| behind.server).or(server);
        let (Some(server), Some(proposer)) = (server, self.proposer()) else {
            return self.refuse(
                link,
                PeerMisbehaved::OutOfTurn("a session before service".into()),
                cx,
            );
        };
        if !proposer.has_room(cx) {
            return self.end_epoch(cx);
        }
        let origin = Origin::handshake(server, conn);
        match self.resume_session(session, timeout_ms, origin, replica, cx) {
            // A newer leader may have created or moved the session by now: only a quorum that still
            // follows this leader proves that its session table is up to date.
            known @ (Resumption::Dead | Resumption::Known) => {
                if known == Resumption::Dead {
                    cx.mark(Mark::SessionMoveDead);
                }
                let (link, request) = (Some(link), Origin::HANDSHAKE);
                return self.sync(SyncWaiter { link, behind, conn, request }, cx);
            }
            // The transaction answers the handshake.
            Resumption::Closing => cx.mark(Mark::SessionMoveClosing),
            Resumption::Moves(_) => {}
        }
        LeaderEffect::None
    }

    fn send(&mut self, entry: &Entry, cx: &mut Cx<'_>) {
        for learner in self.learners.values_mut() {
            learner.propose(entry, cx);
        }
    }

    pub(super) fn ping(&mut self, cx: &mut Cx<'_>) {
        self.round += 1;
        self.next_ping = cx.now.mono.after(cx.config.tick() / 2);
        let round = self.round;
        if let Some(proposer) = self.proposer() {
            proposer.syncs.on_ping(round);
        }
        let sent = cx.now.mono;
        for learner in self.learners.values_mut().filter(|learner| learner.is_synced()) {
            learner.on_ping(sent);
            cx.send_peer(learner.link, FromLeader::Ping { round, sent, echo: learner.echo() });
        }
    }

    /// Answers the syncs whose ping a quorum has answered.
    pub(crate) fn confirm(&mut self, cx: &mut Cx<'_>) -> LeaderEffect {
        let mut local = Vec::new();
        loop {
            let own = cx.config.id();
            let answered = |id| {
                let answered = self.answered.get(&id).copied().unwrap_or_default();
                if id == own { self.round } else { answered }
            };
            let confirmed = self.quorum_voters(cx).quorum_watermark(answered);
            let round = self.round;
            assert!(confirmed <= round, "ping {confirmed} is answered, and {round} the last");
            let Some(proposer) = self.proposer() else {
                return LeaderEffect::None;
            };
            let satisfied = proposer.syncs.on_confirmed(confirmed);
            let more = proposer.syncs.want_ping();
            for waiter in satisfied {
                let SyncWaiter { link, behind, conn, request } = waiter;
                match link {
                    None => local.push(waiter),
                    Some(link) if self.learners.contains_key(&link) => {
                        let message = match behind {
                            None => FromLeader::Synced { conn, request },
                            Some(behind) => FromLeader::SyncedBehind { behind, conn, request },
                        };
                        cx.send_peer(link, message);
                    }
                    Some(_) => {}
                }
            }
            if !more {
                break;
            }
            self.ping(cx);
        }
        if local.is_empty() { LeaderEffect::None } else { LeaderEffect::Synced(local) }
    }
}
