//! Servers that an established epoch leaves out (Z26): a looking server joins a leader once
//! notifications show that a quorum follows the leader; and a leader steps down when a peer has
//! promised a later epoch than its own, because that peer can never follow it.
//!
//! Owns the notifications that each looking server has received, and the later promises that
//! leaders have received. Must not depend on how votes are counted: only the leader that each
//! sender names matters.

use std::collections::BTreeMap;
use std::time::Duration;

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLearner, Notification, PeerMessage, ServerState};
use zabkeeper_core::{Epoch, Input, Instant, LinkCloseReason, Mode, ServerId};

use super::catalog::{Checks, Id, Verdict};
use super::voters::Voters;
use super::zab::{Acts, Zab};

/// Longest time that a leader may take to step down.
const GIVE_WAY: Duration = Duration::from_secs(1);
/// Ticks for which a server without room for a leader's snapshot may stay away from that leader, by
/// the slowest clock.
const REST_TICKS: u32 = 2 * 16;
/// Longest time that a looking server may take to join: the step that receives the last needed
/// notification does it. Under many faults, epochs are too short to allow more (mutant 144).
const JOIN: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Outside {
    /// Servers that look for a leader.
    looking: BTreeMap<ServerId, Looking>,
    /// Until when servers without room for a leader's snapshot may stay away.
    resting: BTreeMap<ServerId, Instant>,
    /// Leaders that have received a FOLLOWERINFO with a later accepted epoch than their own.
    outrun: BTreeMap<ServerId, Outrun>,
}

/// A looking server that has sent its notification; what it received before does not count.
#[derive(Clone, Debug)]
struct Looking {
    /// The election round that it has sent last.
    round: u64,
    /// The last notification of each other server.
    received: BTreeMap<ServerId, Notification>,
    /// The leader that these show to have a quorum, and since when.
    since: Option<(ServerId, Instant)>,
}

/// A peer has promised a later epoch than the leader's.
#[derive(Clone, Copy, Debug)]
struct Outrun {
    by: ServerId,
    promised: Epoch,
    epoch: Epoch,
    since: Instant,
}

impl Looking {
    fn new(round: u64) -> Looking {
        Looking { round, received: BTreeMap::new(), since: None }
    }

    /// The server whose notification claims to lead, and that a majority of voters follows or is.
    fn established(&self, voters: &Voters) -> Option<ServerId> {
        let follows = |id: ServerId, leader: ServerId| {
            let notification = self.received.get(&id);
            notification.is_some_and(|notification| {
                notification.server_state != ServerState::Looking
                    && notification.vote.candidate == leader
            })
        };
        let leads = |leader: &ServerId| {
            self.received[leader].server_state == ServerState::Leading && follows(*leader, *leader)
        };
        let mut leaders = self.received.keys().copied().filter(leads);
        leaders.find(|leader| voters.most(|id| follows(id, *leader)))
    }

    fn receives(
        &mut self,
        from: ServerId,
        notification: Notification,
        voters: &Voters,
        now: Instant,
    ) {
        self.received.insert(from, notification);
        let established = self.established(voters);
        let before = self.since.filter(|(leader, _)| Some(*leader) == established);
        self.since = before.or(established.map(|leader| (leader, now)));
    }

    /// Z26: joins the leader in time, if there is one to join.
    fn joins(
        &self,
        checks: &mut Checks,
        id: ServerId,
        (now, awake): (Instant, Instant),
    ) -> Verdict {
        let Some((leader, since)) = self.since else {
            return Ok(());
        };
        checks.check(Id::Z26, now.since(since.max(awake)) <= JOIN, || {
            let received = self.received.iter();
            let words =
                received.map(|(from, notification)| format!("server {from}: {notification}"));
            let mut lines = vec![format!(
                "server {id} looks for a leader, and was notified since {since} that a quorum \
                 follows server {leader}"
            )];
            lines.extend(words);
            lines
        })
    }
}

