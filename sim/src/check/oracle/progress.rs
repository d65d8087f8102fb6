//! Delays: while a quorum is well, proposals are committed, learners that acknowledge late are
//! dropped, and leaders without followers step down (L8). Links closed too early (L11). Clients
//! that wait too long (L13).
//!
//! Owns what each leader waits for, which followers their leader has released, and how long each
//! fault lasts. Must not trust what a server reports of its health: only the world's faults make it
//! unwell. Servers without a fault for the time allowed must meet the limits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage, ServerState};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::{
    ConnId, Input, Instant, LinkCloseReason, LinkId, Mode, ServerId, Status, StepDownReason, Zxid,
};

use super::catalog::{Checks, Id, Verdict};
use super::zab::Zab;
use crate::check::model::Rules;
use crate::check::observe::Wait;

/// Allowance beyond the limit for a leader to drop a learner or to step down.
const SLACK: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Progress {
    /// Until when a fault of the server or its network lasts.
    unwell: BTreeMap<ServerId, Instant>,
    leaderships: BTreeMap<ServerId, Leadership>,
    /// Followers that have received a LOOKING notification of their leader, or TAKEOVER.
    released: BTreeSet<ServerId>,
}

/// What a leader waits for while it leads.
#[derive(Clone, Default, Debug)]
struct Leadership {
    /// When it began to serve.
    begun: Option<Instant>,
    /// Uncommitted proposals and when they were made.
    open: VecDeque<(Zxid, Instant)>,
    learners: BTreeMap<LinkId, Debt>,
    /// What its own disk has not stored yet: each transaction, and when it was logged.
    unstored: VecDeque<(Zxid, Instant)>,
    /// The first of these, and since when it has been committed without that disk.
    held: Option<(Zxid, Instant)>,
    /// When the disk last held something for so long that the leader may hand over.
    slow_at: Option<Instant>,
}

impl Leadership {
    /// Notes how far its disk is.
    fn note_disk(&mut self, stored: Zxid, status: &Status, now: Instant) {
        while self.unstored.front().is_some_and(|(zxid, _)| *zxid <= stored) {
            self.unstored.pop_front();
        }
        let first = self.unstored.front().map(|(zxid, _)| *zxid);
        let first = first.filter(|zxid| *zxid <= status.committed);
        self.held = first.map(|zxid| match self.held {
            Some(held) if held.0 == zxid => held,
            Some(_) | None => (zxid, now),
        });
    }
}

/// What a learner has to acknowledge, by the leader's view of one link.
#[derive(Clone, Copy, Default, Debug)]
struct Debt {
    /// The last transaction that it was sent, and when.
    sent: (Zxid, Instant),
    /// When its acknowledgement of NEWLEADER arrived.
    synced: Option<Instant>,
    /// The transaction whose acknowledgement the leader times, and since when. Once it is
    /// acknowledged, the next one is the newest that was sent.
    marked: Option<(Zxid, Instant)>,
    /// When it was sent UPTODATE.
    served: Option<Instant>,
    /// When the link had last accepted all that was sent on it.
    took: Option<Instant>,
}

/// L13: when a server begins to serve, no handshake that arrived before waits any longer. Where the
/// handshakes of others have used the leader's epoch up, the rest waits for the next one.
pub(super) fn passes_nobody_over(
    checks: &mut Checks,
    id: ServerId,
    held: usize,
    used_up: bool,
) -> Verdict {
    checks.check(Id::L13, held == 0 || used_up, || {
        vec![format!(
            "server {id} serves, and {held} clients that came before go on waiting for that"
        )]
    })
}

impl Progress {
    /// A fault is injected into these servers, or the network between them, until `until`.
    pub(super) fn unwell_until(&mut self, servers: &[ServerId], until: Instant) {
        for server in servers {
            let unwell = self.unwell.entry(*server).or_default();
            *unwell = until.max(*unwell);
        }
    }

    /// The server's process starts or ends, or its time as leader ends.
    pub(super) fn restarted(&mut self, id: ServerId) {
        self.leaderships.remove(&id);
        self.released.remove(&id);
    }

