//! What servers log, commit and apply: the white-box oracles (Z).
//!
//! Owns the table of epochs with every proposal, the committed history, and the progress of each
//! server. Must not decode transactions: `commit` compares them with the model. Commands to disks
//! are checked in `logs`, disk contents in `disks`, messages between servers in `peer_messages`.
//!
//! A leader's committed zxid makes a transaction committed, and needs evidence: a majority of
//! voters that hold the transaction durably and have taken over the history of the leader's own
//! epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::time::Duration;

use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::store::{DiskCommand, DurableState, Entry};
use zabkeeper_core::{Epoch, Instant, LinkId, Mode, ServerId, Status, Zxid};

use super::catalog::{Broken, Checks, Id, Verdict};
use super::configs::Configs;
use super::disk_model::{DiskDigest, DiskModel};
use super::epochs::{Begun, Epochs, Promises, Proposed};
use super::history::Path;
use super::link::Link;
use super::text::maybe;
use super::voters::Voters;

/// Longest time that a leader may serve without a majority (Z24). It checks with every ping, and a
/// ping waits for the leader's step.
const FORSAKEN: Duration = Duration::from_secs(10);

/// The output of one step of a server.
pub(super) struct Acts<'a> {
    pub(super) disk: &'a [DiskCommand],
    pub(super) peers: &'a [PeerCommand],
    pub(super) election: &'a [(ServerId, Notification)],
    pub(super) status: &'a Status,
}

/// All proposals, the committed history and the servers.
#[derive(Clone, Debug)]
pub(super) struct Zab {
    pub(super) voters: Voters,
    /// What clients have made of them; `None` if the configuration is static.
    pub(super) configs: Option<Configs>,
    /// A server has stored the present voters since the operator replaced them; the first voters
    /// replace none. A reconfiguration replaces none of these either: until its commit is known, a
    /// leader orders the voters before it again (seed 0x7e57000035 of the swarm at 5f5827a).
    pub(super) renewed: bool,
    pub(super) epochs: Epochs,
    pub(super) servers: BTreeMap<ServerId, Server>,
    /// The committed history.
    pub(super) committed: Path,
    /// Digests of disks at zxids that are not committed yet.
    pub(super) waiting: Vec<DiskDigest>,
}

/// A transaction that has just become committed.
pub(super) struct Committed {
    pub(super) entry: Entry,
    pub(super) proposed: Proposed,
}

/// The state of one server, as observed.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) disk_model: DiskModel,
    /// Per epoch: the end of the durable log while that epoch was both accepted and current.
    pub(super) synced: BTreeMap<Epoch, Zxid>,
    /// Whether the durable state file names the present voters; `None` before the first one was
    /// read or confirmed.
    pub(super) names_all: Option<bool>,
    /// Epochs for which the durable state file named the present voters while the epoch was both
    /// accepted and current.
    pub(super) named: BTreeSet<Epoch>,
    /// The highest epochs ever found or confirmed on its disk.
    pub(super) accepted: Epoch,
    pub(super) current: Epoch,
    /// Epochs that it has promised in an ACKEPOCH marked as new.
    pub(super) promised: BTreeSet<Epoch>,
    /// (epoch, zxid) of every vote that it has cast for itself.
    pub(super) stood: BTreeSet<(Epoch, Zxid)>,
    /// The world's oracle permits it to go on without the other voter.
    pub(super) permitted: bool,
    pub(super) links: BTreeMap<LinkId, Link>,
    /// The link whose message the present step handles.
    pub(super) cause: Option<LinkId>,
    /// The present step handles an input of its election, links or disk.
    pub(super) catches_up: bool,
    /// While it collects promises as a prospective leader.
    pub(super) promises: Promises,
    /// As a leader, per learner: when the newest message left that the learner has answered.
    pub(super) confirmed: BTreeMap<ServerId, Instant>,
    /// As a leader: a quorum has answered messages that left at this time or later.
    pub(super) agreed: Instant,
    /// Last transaction applied since the start of the process, if one was observed.
    pub(super) applied: Option<Zxid>,
    /// Zxid of the leader's snapshot that is about to replace the tree.
    pub(super) jump: Option<Zxid>,
    /// The highest committed zxid that its status has reported.
    claimed: Zxid,
    /// Highest zxid in any reply that a client has read from it.
    pub(super) answered: Zxid,
    pub(super) leads: bool,
    /// Whether it led when the present step began.
    pub(super) led: bool,
    pub(super) leads_since: Instant,
    pub(super) serves: bool,
    pub(super) follows: Option<ServerId>,
    /// Its status reports that it has halted.
    pub(super) halted: bool,
    /// Since when it serves as a leader without a majority of synced followers.
    forsaken_since: Option<Instant>,
    /// When `leads`, `follows` or `serves` last changed, and when before that.
    pub(super) role_since: Instant,
    role_before_since: Instant,
}

