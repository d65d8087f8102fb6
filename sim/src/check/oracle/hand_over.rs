//! Leaders that are about to step down: whom they name, and what those that are to stop do until
//! then.
//!
//! Owns which servers are to stop, and the votes that leaders have named. Must not judge the
//! election that follows.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::{FromLeader, PeerMessage, Vote};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::{Epoch, Instant, Mode, ServerId, Zxid};

use super::catalog::{Checks, Id, Verdict};
use super::zab::{Acts, Zab};

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct HandOvers {
    /// Servers whose process is to stop.
    stopping: BTreeSet<ServerId>,
    /// Those of them that led and served then, although another server may lead, and lead still.
    handing_over: BTreeSet<ServerId>,
    /// The votes that leaders have named.
    named: BTreeSet<(Epoch, Zxid, ServerId)>,
    /// When the disks of servers were erased last.
    erased: BTreeMap<ServerId, Instant>,
}

impl HandOvers {
    /// The server's process starts or ends.
    pub(super) fn restarted(&mut self, id: ServerId) {
        self.stopping.remove(&id);
        self.handing_over.remove(&id);
    }

    /// The server has an empty disk.
    pub(super) fn erased(&mut self, id: ServerId, now: Instant) {
        self.erased.insert(id, now);
    }

    /// Whether a leader cannot know yet that a learner's disk was erased: its link to the learner
    /// is up since before that (seed 0x11280578 of the swarm at d1db2a8).
    fn takes_for_whole(&self, zab: &Zab, leader: ServerId, learner: ServerId) -> bool {
        let links = zab.servers.get(&leader).into_iter().flat_map(|server| server.links.values());
        let erased = self.erased.get(&learner);
        let older = |since: Instant| erased.is_some_and(|erased| since < *erased);
        links.filter(|link| link.peer == learner && link.synced).any(|link| older(link.since))
    }

    /// The server is about to be told to stop.
    pub(super) fn stops(&mut self, zab: &Zab, id: ServerId) {
        self.stopping.insert(id);
        let voters = zab.voters_of(id);
        let others = voters.all().any(|other| other != id && voters.may_lead(other));
        if zab.leads(id) && zab.serves(id) && others {
            self.handing_over.insert(id);
        }
    }

    /// Is the server's process to stop?
    pub(super) fn is_stopping(&self, id: ServerId) -> bool {
        self.stopping.contains(&id)
    }

    /// Has a leader named this vote?
    pub(super) fn has_named(&self, vote: Vote) -> bool {
        self.named.contains(&(vote.epoch, vote.zxid, vote.candidate))
    }

    /// Z28, before the step's commands are noted: a leader that is to stop proposes nothing more,
    /// and names another server. Who is named is a voter that has all of the leader's committed
    /// history durably, at the end of the leader's own log. The leader then leads no longer.
    pub(super) fn acted(
        &mut self,
        checks: &mut Checks,
        zab: &Zab,
        id: ServerId,
        acts: &Acts<'_>,
    ) -> Verdict {
        let leads = matches!(acts.status.mode, Mode::Leader | Mode::Standalone);
        // A voter that is a quorum alone may be elected again in the same step.
        let leads_on = leads && acts.status.serving;
        if self.handing_over.contains(&id) {
            let appends = |command: &&DiskCommand| matches!(command, DiskCommand::Append { .. });
            let proposal = acts.disk.iter().find(appends).filter(|_| zab.leads(id));
            checks.check(Id::Z28, proposal.is_none(), || {
                let proposal = proposal.map(ToString::to_string).unwrap_or_default();
                vec![format!("server {id} is to stop and hands over, and it proposes: {proposal}")]
            })?;
        }
        if !leads {
            self.handing_over.remove(&id);
        }
        for command in acts.peers {
            let PeerCommand::Send(_, PeerMessage::Leader(FromLeader::TakeOver { vote })) = command
            else {
                continue;
            };
            let candidate = zab.servers.get(&vote.candidate);
            let durable = candidate.map(|server| server.disk_model.kept().end());
            let ours = (acts.status.current_epoch, acts.status.appended);
            // A leader whose epoch is used up names itself for the next one.
            let fit = (vote.candidate != id || !self.stopping.contains(&id))
                && zab.voters_of(id).may_lead(vote.candidate)
                && (durable >= Some(acts.status.committed)
                    || self.takes_for_whole(zab, id, vote.candidate))
                && (vote.epoch, vote.zxid) == ours;
            checks.check(Id::Z28, fit && !leads_on, || {
                let Acts { status, .. } = acts;
                let durable = durable.unwrap_or_default();
                let committed = status.committed;
                vec![
                    format!(
                        "server {id} names {vote}, and is {:?} after that step (serves: {}); it \
                         has committed {committed} of {}",
                        status.mode, status.serving, status.appended
                    ),
                    format!("the log of server {} is durable up to {durable}", vote.candidate),
                ]
            })?;
            self.named.insert((vote.epoch, vote.zxid, vote.candidate));
        }
        Ok(())
    }
}