    /// The server is about to handle this input.
    pub(super) fn entered(&mut self, zab: &Zab, id: ServerId, input: &Input, now: Instant) {
        if let Input::Election(from, notification) = input
            && notification.server_state == ServerState::Looking
            && zab.follows(id).is_some_and(|(leader, _)| leader == *from)
        {
            self.released.insert(id);
        }
        let Input::Peer(link, event) = input else {
            return;
        };
        if let PeerEvent::Message(PeerMessage::Leader(FromLeader::TakeOver { .. })) = event
            && zab.follows(id).map(|(leader, _)| leader) == zab.peer_of(id, *link)
        {
            self.released.insert(id);
        }
        let Some(leadership) = self.leaderships.get_mut(&id) else {
            return;
        };
        match (event, leadership.learners.get_mut(link)) {
            (PeerEvent::Down, _) => {
                leadership.learners.remove(link);
            }
            (PeerEvent::Drained, _) => {
                leadership.learners.entry(*link).or_default().took = Some(now)
            }
            (
                PeerEvent::Message(PeerMessage::Learner(FromLearner::AckNewLeader { .. })),
                Some(debt),
            ) => {
                // What was sent while the learner wrote its history has the limit from now on.
                if debt.synced.is_none() {
                    debt.marked = debt.marked.map(|_| (debt.sent.0, now));
                }
                debt.synced = Some(now);
            }
            (PeerEvent::Message(PeerMessage::Learner(FromLearner::Ack { zxid })), Some(debt)) => {
                if debt.marked.is_some_and(|(mark, _)| mark <= *zxid) {
                    debt.marked = Some(debt.sent).filter(|(sent, _)| zxid < sent);
                }
            }
            (
                PeerEvent::Message(_)
                | PeerEvent::Up { .. }
                | PeerEvent::Unreachable { .. }
                | PeerEvent::Version(_),
                _,
            ) => {}
        }
    }

    /// Notes a step of a leader. Observers acknowledge no proposal.
    pub(super) fn acted(
        &mut self,
        zab: &Zab,
        id: ServerId,
        (disk, peers): (&[DiskCommand], &[PeerCommand]),
        status: &Status,
        now: Instant,
    ) {
        let leadership = self.leaderships.entry(id).or_default();
        if status.serving {
            leadership.begun.get_or_insert(now);
        }
        for command in disk {
            if let DiskCommand::Append { entry, .. } = command
                && status.serving
            {
                leadership.open.push_back((entry.zxid, now));
                leadership.unstored.push_back((entry.zxid, now));
            }
        }
        leadership.note_disk(zab.servers[&id].disk_model.kept().end(), status, now);
        while leadership.open.front().is_some_and(|(zxid, _)| *zxid <= status.committed) {
            leadership.open.pop_front();
        }
        for command in peers {
            match command {
                PeerCommand::Send(link, PeerMessage::Leader(FromLeader::Proposal(entry))) => {
                    let debt = leadership.learners.entry(*link).or_default();
                    debt.sent = (entry.zxid, now);
                    let peer = zab.peer_of(id, *link);
                    if peer.is_none_or(|peer| zab.voters_of(id).contains(peer)) {
                        debt.marked.get_or_insert(debt.sent);
                    } else {
                        debt.marked = None;
                    }
                }
                // A server that has lost its vote owes no acknowledgement any more.
                PeerCommand::Send(link, PeerMessage::Leader(FromLeader::Inform(entry))) => {
                    let debt = leadership.learners.entry(*link).or_default();
                    (debt.sent, debt.marked) = ((entry.zxid, now), None);
                }
                // The acknowledgement of the first NEWLEADER covers all earlier proposals.
                PeerCommand::Send(link, PeerMessage::Leader(FromLeader::NewLeader { .. })) => {
                    let debt = leadership.learners.entry(*link).or_default();
                    debt.marked = debt.marked.filter(|_| debt.synced.is_some());
                }
                PeerCommand::Send(link, PeerMessage::Leader(FromLeader::UpToDate { .. })) => {
                    leadership.learners.entry(*link).or_default().served = Some(now);
                }
                PeerCommand::Close(link, _) => {
                    leadership.learners.remove(link);
                }
                PeerCommand::Send(..) | PeerCommand::Dial(_) | PeerCommand::DialMaster(_) => {}
            }
        }
    }

