//! Configurations that leaders propose, and which servers vote in them (Z21, Z22).
//!
//! Owns every proposed configuration and the one that each server has in force. Must not know how
//! servers compute quorums, nor which requests were made.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::store::{DurableState, Entry, THIS_SERVER};
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::{Epoch, ErrorCode, ServerId, Zxid};

use super::catalog::{Broken, Checks, Id, Verdict};
use super::history::Path;
use super::link::Link;
use super::text::maybe;
use super::voters::Voters;
use super::zab::Zab;
use crate::check::ensemble::{self, Ensemble};

/// All configurations of a run in which clients reconfigure the ensemble.
#[derive(Clone, Default, Debug)]
pub(super) struct Configs {
    /// By the zxid of the transaction.
    proposed: BTreeMap<Zxid, Config>,
    /// The version that each server has in force, where a leader has established one.
    in_force: BTreeMap<ServerId, Zxid>,
    /// Servers that put another one in force in this step. What they send in it, they have sent
    /// as members of the earlier one.
    changing: BTreeSet<ServerId>,
}

/// A configuration.
#[derive(Clone, Debug)]
struct Config {
    version: Zxid,
    voters: Voters,
    observers: BTreeSet<ServerId>,
}

impl Configs {
    /// The last configuration that the history contains, and its transaction.
    fn last_on(&self, path: &Path) -> Option<(Zxid, &Config)> {
        let all = self.proposed.iter().rev();
        all.map(|(zxid, config)| (*zxid, config)).find(|(zxid, _)| path.contains(*zxid))
    }

    /// The configuration with this version, and its transaction.
    fn versioned(&self, version: Zxid) -> Option<(Zxid, &Config)> {
        let mut all = self.proposed.iter();
        all.find(|(_, config)| config.version == version).map(|(zxid, config)| (*zxid, config))
    }
}

impl Zab {
    /// The voters in the configuration of the files of this server.
    fn listed_by(&self, id: ServerId) -> Voters {
        Voters::of(self.voters.ids.iter().copied().chain([id]))
    }