impl Outside {
    /// The server's process starts or ends.
    pub(super) fn restarted(&mut self, id: ServerId) {
        self.looking.remove(&id);
        self.resting.remove(&id);
        self.outrun.remove(&id);
    }

    /// Another configuration is in force at the server. If it looks for a leader, it has taken the
    /// configuration over from another server, and its election begins anew: its next
    /// notification may have to wait for its disk (seed 0x494b4 of the swarm at f6a7d9b).
    pub(super) fn begins_anew(&mut self, id: ServerId) {
        self.looking.remove(&id);
    }

    /// The server is about to handle this input. `awake` is the end of its last pause.
    pub(super) fn entered(
        &mut self,
        checks: &mut Checks,
        zab: &Zab,
        (id, input): (ServerId, &Input),
        (now, awake): (Instant, Instant),
    ) -> Verdict {
        let awake = awake.max(self.rested(id));
        if let Some(looking) = self.looking.get_mut(&id) {
            looking.joins(checks, id, (now, awake))?;
            if let Input::Election(from, notification) = input {
                looking.receives(*from, *notification, &zab.voters_of(id), now);
            }
        }
        if let Input::Peer(link, PeerEvent::Message(message)) = input
            && let PeerMessage::Learner(FromLearner::FollowerInfo { accepted: promised, .. }) =
                message
            && let (Some(epoch), Some(by)) = (zab.leads_epoch(id), zab.peer_of(id, *link))
            && *promised > epoch
            && promised.0 - epoch.0 <= Epoch::LEAD_MAX
        {
            let outrun = Outrun { by, promised: *promised, epoch, since: now };
            self.outrun.entry(id).or_insert(outrun);
        }
        Ok(())
    }

    /// The server has finished a step. `awake` is the end of its last pause.
    pub(super) fn acted(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        Acts { peers, election, status, .. }: &Acts<'_>,
        (now, awake): (Instant, Instant),
        tick: Duration,
    ) -> Verdict {
        let no_room = |command: &PeerCommand| {
            matches!(command, PeerCommand::Close(_, LinkCloseReason::NoRoom(_)))
        };
        if peers.iter().any(no_room) {
            self.resting.insert(id, now.after(tick * REST_TICKS));
        }
        // A voter that is a quorum alone may be elected again in the step in which it steps down
        // (seed 0x281130d7 of the swarm at ea2c0cd, at a fork).
        let leads_on = |outrun: &Outrun| {
            status.mode == Mode::Leader && status.accepted_epoch < outrun.promised
        };
        if let Some(outrun) = self.outrun.remove(&id).filter(leads_on) {
            self.outrun.insert(id, outrun);
            let Outrun { by, promised, epoch, since } = outrun;
            checks.check(Id::Z26, now.since(since.max(awake)) <= GIVE_WAY, || {
                vec![format!(
                    "server {id} leads epoch {epoch} on, and was notified at {since} that server \
                     {by} has promised epoch \
                     {promised}: it can never follow"
                )]
            })?;
        }
        let before = self.looking.remove(&id);
        if status.mode != Mode::Looking || status.halted.is_some() {
            let joins = before.is_some_and(|looking| looking.since.is_some());
            return if joins { checks.check(Id::Z26, true, Vec::new) } else { Ok(()) };
        }
        let own = election
            .iter()
            .map(|(_, notification)| notification)
            .find(|notification| notification.server_state == ServerState::Looking);
        let round = own.map(|own| own.round);
        // A step with commands to links may have left a leader or follower role, which begins
        // another election: then only the notification of this step gives its round.
        let goes_on =
            |before: &Looking| peers.is_empty() && round.is_none_or(|round| round == before.round);
        let Some(looking) = before.filter(goes_on).or(round.map(Looking::new)) else {
            return Ok(());
        };
        looking.joins(checks, id, (now, awake.max(self.rested(id))))?;
        self.looking.insert(id, looking);
        Ok(())
    }

    fn rested(&self, id: ServerId) -> Instant {
        self.resting.get(&id).copied().unwrap_or_default()
    }
}