    /// ZAB-17, ZAB-18, L11: a server closes a link for silence or missing acknowledgements only
    /// after the limit for that. A clock may run at twice its speed.
    pub(super) fn is_patient(
        &self,
        (checks, zab, rules): (&mut Checks, &Zab, &Rules),
        id: ServerId,
        commands: &[PeerCommand],
        now: Instant,
    ) -> Verdict {
        for command in commands {
            let PeerCommand::Close(on, LinkCloseReason::Silent) = command else {
                continue;
            };
            let Some(link) = zab.link(id, *on) else {
                continue;
            };
            let debt = self.leaderships.get(&id).and_then(|leadership| leadership.learners.get(on));
            let debt = debt.copied().unwrap_or_default();
            let (since, limit) = match (zab.follows(id), debt.served) {
                (Some((_, since)), _) if zab.serves(id) => (since, rules.silence_limit()),
                (Some(_), _) if link.received == link.since => (link.since, rules.tick * 2),
                (None, Some(served)) => (served, rules.silence_limit()),
                // While a learner is brought up to date it may be silent for long, but accepts what
                // it is sent.
                (None, None) => (debt.took.unwrap_or(link.since), rules.init_limit),
                (Some(_), _) => (link.since, rules.init_limit),
            };
            // Between serving servers, `proven` counts: messages are worth only their certain send
            // time.
            let serving = debt.served.is_some() || zab.serves(id);
            let received = if serving { link.proven } else { link.received };
            let since = received.max(since);
            let marked = debt.marked.filter(|_| debt.synced.is_some());
            let is_over = |since: Instant, limit: Duration| now.since(since) >= limit / 2;
            let is_late = marked.is_some_and(|(_, since)| is_over(since, rules.sync_limit));
            checks.check(Id::L11, is_late || is_over(since, limit), || {
                let peer = link.peer;
                let took = debt.took.map_or("never".to_owned(), |at| format!("last at {at}"));
                let owed =
                    marked.map_or("it owes no acknowledgement".to_owned(), |(mark, since)| {
                        let has = rules.sync_limit;
                        format!(
                            "it owes the acknowledgement of {mark} since {since}, and has {has:?}"
                        )
                    });
                vec![
                    format!(
                        "server {id} gives up server {peer} on {on}, which may be silent for \
                         {limit:?} from {since} on"
                    ),
                    format!(
                        "its last message came at {received}, and its link had taken all that it \
                         was sent {took}; {owed}"
                    ),
                ]
            })?;
        }
        Ok(())
    }

    /// L11: a serving follower stays until its leader is silent, their link closes, or the leader
    /// itself looks for another one, or names the next one; a serving leader stays while a quorum
    /// has its history, unless it `stops`. LOOKING
    /// notifications of others are no reason: otherwise one server that cannot reach the leader
    /// could end the service for all.
    pub(super) fn stays(
        &self,
        (checks, zab): (&mut Checks, &Zab),
        id: ServerId,
        commands: &[PeerCommand],
        (status, stops): (&Status, bool),
        (now, sync_limit, tick): (Instant, Duration, Duration),
    ) -> Verdict {
        if !zab.serves(id) || status.halted.is_some() || status.mode != Mode::Looking {
            return Ok(());
        }
        // Links that the step closes although they are still open. An exhausted epoch or a later
        // promise may end an epoch that has a quorum.
        let left: Vec<_> = commands
            .iter()
            .filter_map(|command| match command {
                PeerCommand::Close(
                    _,
                    LinkCloseReason::Looks(StepDownReason::Epoch | StepDownReason::Behind),
                ) => None,
                // RECONF-11.
                PeerCommand::Close(_, LinkCloseReason::Looks(StepDownReason::Removed))
                    if !zab.voters_of(id).may_lead(id) =>
                {
                    None
                }
                PeerCommand::Close(_, LinkCloseReason::Looks(StepDownReason::SlowDisk))
                    if self.has_slow_disk(id, status, now, (sync_limit, tick)) =>
                {
                    None
                }
                PeerCommand::Close(link, LinkCloseReason::Looks(_)) => zab.link(id, *link),
                PeerCommand::Close(..)
                | PeerCommand::Send(..)
                | PeerCommand::Dial(_)
                | PeerCommand::DialMaster(_) => None,
            })
            .collect();
        let stood = |server| left.iter().any(|link| link.peer == server);
        let synced = |server| left.iter().any(|link| link.peer == server && link.synced);
        let had = |server| server == id || synced(server);
        match zab.follows(id) {
            Some((leader, _)) => {
                checks.check(Id::L11, !stood(leader) || self.released.contains(&id), || {
                    vec![format!(
                        "server {id} serves behind server {leader}, their link stands, and it \
                         looks for a leader; server {leader} \
                         has not notified it that it looks for one itself"
                    )]
                })
            }
            None if left.is_empty() || stops => Ok(()),
            None => checks.check(Id::L11, !zab.quorum_of(id).most(had), || {
                let who: Vec<String> = left
                    .iter()
                    .map(|link| {
                        format!(
                            "server \
                    {}",
                            link.peer
                        )
                    })
                    .collect();
                vec![format!(
                    "server {id} leads and serves, and looks for a leader, though its links with \
                     {} stand, and with them a quorum has \
                     its history",
                    who.join(", ")
                )]
            }),
        }
    }

