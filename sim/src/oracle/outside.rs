//! Whom a reign leaves outside (Z26): whoever looks for a leader, and hears that a quorum follows one, joins it; and a leader
//! gives way to a later promise than its own, because whoever has made it can never follow.
//!
//! Must not know how votes are counted: only what has reached a server since it began to look matters, and only whom those
//! who spoke lead or follow.

use std::collections::BTreeMap;
use std::time::Duration;

use zabkeeper_core::io::PeerEvent;
use zabkeeper_core::peer::{Notification, PeerMessage, Stance};
use zabkeeper_core::{Epoch, Input, Instant, Mode, ServerId, Status};

use super::catalog::{Id, Tally, Verdict};
use super::ledger::Ledger;
use super::voters::Voters;

/// What a server may take to act on what it has heard.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Outside {
    /// Those who look for a leader.
    looking: BTreeMap<ServerId, Looking>,
    /// Leaders that have heard of a later promise than their epoch.
    outrun: BTreeMap<ServerId, Outrun>,
}

/// A server looks for a leader.
#[derive(Clone, Default, Debug)]
struct Looking {
    /// Its election, as it has said last. What was heard before it has spoken, or in another round, does not count.
    round: Option<u64>,
    /// The last word of each other server.
    heard: BTreeMap<ServerId, Notification>,
    /// Since when that names a leader to join.
    since: Option<(ServerId, Instant)>,
}

/// Somebody has promised more than a leader's epoch.
#[derive(Clone, Copy, Debug)]
struct Outrun {
    by: ServerId,
    promised: Epoch,
    epoch: Epoch,
    since: Instant,
}

impl Looking {
    /// The leader that says so, and that most voters follow or are.
    fn reign(&self, voters: &Voters) -> Option<ServerId> {
        let follows = |id: ServerId, leader: ServerId| {
            let said = self.heard.get(&id);
            said.is_some_and(|said| said.stance != Stance::Looking && said.vote.candidate == leader)
        };
        let leads = |said: &Notification| said.stance == Stance::Leading;
        let mut leaders = self.heard.iter().filter(|(_, said)| leads(said)).map(|(id, _)| *id);
        leaders.find(|leader| follows(*leader, *leader) && voters.most(|id| follows(id, *leader)))
    }
}

impl Outside {
    /// A server begins or ends a life.
    pub(super) fn restarted(&mut self, id: ServerId) {
        self.looking.remove(&id);
        self.outrun.remove(&id);
    }

    /// What a server is about to hear.
    pub(super) fn entered(&mut self, ledger: &Ledger, id: ServerId, input: &Input, now: Instant) {
        match input {
            Input::Election(from, said) => {
                if let Some(looking) = self.looking.get_mut(&id) {
                    looking.heard.insert(*from, *said);
                }
            }
            Input::Peer(
                link,
                PeerEvent::Message(PeerMessage::FollowerInfo { accepted: promised, .. }),
            ) => {
                let (epoch, by) = (ledger.leads_epoch(id), ledger.peer_of(id, *link));
                if let (Some(epoch), Some(by)) = (epoch, by)
                    && (epoch.next()..Epoch::END).contains(promised)
                {
                    let outrun = Outrun { by, promised: *promised, epoch, since: now };
                    self.outrun.entry(id).or_insert(outrun);
                }
            }
            Input::Peer(..) | Input::Timeout | Input::Client(..) | Input::Disk(_) => {}
        }
    }

    /// A step. `awake` is the end of the server's last pause.
    pub(super) fn acted(
        &mut self,
        tally: &mut Tally,
        voters: &Voters,
        id: ServerId,
        (election, status): (&[(ServerId, Notification)], &Status),
        (now, awake): (Instant, Instant),
    ) -> Verdict {
        let waits = |since: Instant| now.since(since.max(awake));
        if status.mode != Mode::Leader {
            self.outrun.remove(&id);
        }
        if let Some(Outrun { by, promised, epoch, since }) = self.outrun.get(&id).copied() {
            tally.hold(Id::Z26, waits(since) <= PATIENCE, || {
                vec![format!(
                    "server {id} leads epoch {epoch} on, and has heard at {since} that server {by} has promised epoch \
                     {promised}: it can never follow"
                )]
            })?;
        }
        let looks = status.mode == Mode::Looking && status.halted.is_none();
        if !looks {
            let looking = self.looking.remove(&id);
            let heard = looking.filter(|looking| looking.round.is_some());
            let joins = heard.and_then(|looking| looking.reign(voters)).is_some();
            return if joins { tally.hold(Id::Z26, true, Vec::new) } else { Ok(()) };
        }
        let looking = self.looking.entry(id).or_default();
        let own = election.iter().map(|(_, said)| said).find(|said| said.stance == Stance::Looking);
        if let Some(own) = own.filter(|own| looking.round != Some(own.round)) {
            *looking = Looking { round: Some(own.round), ..Looking::default() };
        }
        let reign = looking.reign(voters).filter(|_| looking.round.is_some());
        let before = looking.since.filter(|(leader, _)| Some(*leader) == reign);
        looking.since = before.or(reign.map(|leader| (leader, now)));
        // Who says nothing may have begun another election, and have to wait for its disk.
        let (Some((leader, since)), Some(_)) = (looking.since, own) else {
            return Ok(());
        };
        tally.hold(Id::Z26, waits(since) <= PATIENCE, || {
            let words = looking.heard.iter().map(|(from, said)| format!("server {from}: {said}"));
            let mut lines = vec![format!(
                "server {id} looks for a leader, and has heard since {since} that a quorum follows server {leader}"
            )];
            lines.extend(words);
            lines
        })
    }
}