impl Server {
    pub(super) fn acts_as_leader(&self) -> bool {
        self.leads || self.led
    }

    pub(super) fn path(&self) -> &Path {
        &self.disk_model.issued().path
    }
}

impl Zab {
    pub(super) fn new(voters: &[ServerId], reconfigured: bool) -> Zab {
        Zab {
            voters: Voters::of(voters.iter().copied()),
            configs: reconfigured.then(Configs::default),
            renewed: true,
            epochs: Epochs::default(),
            servers: BTreeMap::new(),
            committed: Path::default(),
            waiting: Vec::new(),
        }
    }

    pub(super) fn server(&mut self, id: ServerId) -> &mut Server {
        self.servers.entry(id).or_default()
    }

    /// The last transaction that the server was seen to apply since its start.
    pub(super) fn applied_by(&self, id: ServerId) -> Option<Zxid> {
        self.servers.get(&id)?.applied
    }

    /// Whether there is only one voter.
    pub(super) fn is_alone(&self) -> bool {
        self.voters.ids.len() == 1
    }

    /// Whether the server leads, by its last status.
    pub(super) fn leads(&self, id: ServerId) -> bool {
        self.servers.get(&id).is_some_and(|server| server.leads)
    }

    /// The epoch that the server leads, once it has sent LEADERINFO.
    pub(super) fn leads_epoch(&self, id: ServerId) -> Option<Epoch> {
        let server = self.servers.get(&id).filter(|server| server.leads)?;
        Some(server.promises.epoch).filter(|epoch| *epoch > Epoch(0))
    }

    /// Whether the server leads an epoch that has no zxid left, of `most` at most (zero: no bound).
    pub(super) fn has_used_up(&self, id: ServerId, most: u32) -> bool {
        let leads = |server: &&Server| server.leads && server.path().end().counter() >= most;
        most > 0 && self.servers.get(&id).is_some_and(|server| leads(&server))
    }

    /// The voters are replaced by these.
    pub(super) fn grown(&mut self, voters: &[ServerId]) {
        self.voters = Voters::of(voters.iter().copied());
        self.renewed = false;
        for id in Vec::from_iter(self.servers.keys().copied()) {
            self.note_voters(id);
        }
    }

    /// Compares the server's state file with the present voters again, after either has changed.
    pub(super) fn note_voters(&mut self, id: ServerId) {
        let names_all = self.voters_before(id) == self.voters;
        self.server(id).names_all = Some(names_all);
    }

    /// Whether the server has this link and has seen its `Up` event.
    pub(super) fn has_link(&self, id: ServerId, link: LinkId) -> bool {
        self.servers.get(&id).is_some_and(|server| server.links.contains_key(&link))
    }

    /// The server's end of this link.
    pub(super) fn link(&self, id: ServerId, link: LinkId) -> Option<&Link> {
        self.servers.get(&id)?.links.get(&link)
    }