    /// The voters as this server knows them: those of the configuration in force, and of the next
    /// one if it is logged. Without reconfigurations, those of the run.
    pub(super) fn voters_of(&self, id: ServerId) -> Cow<'_, Voters> {
        let Some(configs) = &self.configs else {
            return Cow::Borrowed(&self.voters);
        };
        let version = configs.in_force.get(&id).copied().unwrap_or_default();
        let active = self.active_voters(configs, id);
        let next = self.servers.get(&id).and_then(|server| configs.last_on(server.path()));
        Cow::Owned(match next.filter(|(_, next)| next.version > version) {
            Some((_, next)) => active.before(&next.voters),
            None => active,
        })
    }

    /// The voters of which this server needs a quorum as a leader: itself, if it goes on alone.
    pub(super) fn quorum_of(&self, id: ServerId) -> Cow<'_, Voters> {
        if self.goes_alone(id) { Cow::Owned(Voters::of([id])) } else { self.voters_of(id) }
    }

    /// The server closes links.
    pub(super) fn closes(&mut self, id: ServerId, commands: &[PeerCommand]) {
        for command in commands {
            if let PeerCommand::Close(link, _) = command
                && let Some(link) = self.server(id).links.get_mut(link)
            {
                link.closed = true;
            }
        }
    }

    /// QV-03: the oracle permits one of two voters to go on alone while the other one has not its
    /// history, or has no link.
    pub(super) fn goes_alone(&self, id: ServerId) -> bool {
        let Some(server) = self.servers.get(&id) else { return false };
        let two = self.voters.ids.len() == 2 && self.voters.weights.is_none();
        let mut links = server.links.values();
        server.permitted
            && two
            && self.configs.is_none()
            && self.voters.contains(id)
            && !links.any(|link| link.synced && !link.closed && self.voters.contains(link.peer))
    }

    /// The voters of the configuration that this server has in force.
    fn active_voters(&self, configs: &Configs, id: ServerId) -> Voters {
        let version = configs.in_force.get(&id).copied().unwrap_or_default();
        match configs.versioned(version) {
            Some((_, config)) => config.voters.clone(),
            None => self.listed_by(id),
        }
    }

    /// Whether the log of this server has named its voters.
    pub(super) fn is_configured(&self, id: ServerId) -> bool {
        let configs = self.configs.as_ref();
        configs.is_some_and(|configs| configs.in_force.contains_key(&id))
    }

    /// The configuration that this server has logged and that is not in force there: its
    /// transaction, its version, the voters in force and the next ones.
    pub(super) fn pending_config(&self, id: ServerId) -> Option<(Zxid, Zxid, [Voters; 2])> {
        let configs = self.configs.as_ref()?;
        let version = configs.in_force.get(&id).copied().unwrap_or_default();
        let (zxid, next) = configs.last_on(self.servers.get(&id)?.path())?;
        let voters = [self.active_voters(configs, id), next.voters.clone()];
        (next.version > version).then_some((zxid, next.version, voters))
    }

    /// Whether the server has to acknowledge proposals: not if it observes. `None`: a
    /// reconfiguration is about to change that, or has changed it.
    pub(super) fn acknowledges(&self, id: ServerId) -> Option<bool> {
        let Some(configs) = &self.configs else {
            return Some(self.voters.contains(id));
        };
        let server = self.servers.get(&id)?;
        let durable = configs.last_on(server.disk_model.kept()).map(|(zxid, _)| zxid);
        let since = configs.proposed.range(durable.unwrap_or_default()..);
        let mut since = since.filter(|(zxid, _)| server.path().contains(**zxid));
        // A later configuration on its way to the disk may have taken the vote, and the next one
        // may have returned it (seed 0x1c of the swarm with the control `synced-twice`).
        let votes = since.all(|(_, config)| config.voters.contains(id));
        votes.then_some(true)
    }

    /// A server has this configuration in force from this step on.
    pub(super) fn in_force(&mut self, checks: &mut Checks, id: ServerId, version: Zxid) -> Verdict {
        let Some(configs) = &mut self.configs else { return Ok(()) };
        let before = configs.in_force.insert(id, version);
        configs.changing.insert(id);
        let known = configs.versioned(version).is_some();
        checks.check(Id::Z22, known && before.is_none_or(|before| before <= version), || {
            let before = maybe(before);
            vec![format!("server {id} has the configuration {version} in force, after {before}")]
        })
    }

    /// Does the server put another configuration in force in this step?
    pub(super) fn is_changing(&self, id: ServerId) -> bool {
        self.configs.as_ref().is_some_and(|configs| configs.changing.contains(&id))
    }

    /// The outputs of this step have been judged.
    pub(super) fn has_changed(&mut self, id: ServerId) {
        if let Some(configs) = &mut self.configs {
            configs.changing.remove(&id);
        }
    }

    /// Z22: the configurations in force are committed. Checked after each step that may commit.
    pub(super) fn is_committed_config(&self, checks: &mut Checks, id: ServerId) -> Verdict {
        let Some(configs) = &self.configs else { return Ok(()) };
        let Some(version) = configs.in_force.get(&id) else { return Ok(()) };
        let zxid = configs.versioned(*version).map(|(zxid, _)| zxid);
        let committed = zxid.is_some_and(|zxid| self.committed.contains(zxid));
        checks.check(Id::Z22, committed, || {
            let tip = self.committed.end();
            vec![format!(
                "server {id} has the configuration {version} in force, whose transaction {} is not \
                 among those committed up to {tip}",
                maybe(zxid)
            )]
        })
    }

    /// The process of a server ends, or its disk is replaced.
    pub(super) fn forgets_config(&mut self, id: ServerId) {
        if let Some(configs) = &mut self.configs {
            configs.in_force.remove(&id);
        }
    }

    /// Notes a configuration that a leader proposes, and checks that a quorum of its voters follows
    /// (RECONF-08). Returns who has the leader's history, if the outcome depends on that.
    pub(super) fn notes_config(
        &mut self,
        checks: &mut Checks,
        by: ServerId,
        entry: &Entry,
    ) -> Result<Option<BTreeSet<ServerId>>, Broken> {
        if self.configs.is_none() {
            return Ok(None);
        }
        let Ok(txn) = Txn::decode(entry) else { return Ok(None) };
        if let TxnOp::Error { code: ErrorCode::NewConfigNoQuorum | ErrorCode::NoAuth } = txn.op {
            return Ok(Some(self.synced_with(by)));
        }
        if txn.op == (TxnOp::Error { code: ErrorCode::ReconfigDisabled }) {
            // RECONF-01.
            checks.check(Id::Z22, self.has_older_learners(by), || {
                vec![format!("server {by} refuses at {} what no server prevents", entry.zxid)]
            })?;
        }
        let TxnOp::Reconfig { config: text } = txn.op else { return Ok(None) };
        let reads = self.older_learners(by).find(|link| link.synced && !link.closed);
        checks.check(Id::Z22, reads.is_none(), || {
            vec![format!(
                "server {by} proposes a configuration at {}, which the servers {:?} of the last \
                 release cannot read",
                entry.zxid,
                self.older_peers(by)
            )]
        })?;
        let parsed = Ensemble::parse(&text).zip(ensemble::version(text.as_bytes()));
        let Some((ensemble, version)) = parsed else {
            return Err(Broken::new(Id::Z22, vec![format!("server {by} proposes {text:?}")]));
        };
        let version = Zxid(version);
        let voters = Voters::of(ensemble.voters());
        let synced = self.synced_with(by);
        let asked = txn.origin.is_some();
        let most = voters.most(|id| synced.contains(&id));
        let configs = self.configs.as_mut().expect("looked at above");
        let newest = configs.last_on(self.servers[&by].path()).map(|(_, last)| last.version);
        let config = Config { version, voters, observers: ensemble.observers() };
        configs.proposed.insert(entry.zxid, config);
        checks.check(Id::Z22, newest < Some(version) && (most || !asked), || {
            vec![format!(
                "server {by} proposes a configuration with version {version} at {}, after {}; the \
                 servers {synced:?} have its history: {text}",
                entry.zxid,
                maybe(newest)
            )]
        })?;
        Ok(Some(synced))
    }

    /// The leader, and the servers that have its history, and would have it if both restarted, and
    /// do not observe.
    fn synced_with(&self, leader: ServerId) -> BTreeSet<ServerId> {
        let links = self.servers.get(&leader).into_iter().flat_map(|server| server.links.values());
        let synced = links.filter(|link| link.is_complete()).map(|link| link.peer);
        synced.filter(|id| !self.observes(leader, *id)).chain([leader]).collect()
    }

    /// Whether a server observes, as this leader knows the members. A server that is none of them
    /// follows.
    pub(super) fn observes(&self, leader: ServerId, id: ServerId) -> bool {
        let votes = self.voters_of(leader).contains(id);
        let Some(configs) = &self.configs else { return !votes };
        let version = configs.in_force.get(&leader).copied().unwrap_or_default();
        let active = configs.versioned(version);
        let next = configs.last_on(self.servers[&leader].path());
        let mut known = active.into_iter().chain(next.filter(|(_, next)| next.version > version));
        !votes && known.any(|(_, config)| config.observers.contains(&id))
    }

    /// The learners of a server with whom it speaks as the last release does: that one or they run
    /// it.
    fn older_learners(&self, id: ServerId) -> impl Iterator<Item = &Link> {
        let links = self.servers.get(&id).into_iter().flat_map(|server| server.links.values());
        links.filter(|link| link.older && link.history_status.is_some())
    }

    /// Those learners.
    pub(super) fn older_peers(&self, id: ServerId) -> BTreeSet<ServerId> {
        self.older_learners(id).map(|link| link.peer).collect()
    }

    /// Whether reconfigurations are disabled at this leader, because it or a learner runs the last
    /// release.
    pub(super) fn has_older_learners(&self, id: ServerId) -> bool {
        self.older_learners(id).next().is_some()
    }

    /// Z13, Z22: whether enough servers have held `zxid` durably while `epoch` was both accepted
    /// and current: a quorum of the configuration in force, and for each reconfiguration up to
    /// `zxid` that is not committed yet one of the voters before it and one of those after it.
    pub(super) fn has_evidence(&self, by: ServerId, epoch: Epoch, zxid: Zxid) -> bool {
        let held = |id: ServerId, upto: Zxid| {
            let synced = self.servers.get(&id).and_then(|server| server.synced.get(&epoch));
            synced.is_some_and(|synced| *synced >= upto)
        };
        let Some(configs) = &self.configs else {
            return self.quorum_of(by).most(|id| held(id, zxid));
        };
        let path = self.servers[&by].path();
        // A leader's late acknowledgements make a quorum of the voters it begins with, whatever
        // later epochs have committed (seed 0xf583b79743ec of the swarm at f583b79).
        let before = configs.proposed.range(..=zxid).rev();
        let mut voters = match before.into_iter().find(|(at, _)| self.committed.contains(**at)) {
            Some((_, config)) => &config.voters,
            None => &self.voters,
        };
        let tip = self.committed.end();
        let changes = configs.proposed.iter().filter(|(at, _)| **at > tip && **at <= zxid);
        for (at, config) in changes.filter(|(at, _)| path.contains(**at)) {
            if !voters.most(|id| held(id, *at)) {
                return false;
            }
            voters = &config.voters;
        }
        voters.most(|id| held(id, zxid))
    }

    /// Z22: the state file of a server names voters of a committed configuration, or of its own
    /// files before there is one: at a start, the list decides whether the last one is in force.
    pub(super) fn names_known_voters(
        &self,
        checks: &mut Checks,
        id: ServerId,
        state: &DurableState,
    ) -> Verdict {
        let Some(configs) = &self.configs else { return Ok(()) };
        let own = |voter: &ServerId| if *voter == THIS_SERVER { id } else { *voter };
        let named: BTreeSet<ServerId> = state.voters.iter().map(own).collect();
        let committed = configs.proposed.iter().filter(|(at, _)| self.committed.contains(**at));
        let known = committed.map(|(_, config)| &config.voters.ids).any(|ids| *ids == named);
        let listed = [self.voters.ids.clone(), self.listed_by(id).ids];
        checks.check(Id::Z22, named.is_empty() || known || listed.contains(&named), || {
            vec![format!("server {id} stores the voters {named:?}, and no such list is committed")]
        })
    }
}