    /// Does the leader's own disk hold for long what is committed without it, or did it when the
    /// leader began to wait for the others? Clocks may run at twice and at half their speed.
    fn has_slow_disk(
        &self,
        id: ServerId,
        status: &Status,
        now: Instant,
        (sync_limit, tick): (Duration, Duration),
    ) -> bool {
        let Some(leadership) = self.leaderships.get(&id) else { return false };
        let is_slow = leadership.unstored.front().is_some_and(|(zxid, logged)| {
            *zxid <= status.committed && now.since(*logged) >= sync_limit / 2
        });
        let was_slow = leadership.slow_at.is_some_and(|at| now.since(at) <= tick * 2 + SLACK);
        is_slow || was_slow
    }

    /// L8: a leader whose own disk holds for the limit what is committed without it leads no
    /// longer, if another server may lead. The time begins anew with each transaction that was the
    /// newest when the one before it was stored, so the limit counts twice; a ping may be needed
    /// for the leader to look, and the others take a tick. A clock may run at half its speed.
    pub(super) fn hands_over_in_time(
        &mut self,
        (checks, zab): (&mut Checks, &Zab),
        id: ServerId,
        (now, awake): (Instant, Instant),
        (sync_limit, tick): (Duration, Duration),
    ) -> Verdict {
        let Some(leadership) = self.leaderships.get_mut(&id) else { return Ok(()) };
        let Some((zxid, since)) = leadership.held else { return Ok(()) };
        let first = leadership.unstored.front().map(|(_, logged)| now.since(*logged));
        if first >= Some(sync_limit / 2) {
            leadership.slow_at = Some(now);
        }
        let voters = zab.voters_of(id);
        let others = voters.all().any(|other| other != id && voters.may_lead(other));
        let limit = (sync_limit + tick) * 4 + SLACK;
        let waits = now.since(since.max(awake));
        checks.check(Id::L8, !others || sync_limit.is_zero() || waits <= limit, || {
            vec![format!(
                "server {id} leads on though the others have committed {zxid}, since {since}, and \
                 its own disk has not stored it"
            )]
        })
    }

    /// ZAB-18, L8: a leader drops a synced learner that has not acknowledged the marked proposal
    /// for the limit, whatever else it has acknowledged. `awake` is the end of the leader's last
    /// pause. A clock may run at half speed.
    pub(super) fn leaves_in_time(
        &self,
        (checks, zab): (&mut Checks, &Zab),
        id: ServerId,
        (now, awake): (Instant, Instant),
        sync_limit: Duration,
    ) -> Verdict {
        let Some(leadership) = self.leaderships.get(&id).filter(|_| !sync_limit.is_zero()) else {
            return Ok(());
        };
        // A learner that has lost its vote since owes nothing, and may be sent nothing any more
        // that would show it (seed 0x20112e22 of the swarm at 078d42e).
        let voters = zab.voters_of(id);
        let votes = |link| zab.peer_of(id, link).is_none_or(|peer| voters.contains(peer));
        let limit = sync_limit * 2 + SLACK;
        for (link, debt) in leadership.learners.iter().filter(|(link, _)| votes(**link)) {
            let (Some((mark, since)), Some(_)) = (debt.marked, debt.synced) else {
                continue;
            };
            let waits = now.since(since.max(awake));
            checks.check(Id::L8, waits <= limit, || {
                vec![format!(
                    "server {id} leads on with {link}, which has not acknowledged {mark} since \
                     {since}, and was sent \
                     {}; its limit is {sync_limit:?}",
                    debt.sent.0
                )]
            })?;
        }
        Ok(())
    }

    /// ZAB-06, L8: an elected leader serves within the limit or looks for a leader again. `since`:
    /// when it began to lead, or its last pause ended.
    pub(super) fn begins_in_time(
        &self,
        checks: &mut Checks,
        id: ServerId,
        (now, since): (Instant, Instant),
        begin_limit: Duration,
    ) -> Verdict {
        let begun = self.leaderships.get(&id).is_none_or(|leadership| leadership.begun.is_some());
        if begun || begin_limit.is_zero() {
            return Ok(());
        }
        let limit = begin_limit * 2 + SLACK;
        checks.check(Id::L8, now.since(since) <= limit, || {
            vec![format!(
                "server {id} leads since {since} and has not begun to serve; its limit is \
                 {begin_limit:?}"
            )]
        })
    }