    /// The server at the other end of the link.
    pub(super) fn peer_of(&self, id: ServerId, link: LinkId) -> Option<ServerId> {
        Some(self.link(id, link)?.peer)
    }

    /// How many learners have sent FOLLOWERINFO on links of this server, and how many followers
    /// and observers of them have acknowledged NEWLEADER.
    pub(super) fn learners_of(&self, id: ServerId) -> [usize; 3] {
        let links = self.servers.get(&id).into_iter().flat_map(|server| server.links.values());
        let learners = links.filter(|link| link.history_status.is_some());
        learners.fold([0; 3], |[all, following, observing], link| {
            let [voter, observer] = [false, true].map(|observes| {
                usize::from(link.synced && self.observes(id, link.peer) == observes)
            });
            [all + 1, following + voter, observing + observer]
        })
    }

    /// The learners that have sent FOLLOWERINFO on links of this server: whether each has
    /// acknowledged NEWLEADER, and the last zxid that it has acknowledged on the link.
    pub(super) fn progress_of(&self, id: ServerId) -> BTreeMap<ServerId, (bool, Zxid)> {
        let links = self.servers.get(&id).into_iter().flat_map(|server| server.links.values());
        let learners = links.filter(|link| link.history_status.is_some());
        learners.map(|link| (link.peer, (link.synced, link.acked))).collect()
    }

    /// The leader that the server follows, and when its role last changed (see
    /// [`Self::role_since`]).
    pub(super) fn follows(&self, id: ServerId) -> Option<(ServerId, Instant)> {
        let server = self.servers.get(&id)?;
        server.follows.map(|leader| (leader, server.role_since))
    }

    /// Whether the server serves clients, by its last status.
    pub(super) fn serves(&self, id: ServerId) -> bool {
        self.servers.get(&id).is_some_and(|server| server.serves)
    }

    /// When the server last began or ceased to lead, to follow its leader, or to serve.
    pub(super) fn role_since(&self, id: ServerId) -> Instant {
        self.servers.get(&id).map_or(Instant::default(), |server| server.role_since)
    }

    /// The same at the beginning of the step of this time: a server may end a local session, and
    /// then its role (seed 0x20112e2d of the swarm at 078d42e).
    pub(super) fn role_since_before(&self, id: ServerId, now: Instant) -> Instant {
        let server = self.servers.get(&id);
        server.map_or(Instant::default(), |server| {
            if server.role_since == now { server.role_before_since } else { server.role_since }
        })
    }

    /// Whether no leader of a later epoch has begun to serve.
    pub(super) fn is_newest(&self, epoch: Epoch) -> bool {
        self.epochs.established(epoch).all(|(other, _)| other < epoch)
    }

    /// The latest time at which a leader of a new epoch began to serve.
    pub(super) fn last_established(&self) -> Instant {
        self.epochs.last_established()
    }

    /// A client has read a reply of this server that names `zxid`.
    pub(super) fn answered(&mut self, id: ServerId, zxid: Zxid) {
        let server = self.server(id);
        server.answered = server.answered.max(zxid);
    }

    /// The server's process starts or ends.
    pub(super) fn restarted(&mut self, id: ServerId, at: Instant) {
        self.forgets_config(id);
        let server = self.server(id);
        server.links.clear();
        server.cause = None;
        server.applied = None;
        server.jump = None;
        server.claimed = Zxid::ZERO;
        (server.leads, server.led, server.serves, server.follows) = (false, false, false, None);
        server.halted = false;
        server.permitted = false;
        server.role_since = at;
        server.forsaken_since = None;
    }

