//! The simulated servers of a scenario: a correct server's status, and the steps by which it comes
//! to lead or follow.
//!
//! Every step has its own method, so that a scenario can leave one out or change it.

use std::collections::BTreeMap;

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage, ServerState, Vote};
use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState, Entry};
use zabkeeper_core::{
    Epoch, HistoryInfo, HistoryStatus, Input, LinkId, Mode, Seed, ServerId, SessionOptions, Status,
    WriteId, Zxid,
};

use super::history::History;
use crate::check::observe::{Holder, Observation};

/// One server.
#[derive(Clone, Debug)]
pub(super) struct Member {
    id: ServerId,
    pub(super) mode: Mode,
    leader: Option<ServerId>,
    serving: bool,
    /// With all commands applied.
    pub(super) state: DurableState,
    /// With all commands applied.
    pub(super) log: Vec<Entry>,
    pub(super) applied: Zxid,
    pub(super) committed: Zxid,
    durable: Zxid,
    /// As a follower: it has acknowledged NEWLEADER, and acknowledges each entry.
    entered: bool,
    write: u64,
    /// The number of synced followers in its status.
    pub(super) followers: usize,
}

impl Member {
    pub(super) fn new(id: ServerId) -> Member {
        Member {
            id,
            mode: Mode::Looking,
            leader: None,
            serving: false,
            state: DurableState::default(),
            log: Vec::new(),
            applied: Zxid::ZERO,
            committed: Zxid::ZERO,
            durable: Zxid::ZERO,
            entered: false,
            write: 0,
            // A majority in any ensemble of the tests.
            followers: 6,
        }
    }

    pub(super) fn id(&self) -> ServerId {
        self.id
    }

    pub(super) fn end(&self) -> Zxid {
        self.log.last().map_or(Zxid::ZERO, |entry| entry.zxid)
    }

    pub(super) fn next_write(&mut self) -> WriteId {
        self.write += 1;
        WriteId(self.write)
    }

    pub(super) fn status(&self) -> Status {
        Status {
            id: self.id,
            mode: self.mode,
            leader: self.leader,
            serving: self.serving,
            accepted_epoch: self.state.accepted_epoch,
            current_epoch: self.state.current_epoch,
            applied: self.applied,
            committed: self.committed,
            appended: self.end().max(self.committed),
            durable: self.durable,
            snapshot: Zxid::ZERO,
            snapshots: 0,
            snapshot_running: false,
            sessions: 0,
            local_sessions: 0,
            outstanding: 0,
            nodes: 5,
            ephemerals: 0,
            data_bytes: 0,
            watches: 0,
            learners: 0,
            pending_syncs: 0,
            synced_followers: self.followers,
            synced_observers: 0,
            halted: None,
        }
    }
}

/// The link between a learner and its leader, with the same number at both ends.
pub(super) fn link(learner: ServerId, leader: ServerId) -> LinkId {
    LinkId(learner.0 * 100 + leader.0)
}

impl History {
    pub(super) fn member(&mut self, id: ServerId) -> &mut Member {
        self.members.get_mut(&id).expect("one of the cast")
    }

    // Single steps and their outputs.

    pub(super) fn puts(&mut self, id: ServerId, disk: &[DiskCommand], peers: &[PeerCommand]) {
        let status = self.member(id).status();
        self.sees(Observation::Output { server: id, disk, peers, election: &[], status: &status });
    }

    pub(super) fn takes(&mut self, id: ServerId, input: &Input) {
        self.sees(Observation::Input { server: id, input });
    }

    pub(super) fn shows(&mut self, id: ServerId) {
        self.puts(id, &[], &[]);
    }

    pub(super) fn logs(&mut self, id: ServerId, entry: &Entry) {
        let member = self.member(id);
        member.log.push(entry.clone());
        let write = member.next_write();
        self.puts(id, &[DiskCommand::Append { id: write, entry: entry.clone() }], &[]);
    }