    /// L8: where a quorum with its leader has been well and connected for `bound`, every proposal
    /// that is older than `bound` is committed.
    pub(super) fn commits_in_time(
        &self,
        checks: &mut Checks,
        zab: &Zab,
        id: ServerId,
        (now, awake): (Instant, Instant),
        bound: Duration,
    ) -> Verdict {
        let Some(leadership) = self.leaderships.get(&id).filter(|_| !bound.is_zero()) else {
            return Ok(());
        };
        let Some((zxid, at)) = leadership.open.front().copied() else {
            return Ok(());
        };
        let long = |since: Instant| now.since(since) > bound;
        if !long(at.max(awake)) {
            return checks.check(Id::L8, true, Vec::new);
        }
        let well = self.well_behind(zab, id, (now, bound));
        checks.check(Id::L8, well.is_empty(), || {
            let well: Vec<String> = well.iter().map(|server| format!("server {server}")).collect();
            vec![format!(
                "server {id} has proposed {zxid} at {at}, and it is not committed; {} have been \
                 well and together \
                 for longer than {bound:?}",
                well.join(", ")
            )]
        })
    }
    /// L13: a server in a quorum that, with its leader, has been well and connected for `bound` has
    /// read and answered everything that its clients sent longer ago than `bound`.
    pub(super) fn answers_in_time(
        &self,
        (checks, zab): (&mut Checks, &Zab),
        id: ServerId,
        (conn, waits): (ConnId, Wait),
        (now, awake): (Instant, Instant),
        bound: Duration,
    ) -> Verdict {
        if bound.is_zero() || !zab.serves(id) {
            return Ok(());
        }
        let long = |since: Instant| now.since(since) > bound;
        let (Wait::Turn(since) | Wait::Answer(since)) = waits;
        if !long(since.max(awake)) {
            return checks.check(Id::L13, true, Vec::new);
        }
        let leader = zab.follows(id).map_or(id, |(leader, _)| leader);
        let begun = if leader == id {
            self.leaderships.get(&id).and_then(|leadership| leadership.begun)
        } else {
            self.serves_since(zab, leader, id)
        };
        let all_the_time = begun.is_some_and(long);
        let well = self.well_behind(zab, leader, (now, bound));
        checks.check(Id::L13, !all_the_time || !well.contains(&id), || {
            let what = match waits {
                Wait::Turn(_) => "is not read",
                Wait::Answer(_) => "is not answered",
            };
            let well: Vec<String> = well.iter().map(|server| format!("server {server}")).collect();
            vec![format!(
                "{conn} of server {id} {what} since {since}; {} have been well and together for \
                 longer than {bound:?}, and server \
                 {leader} leads",
                well.join(", ")
            )]
        })
    }

    /// When the leader sent UPTODATE to a learner, on a link that is still open.
    fn serves_since(&self, zab: &Zab, leader: ServerId, id: ServerId) -> Option<Instant> {
        let links = &self.leaderships.get(&leader)?.learners;
        let own = links.iter().filter(|(link, _)| zab.peer_of(leader, **link) == Some(id));
        own.filter_map(|(_, debt)| debt.served).max()
    }

    /// The voters without a fault for `bound` that have followed this leader for as long, and the
    /// leader; empty if they are no quorum or the leader is not one of them.
    fn well_behind(
        &self,
        zab: &Zab,
        id: ServerId,
        (now, bound): (Instant, Duration),
    ) -> Vec<ServerId> {
        let Some(leadership) = self.leaderships.get(&id) else {
            return Vec::new();
        };
        let long = |since: Instant| now.since(since) > bound;
        let unwell = |server: ServerId| self.unwell.get(&server).copied().unwrap_or_default();
        // A link to a server that has lost power stays open until bytes are sent on it, so a synced
        // link is not enough (seed 0x3ef5726b3c29: the server had restarted and followed another
        // leader).
        let follows = |server: ServerId| {
            let mut linked = leadership
                .learners
                .iter()
                .filter(|(link, _)| zab.peer_of(id, **link) == Some(server));
            linked.any(|(_, debt)| debt.synced.is_some_and(long))
                && zab.serves(server)
                && zab.follows(server).is_some_and(|(leader, since)| leader == id && long(since))
        };
        let is_well = |server: ServerId| long(unwell(server)) && (server == id || follows(server));
        let enough = long(zab.role_since(id)) && is_well(id) && zab.quorum_of(id).most(is_well);
        if !enough {
            return Vec::new();
        }
        zab.voters_of(id).all().filter(|server| is_well(*server)).collect()
    }
}