    /// Takes the role from the status after a step; returns whether it has changed.
    pub(super) fn role(&mut self, id: ServerId, status: &Status, at: Instant) -> bool {
        let leads = matches!(status.mode, Mode::Leader | Mode::Standalone);
        let server = self.server(id);
        // A voter that is a quorum alone may be elected again in the step in which it steps down.
        let again = server.serves && !status.serving;
        if leads && (!server.leads || again) {
            server.leads_since = at;
            server.promises = Promises::default();
            server.confirmed.clear();
            server.agreed = Instant::default();
        }
        let follows =
            status.leader.filter(|_| matches!(status.mode, Mode::Follower | Mode::Observer));
        let (before, now) =
            ((server.leads, server.follows, server.serves), (leads, follows, status.serving));
        if before != now {
            server.role_before_since = server.role_since;
            server.role_since = at;
        }
        server.led = server.leads;
        server.halted = status.halted.is_some();
        (server.leads, server.follows, server.serves) = now;
        before != now
    }

    /// Z24: a leader without a majority of synced followers steps down in time. `awake` is the end
    /// of its last pause.
    pub(super) fn keeps_a_majority(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        status: &Status,
        now: Instant,
        awake: Instant,
    ) -> Verdict {
        let all = self.quorum_of(id);
        let voters = all.ids.len();
        let links = || self.servers.get(&id).into_iter().flat_map(|server| server.links.values());
        let synced = |peer| links().any(|link| link.peer == peer && link.synced);
        let enough = match (&all.weights, &self.configs) {
            (None, None) => (status.synced_followers + 1) * 2 > voters,
            (_, _) => all.most(|peer| peer == id || synced(peer)),
        };
        let server = self.server(id);
        let leads = status.mode == Mode::Leader && status.serving;
        if !leads || enough {
            server.forsaken_since = None;
            return Ok(());
        }
        let since = (*server.forsaken_since.get_or_insert(now)).max(awake);
        checks.check(Id::Z24, now.since(since) <= FORSAKEN, || {
            let followers = status.synced_followers;
            let needed = voters / 2;
            vec![format!(
                "server {id} has led with {followers} followers since {since}; {needed} are \
                 needed, and without them \
                 {FORSAKEN:?} are allowed"
            )]
        })
    }

    /// Z18: the log behind which an epoch is stored contains the history that the epoch began with.
    pub(super) fn has_initial(
        &self,
        checks: &mut Checks,
        id: ServerId,
        epoch: Epoch,
        path: &Path,
        does: &str,
    ) -> Verdict {
        let initial = self.epochs.initial(epoch);
        let held = initial.is_some_and(|initial| path.contains(initial.end()));
        checks.check(Id::Z18, held, || {
            let (end, initial) = (path.end(), initial.map(Path::end));
            vec![format!(
                "server {id} {does} epoch {epoch} behind {end}; the epoch began with {}",
                maybe(initial)
            )]
        })
    }

    /// Z1: the leader's log becomes the initial history of the epoch, which no other server has
    /// begun.
    pub(super) fn begins(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        epoch: Epoch,
        at: Instant,
    ) -> Verdict {
        let initial = self.servers[&id].path().clone();
        let view = self.epochs.of_mut(epoch);
        let begun = view.begun.get_or_insert(Begun { leader: id, initial, at });
        let (leader, since) = (begun.leader, begun.at);
        checks.check(Id::Z1, leader == id, || {
            vec![format!(
                "server {id} begins epoch {epoch}, which server {leader} began at {since}"
            )]
        })
    }