    pub(super) fn saves(&mut self, id: ServerId, change: impl FnOnce(&mut DurableState)) {
        let member = self.member(id);
        change(&mut member.state);
        let (state, write) = (member.state.clone(), member.next_write());
        self.puts(id, &[DiskCommand::SaveState { id: write, state }], &[]);
    }

    pub(super) fn cuts(&mut self, id: ServerId, to: Zxid) {
        let member = self.member(id);
        member.log.retain(|entry| entry.zxid <= to);
        member.durable = member.durable.min(to);
        let write = member.next_write();
        self.puts(id, &[DiskCommand::Truncate { id: write, to }], &[]);
    }

    pub(super) fn last_write(&mut self, id: ServerId) -> WriteId {
        WriteId(self.member(id).write)
    }

    /// The disk confirms everything. A follower sends the ACK, which its leader does not receive
    /// yet.
    pub(super) fn confirms(&mut self, id: ServerId) {
        self.confirms_in_silence(id);
        self.acknowledges(id);
    }

    fn acknowledges(&mut self, id: ServerId) {
        let member = self.member(id);
        let (zxid, leader) = (member.end(), member.leader);
        if let (true, Some(leader)) = (member.entered, leader) {
            self.whispers(id, leader, PeerMessage::Learner(FromLearner::Ack { zxid }));
        }
    }

    /// The disk confirms everything, and the server sends no ACK.
    pub(super) fn confirms_in_silence(&mut self, id: ServerId) {
        let write = self.last_write(id);
        let member = self.member(id);
        member.durable = member.end();
        self.disk_done(id, write);
        self.shows(id);
    }

    /// The disk confirms this write and all earlier ones.
    pub(super) fn disk_done(&mut self, id: ServerId, write: WriteId) {
        self.takes(id, &Input::Disk(DiskEvent::Done(write)));
    }

    /// Sends a message to `to`, which handles it.
    pub(super) fn sends(&mut self, by: ServerId, to: ServerId, message: PeerMessage) {
        self.whispers(by, to, message.clone());
        self.receives(to, by, message);
    }

    /// Sends a message that `to` does not handle yet.
    pub(super) fn whispers(&mut self, by: ServerId, to: ServerId, message: PeerMessage) {
        let link = self.link_of(by, to);
        self.puts(by, &[], &[PeerCommand::Send(link, message)]);
    }

    pub(super) fn receives(&mut self, id: ServerId, from: ServerId, message: PeerMessage) {
        let link = self.link_of(id, from);
        self.receives_on(id, link, message);
    }

    /// The server handles a message that arrives on this link.
    pub(super) fn receives_on(&mut self, id: ServerId, link: LinkId, message: PeerMessage) {
        self.takes(id, &Input::Peer(link, PeerEvent::Message(message)));
    }

    pub(super) fn is_linked(&mut self, id: ServerId, link: LinkId, peer: ServerId, dialled: bool) {
        self.takes(id, &Input::Peer(link, PeerEvent::Up { peer, dialled }));
    }

    fn link_of(&self, a: ServerId, b: ServerId) -> LinkId {
        if self.members[&a].leader == Some(b) { link(a, b) } else { link(b, a) }
    }

    pub(super) fn votes(&mut self, by: ServerId, vote: Vote, history_status: HistoryStatus) {
        let status = self.member(by).status();
        let (server_state, history) =
            (ServerState::Looking, HistoryInfo::new(history_status, status.current_epoch));
        let word = Notification { server_state, round: 1, vote, history, ensemble: 0 };
        let election = &[(ServerId(9), word)];
        let (disk, peers) = (&[], &[]);
        self.sees(Observation::Output { server: by, disk, peers, election, status: &status });
    }

    /// The vote of a server for itself.
    pub(super) fn own_vote(&mut self, id: ServerId) -> Vote {
        let member = self.member(id);
        Vote { epoch: member.state.current_epoch, zxid: member.end(), candidate: id }
    }

    // The phases of an epoch.

    /// The server begins to lead.
    pub(super) fn rises(&mut self, id: ServerId) {
        let alone = self.members.len() == 1;
        let member = self.member(id);
        member.mode = if alone { Mode::Standalone } else { Mode::Leader };
        (member.leader, member.serving) = (Some(id), false);
        self.shows(id);
    }

    /// The server begins to follow this leader; both get the link, and it sends FOLLOWERINFO.
    pub(super) fn turns_to(&mut self, id: ServerId, leader: ServerId) {
        let member = self.member(id);
        (member.mode, member.leader, member.serving) = (Mode::Follower, Some(leader), false);
        member.entered = false;
        self.shows(id);
        let link = link(id, leader);
        for (server, peer, dialled) in [(id, leader, true), (leader, id, false)] {
            self.is_linked(server, link, peer, dialled);
        }
        let history_status = self.history_status(id);
        let state = &self.member(id).state;
        let (accepted, history) =
            (state.accepted_epoch, HistoryInfo::new(history_status, state.current_epoch));
        self.sends(
            id,
            leader,
            PeerMessage::Learner(FromLearner::FollowerInfo { accepted, history, ensemble: 0 }),
        );
    }

    pub(super) fn history_status(&mut self, id: ServerId) -> HistoryStatus {
        let state = &self.member(id).state;
        match (state.damaged, state.current_epoch.0) {
            (true, _) => HistoryStatus::Lost,
            (false, 0) => HistoryStatus::Uninitialized,
            (false, _) => HistoryStatus::Complete,
        }
    }

    /// The leader sends LEADERINFO with its epoch to a learner, which promises the epoch.
    pub(super) fn promises(&mut self, id: ServerId, leader: ServerId, epoch: Epoch) {
        self.receives_epoch(id, leader, epoch);
        let fresh = self.member(id).state.accepted_epoch < epoch;
        self.saves(id, |state| state.accepted_epoch = epoch);
        self.confirms(id);
        self.acks_epoch_as(id, leader, fresh);
    }

    pub(super) fn receives_epoch(&mut self, id: ServerId, leader: ServerId, epoch: Epoch) {
        let empty = self.member(leader).log.is_empty();
        self.sends(
            leader,
            id,
            PeerMessage::Leader(FromLeader::LeaderInfo { epoch, empty, ensemble: 0, blank: false }),
        );
    }

    pub(super) fn acks_epoch(&mut self, id: ServerId, leader: ServerId) {
        self.acks_epoch_as(id, leader, true);
    }

    pub(super) fn acks_epoch_as(&mut self, id: ServerId, leader: ServerId, fresh: bool) {
        let member = self.member(id);
        let (current, last) = (member.state.current_epoch, member.end());
        self.sends(
            id,
            leader,
            PeerMessage::Learner(FromLearner::AckEpoch { fresh, current, last, nonce: 0 }),
        );
    }

    /// The leader stores its own promise.
    pub(super) fn promises_itself(&mut self, id: ServerId, epoch: Epoch) {
        self.saves(id, |state| state.accepted_epoch = epoch);
        self.confirms(id);
    }

    /// The leader stores the epoch: its log becomes the initial history.
    pub(super) fn begins(&mut self, id: ServerId, epoch: Epoch) {
        self.saves(id, |state| state.current_epoch = epoch);
        self.confirms(id);
    }