    /// A leader serves clients or sends UPTODATE. Its initial history is held and its voters are
    /// stored by a quorum (Z1), nothing committed is missing (Z11), and other epochs' initial
    /// histories are prefixes or extensions (Z8).
    pub(super) fn establishes(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        at: Instant,
    ) -> Verdict {
        let server = &self.servers[&id];
        let epoch = server.disk_model.issued().state.current_epoch;
        let view = self.epochs.of(epoch);
        if view.is_some_and(|view| view.established.is_some()) {
            let leader = view.and_then(|view| view.begun.as_ref()).map(|begun| begun.leader);
            return checks.check(Id::Z1, leader == Some(id), || {
                vec![format!(
                    "server {id} serves in epoch {epoch}; its leader is {}",
                    maybe(leader)
                )]
            });
        }
        let initial = self.epochs.initial(epoch).cloned();
        let end = initial.as_ref().map(Path::end);
        let has_quorum = end.is_some_and(|end| self.has_evidence(id, epoch, end));
        checks.check(Id::Z1, has_quorum, || {
            let mut evidence =
                vec![format!("server {id} serves in epoch {epoch}, begun after {}", maybe(end))];
            evidence.extend(self.evidence(epoch));
            evidence
        })?;
        let named = |id| self.servers.get(&id).is_some_and(|server| server.named.contains(&epoch));
        // Once the log names the voters, a quorum that holds the history has them.
        let alone = self.goes_alone(id) && named(id);
        let known = self.is_configured(id) || self.voters.most(named) || alone;
        checks.check(Id::Z1, known, || {
            let lists = self.servers.iter();
            let lists = lists.map(|(id, server)| (id, &server.disk_model.durable().state.voters));
            let lists = lists.map(|(id, voters)| format!("server {id} keeps {voters:?}"));
            let what = format!("server {id} serves in epoch {epoch}; voters are {:?}", self.voters);
            iter::once(what).chain(lists).collect()
        })?;
        let initial = initial.expect("held");
        let committed = self.committed.before_epoch(epoch);
        checks.check(Id::Z11, initial.contains(committed), || {
            vec![format!(
                "server {id} leads epoch {epoch} with a history up to {}; it lacks {committed}, \
                 which is committed",
                initial.end()
            )]
        })?;
        for (other, theirs) in self.epochs.established(epoch) {
            let (shorter, longer) =
                if other < epoch { (theirs, &initial) } else { (&initial, theirs) };
            checks.check(Id::Z8, longer.contains(shorter.end()), || {
                vec![format!(
                    "epoch {epoch} began after {}, and epoch {other} after {}",
                    initial.end(),
                    theirs.end()
                )]
            })?;
        }
        self.epochs.of_mut(epoch).established = Some(at);
        Ok(())
    }

    pub(super) fn evidence(&self, epoch: Epoch) -> Vec<String> {
        let one = |(id, server): (&ServerId, &Server)| {
            let (durable, synced) = (server.disk_model.durable(), server.synced.get(&epoch));
            let DurableState { accepted_epoch, current_epoch, .. } = durable.state;
            format!(
                "server {id}: log durable up to {}, accepted {accepted_epoch}, current \
                 {current_epoch}; of epoch {epoch} up to {}",
                server.disk_model.kept().end(),
                maybe(synced)
            )
        };
        self.servers.iter().map(one).collect()
    }

    /// Checks the committed zxid of the server's status. Returns it if it extends the committed
    /// history.
    pub(super) fn claims(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        zxid: Zxid,
    ) -> Result<Option<Zxid>, Broken> {
        let server = self.server(id);
        if zxid <= server.claimed {
            return Ok(None);
        }
        server.claimed = zxid;
        let server = &self.servers[&id];
        let tip = self.committed.end();
        if zxid <= tip {
            let late = server.acts_as_leader() && zxid.epoch() < tip.epoch();
            let kind = if late { Id::Z6 } else { Id::Z3 };
            return checks
                .check(kind, self.committed.at_or_before(zxid) == zxid || zxid.counter() == 0, || {
                    vec![format!(
                        "server {id} takes {zxid} as committed; the history up to {tip} lacks it"
                    )]
                })
                .map(|()| None);
        }
        checks.check(Id::Z13, server.acts_as_leader(), || {
            vec![format!(
                "server {id}, which does not lead, takes {zxid} as committed, and no leader \
                 anything beyond {tip}"
            )]
        })?;
        checks.check(Id::Z2, server.path().contains(zxid), || {
            vec![format!("server {id} commits {zxid}, which is not in its log")]
        })?;
        let epoch = server.disk_model.issued().state.current_epoch;
        checks.check(Id::Z13, self.has_evidence(id, epoch, zxid), || {
            let mut evidence = vec![format!("server {id} commits {zxid} as leader of {epoch}")];
            evidence.extend(self.evidence(epoch));
            evidence
        })?;
        checks.check(Id::Z3, server.path().contains(tip), || {
            vec![format!(
                "server {id} commits {zxid}, and its log leaves the committed history after {}, \
                 which has reached {tip}",
                server.path().at_or_before(tip)
            )]
        })?;
        Ok(Some(zxid))
    }