    /// A learner is brought to its leader's history, and gets NEWLEADER.
    pub(super) fn is_synced_with(&mut self, id: ServerId, leader: ServerId, epoch: Epoch) {
        let theirs = self.member(leader).log.clone();
        let shared = |entry: &&Entry| theirs.iter().any(|other| other.zxid == entry.zxid);
        let kept = self.member(id).log.iter().filter(shared).map(|entry| entry.zxid).max();
        let kept = kept.unwrap_or(Zxid::ZERO);
        if kept < self.member(id).end() {
            self.sends(leader, id, PeerMessage::Leader(FromLeader::Trunc { to: kept }));
            self.cuts(id, kept);
            self.sends(
                id,
                leader,
                PeerMessage::Learner(FromLearner::SyncAt { last: kept, nonce: 0 }),
            );
        }
        for entry in theirs.into_iter().filter(|entry| entry.zxid > kept) {
            self.gets(id, leader, &entry);
        }
        self.sends(leader, id, new_leader(epoch));
    }

    /// A learner gets a proposal and logs it.
    pub(super) fn gets(&mut self, id: ServerId, leader: ServerId, entry: &Entry) {
        self.sends(leader, id, PeerMessage::Leader(FromLeader::Proposal(entry.clone())));
        self.logs(id, entry);
    }

    /// A learner stores the epoch behind its history and acknowledges NEWLEADER.
    pub(super) fn enters(&mut self, id: ServerId, leader: ServerId, epoch: Epoch) {
        self.saves(id, |state| state.current_epoch = epoch);
        self.confirms(id);
        self.sends(id, leader, PeerMessage::Learner(FromLearner::AckNewLeader { epoch }));
        self.member(id).entered = true;
        self.acknowledges(id);
    }

    /// The leader begins to serve: its history is committed.
    pub(super) fn serves(&mut self, id: ServerId) {
        let member = self.member(id);
        member.serving = true;
        member.committed = member.end();
        self.shows(id);
        self.applies_all(id);
    }

    /// An earlier epoch's leader that does not know of the later one begins to serve.
    pub(super) fn serves_late(&mut self, id: ServerId) {
        let member = self.member(id);
        member.serving = true;
        self.shows(id);
    }

    /// A server leaves its role and begins to lead again, without a restart.
    pub(super) fn starts_again(&mut self, id: ServerId) {
        self.looks(id);
        self.rises(id);
    }

    /// The server looks for a leader.
    pub(super) fn looks(&mut self, id: ServerId) {
        self.looks_and(id, &[]);
    }

    /// The server looks for a leader, and its step gives these commands to its links.
    pub(super) fn looks_and(&mut self, id: ServerId, peers: &[PeerCommand]) {
        let member = self.member(id);
        (member.mode, member.leader, member.serving) = (Mode::Looking, None, false);
        member.entered = false;
        self.puts(id, &[], peers);
    }

    /// The server finds no leader and becomes read-only; its status names this leader.
    pub(super) fn becomes_read_only(&mut self, id: ServerId, leader: Option<ServerId>) {
        let member = self.member(id);
        (member.mode, member.leader, member.serving) = (Mode::ReadOnly, leader, false);
        self.shows(id);
    }

    /// The disk model of the server forgets the entries after `last`, as if the disk had never held
    /// them.
    pub(super) fn forgets(&mut self, id: ServerId, last: Zxid) {
        self.member(id).durable = last;
        self.oracles.pretend(id, last);
    }

    /// A sample of the server's durable state.
    pub(super) fn audit(&mut self, server: ServerId, state: DurableState, last: Zxid, digest: u64) {
        self.sees(Observation::DurableAudit { server, state, last, digest, holder: Holder(None) });
    }

    /// A follower begins to serve, and applies all entries but `without`.
    pub(super) fn joins_without(&mut self, id: ServerId, leader: ServerId, without: Option<Zxid>) {
        let kept = self.member(id).log.clone();
        self.member(id).log.retain(|entry| Some(entry.zxid) != without);
        self.joins(id, leader);
        let member = self.member(id);
        member.applied = without.unwrap_or(member.applied);
        member.log = kept;
    }

    /// A follower gets UPTODATE and begins to serve.
    pub(super) fn joins(&mut self, id: ServerId, leader: ServerId) {
        let committed = self.member(leader).committed;
        self.sends(leader, id, PeerMessage::Leader(FromLeader::UpToDate { committed }));
        let member = self.member(id);
        member.serving = true;
        member.committed = committed;
        self.shows(id);
        self.applies_all(id);
    }

    /// The server applies all entries that it knows to be committed.
    pub(super) fn applies_all(&mut self, id: ServerId) {
        let member = self.member(id);
        let (applied, committed) = (member.applied, member.committed);
        let news = |zxid: &Zxid| (applied.0 + 1..=committed.0).contains(&zxid.0);
        let zxids: Vec<Zxid> = member.log.iter().map(|entry| entry.zxid).filter(news).collect();
        for zxid in zxids {
            self.member(id).applied = zxid;
            let digest = Some(self.model.digest_at(zxid));
            self.sees(Observation::Applied { server: id, zxid, digest, holder: Holder(None) });
        }
    }

    /// A follower gets COMMIT for what the leader has committed.
    pub(super) fn follows(&mut self, id: ServerId) {
        let leader = self.leader;
        let zxid = self.member(leader).committed;
        self.sends(leader, id, PeerMessage::Leader(FromLeader::Commit { zxid }));
        self.member(id).committed = zxid;
        self.shows(id);
        self.applies_all(id);
    }

    /// A whole epoch begins: this leader with these followers serves.
    pub(super) fn begins_leading(&mut self, leader: ServerId, followers: &[ServerId]) {
        let highest = self.members.values().map(|member| member.state.accepted_epoch).max();
        let epoch = highest.expect("a cast").next().expect("room");
        self.rises(leader);
        followers.iter().for_each(|id| self.turns_to(*id, leader));
        followers.iter().for_each(|id| self.promises(*id, leader, epoch));
        self.promises_itself(leader, epoch);
        self.begins(leader, epoch);
        followers.iter().for_each(|id| self.is_synced_with(*id, leader, epoch));
        followers.iter().for_each(|id| self.enters(*id, leader, epoch));
        (self.leader, self.epoch) = (leader, epoch);
        self.serves(leader);
        followers.iter().for_each(|id| self.joins(*id, leader));
    }

    /// The server's process ends.
    pub(super) fn dies(&mut self, id: ServerId) {
        self.sees(Observation::Stopped { server: id });
        let member = self.member(id);
        (member.mode, member.leader, member.serving) = (Mode::Looking, None, false);
        member.entered = false;
    }

    /// The server starts again with everything that its disk holds, and with the usual session
    /// options.
    pub(super) fn returns(&mut self, id: ServerId) {
        let rules = &self.model.rules().local;
        let (local, upgrade) = (rules.servers.contains(&id), rules.upgrade);
        self.returns_with(id, SessionOptions { local, upgrade });
    }

    /// As [`Self::returns`], with these session options.
    pub(super) fn returns_with(&mut self, id: ServerId, sessions: SessionOptions) {
        self.sees(Observation::Started { server: id, sessions });
        let member = self.member(id);
        (member.write, member.applied, member.committed) = (0, Zxid::ZERO, Zxid::ZERO);
        let (state, last) = (member.state.clone(), member.end());
        member.durable = last;
        self.sees(Observation::Recovered { server: id, state, last });
    }
}

/// This many servers, by id.
pub(super) fn cast(count: u64) -> BTreeMap<ServerId, Member> {
    (1..=count).map(|id| (ServerId(id), Member::new(ServerId(id)))).collect()
}

/// NEWLEADER for this epoch.
pub(super) fn new_leader(epoch: Epoch) -> PeerMessage {
    let identity = Seed::from(1).identity(epoch);
    let (voters, established) = ([].into(), [].into());
    PeerMessage::Leader(FromLeader::NewLeader {
        epoch,
        voters,
        established,
        identity,
        nonces: Vec::new(),
    })
}