    /// Extends the committed history by this server's log up to `zxid`; returns the new
    /// transactions, oldest first.
    pub(super) fn chain(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        zxid: Zxid,
    ) -> Result<Vec<Committed>, Broken> {
        let mut chain = Vec::new();
        for next in self.servers[&id].path().between(self.committed.end(), zxid) {
            let proposal = self.epochs.proposal(next);
            checks.check(Id::Z2, proposal.is_some(), || {
                vec![format!("{next} is taken as committed, and nobody has proposed it")]
            })?;
            let proposal = proposal.expect("held");
            let entry = Entry { zxid: next, bytes: proposal.bytes.clone() };
            chain.push(Committed { entry, proposed: proposal.when.clone() });
            self.committed.push(next);
        }
        Ok(chain)
    }

    /// The server has applied the transaction `zxid`.
    pub(super) fn apply(&mut self, checks: &mut Checks, id: ServerId, zxid: Zxid) -> Verdict {
        let committed = &self.committed;
        let server = self.servers.entry(id).or_default();
        let before = server.applied;
        checks.check(Id::Z4, before.is_none_or(|before| before < zxid), || {
            vec![format!("server {id} applies {zxid} after {}", maybe(before))]
        })?;
        checks.check(Id::Z13, zxid <= committed.end(), || {
            vec![format!("server {id} applies {zxid}, and leaders have only {}", committed.end())]
        })?;
        checks.check(Id::Z3, committed.contains(zxid), || {
            vec![format!("server {id} applies {zxid}, which is not in the committed history")]
        })?;
        let end = server.path().end();
        let jump = server.jump.take_if(|jump| *jump == zxid);
        checks.check(Id::Z2, jump.is_some() || server.path().contains(zxid), || {
            vec![format!(
                "server {id} applies {zxid}, and it is not in its log, which ends at {end}"
            )]
        })?;
        // The first apply after a start may have any zxid: recovery may begin at a snapshot.
        if let (Some(before), None) = (before, jump) {
            let next = committed.between(before, zxid).first().copied();
            let kind =
                if next.is_some_and(|next| next.epoch() < zxid.epoch()) { Id::Z9 } else { Id::Z5 };
            checks.check(kind, next == Some(zxid), || {
                vec![format!(
                    "server {id} applies {zxid} after {before}; next in the history is {}",
                    maybe(next)
                )]
            })?;
        }
        checks.check(Id::Z9, true, Vec::new)?;
        server.applied = Some(zxid);
        Ok(())
    }

    /// Test set-up: cuts the server's disk model to `last`, as if it had never logged more.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, id: ServerId, last: Zxid) {
        let mut held = self.servers[&id].disk_model.issued().clone();
        held.path.cut(last);
        self.server(id).disk_model.reset(held);
    }

    /// Z20: the watermarks in the server's status are in order.
    pub(super) fn watermarks(&self, checks: &mut Checks, id: ServerId, status: &Status) -> Verdict {
        let Status { applied, committed, appended, durable, snapshot, .. } = status;
        let ordered = snapshot <= applied
            && applied <= committed
            && committed <= appended
            && durable <= appended;
        let server = &self.servers[&id];
        let halfway = server.disk_model.issued().state.damaged || server.jump.is_some();
        checks.check(Id::Z20, ordered || halfway || status.halted.is_some(), || {
            vec![format!(
                "server {id}: snapshot {snapshot}, applied {applied}, committed {committed}, \
                 durable {durable}, appended {appended}"
            )]
        })
    }
}
