//! The configuration of the ensemble as replicated state: the one in force, the one that is logged
//! and not committed (Java `QuorumPeer.getLastSeenQuorumVerifier`), and the one that only others
//! have logged.
//!
//! Owns which of them the log makes known. Must not decide on reconfigurations: `zab/propose` does.
//!
//! A server that has logged a configuration needs a quorum of both (RECONF-10), whether it leads,
//! votes or acknowledges. Therefore no quorum of the old voters alone can decide behind its back:
//! each contains a server that has logged it, whose history is the later one.
//!
//! That server may vote for a candidate that only the next configuration names, and may need the
//! votes of servers that have not logged it. As in Raft, a vote therefore counts whatever the
//! voter's own configuration says: notifications carry the logged configuration, and who receives
//! it learns from it which further candidates there are, and their addresses.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Replica;
use crate::config::ReconfigOptions;
use crate::error::Corrupt;
use crate::ids::{ServerId, Zxid};
use crate::membership::{EnsembleConfig, Member, Members, Voters};
use crate::store::{Entry, THIS_SERVER};
use crate::tree::{CONFIG_NODE, Tree};
use crate::txn::{Txn, TxnOp};

/// See the module.
#[derive(Debug)]
pub(crate) struct Membership {
    active: EnsembleConfig,
    /// The configuration that is logged and not applied, and the zxid of its transaction.
    next: Option<(Zxid, EnsembleConfig)>,
    /// The newest configuration that another server has logged, while the log of this server has
    /// none as new. It counts in no quorum.
    seen: Option<EnsembleConfig>,
    /// Another server has named the active configuration; this server's log does not have it.
    adopted: bool,
    /// The members of the active configuration; until the next one is active, all members of both.
    /// Those that only the seen one names have no vote.
    members: Arc<Members>,
}

impl Membership {
    /// The membership after a start: the newest configuration among that of the files and those in
    /// the snapshot and the log; `voters` are those of the state file.
    pub(super) fn recover(
        options: Option<&ReconfigOptions>,
        tree: &Tree,
        entries: &[Entry],
        voters: &BTreeSet<ServerId>,
    ) -> Result<Option<Membership>, Corrupt> {
        let Some(options) = options else { return Ok(None) };
        let mut membership = Membership::new(options.initial.clone());
        if let Some(stored) = stored(tree) {
            membership.activate(&stored);
        }
        let mut earlier = BTreeSet::new();
        for entry in entries {
            let TxnOp::Reconfig { config: text } = Txn::decode(entry)?.op else { continue };
            let next = EnsembleConfig::parse(&text).map_err(|what| Corrupt { what })?;
            earlier.insert(kept_list(membership.active.members().voters()));
            membership.propose(entry.zxid, next);
        }
        earlier.insert(kept_list(membership.active.members().voters()));
        if let Some((_, next)) = membership.next.clone()
            && membership.is_established()
            && kept_list(next.members().voters()) == *voters
            && !earlier.contains(voters)
        {
            // The state file names its voters since it is in force. A list that an earlier
            // configuration has, too, may be of that one.
            membership.activate(&next);
        }
        Ok(Some(membership))
    }

    fn new(active: EnsembleConfig) -> Membership {
        let members = Arc::new(active.members().clone());
        Membership { members, active, next: None, seen: None, adopted: false }
    }

    /// The configuration in force.
    pub(crate) fn active(&self) -> &EnsembleConfig {
        &self.active
    }

    /// The next configuration, or that in force if there is no next one.
    pub(crate) fn newest(&self) -> &EnsembleConfig {
        self.next.as_ref().map_or(&self.active, |(_, next)| next)
    }

    /// Is a configuration logged and not in force?
    pub(crate) fn is_changing(&self) -> bool {
        self.next.is_some()
    }

    /// The zxid of the configuration that is logged and not in force.
    pub(crate) fn next_zxid(&self) -> Option<Zxid> {
        self.next.as_ref().map(|(zxid, _)| *zxid)
    }

    /// Has a leader established the configuration in force? Otherwise it is that of a file, and the
    /// rules for configurations in files apply.
    pub(crate) fn is_established(&self) -> bool {
        self.active.version > Zxid::ZERO
    }

    /// Does the history contain a configuration? Servers of releases before 0.3 cannot read it.
    pub(crate) fn is_in_history(&self) -> bool {
        self.is_established() || self.is_changing()
    }

    /// Does the log of this server have the configuration in force?
    pub(crate) fn is_logged(&self) -> bool {
        !self.adopted
    }

    /// The lines of a server: in the next configuration, and in the active one if it differs there.
    /// The seen configuration counts for a server that no other one names.
    pub(crate) fn lines_of(&self, id: ServerId) -> impl Iterator<Item = &Member> {
        let next = self.next.as_ref().and_then(|(_, next)| next.server(id));
        let active = self.active.server(id).filter(|active| Some(*active) != next);
        let seen = self.seen.as_ref().and_then(|seen| seen.server(id));
        let seen = seen.filter(|_| next.is_none() && active.is_none());
        next.into_iter().chain(active).chain(seen)
    }

    /// The candidates that only the seen configuration names, and its version. Who stands as one of
    /// them has logged it.
    pub(crate) fn foreign_candidates(&self) -> (BTreeSet<ServerId>, Zxid) {
        let Some(seen) = &self.seen else { return Default::default() };
        let (ours, theirs) = (self.members.voters(), seen.members().voters());
        let foreign = theirs.ids().filter(|id| theirs.may_lead(*id) && !ours.contains(*id));
        (foreign.collect(), seen.version)
    }

    /// Do the configurations of this server name it as an observer? The seen one counts for
    /// addresses and candidates only.
    pub(crate) fn is_observer(&self, id: ServerId) -> bool {
        let next = self.next.as_ref().is_some_and(|(_, next)| next.members().is_observer(id));
        let votes = self.members.voters().contains(id);
        !votes && (next || self.active.members().is_observer(id))
    }

    /// All members, and what is a quorum.
    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// A configuration is logged. Reconfigurations follow each other (RECONF-03), so the one before
    /// is in force.
    pub(super) fn propose(&mut self, zxid: Zxid, next: EnsembleConfig) {
        if let Some((_, before)) = self.next.take() {
            self.activate(&before);
        }
        if next.version > self.active.version {
            self.next = Some((zxid, next));
            self.on_change();
        }
    }

    /// Another server has logged this configuration. Returns whether it is newer than what this
    /// server knows.
    fn see(&mut self, config: EnsembleConfig) -> bool {
        let known = self.seen.as_ref().map_or(Zxid::ZERO, |seen| seen.version);
        let newer = config.version > known.max(self.newest().version);
        if newer {
            self.seen = Some(config);
            self.on_change();
        }
        newer
    }

    /// Derives the members from the configurations.
    fn on_change(&mut self) {
        let newest = self.newest().version;
        self.seen.take_if(|seen| seen.version <= newest);
        let active = self.active.members();
        let members = match &self.next {
            Some((_, next)) => active.with_next(next.members()),
            None => active.clone(),
        };
        let members = match &self.seen {
            Some(seen) => members.with_known(seen.members()),
            None => members,
        };
        self.members = Arc::new(members);
    }

    /// Another server has this configuration in force. Returns whether it is newer than what this
    /// server knows.
    fn adopt(&mut self, config: &EnsembleConfig) -> bool {
        let newer = config.version > self.active.version;
        if newer {
            self.activate(config);
            self.adopted = true;
        }
        newer
    }

    /// A configuration is committed.
    pub(super) fn activate(&mut self, config: &EnsembleConfig) {
        if config.version > self.active.version {
            *self = Membership::new(config.clone());
        } else if config.version == self.active.version && self.adopted {
            // A new pointer makes the server store the voters.
            self.members = Arc::new(Members::clone(&self.members));
            self.adopted = false;
        }
    }

    /// Everything after `zxid` is removed from the log.
    pub(super) fn truncate(&mut self, zxid: Zxid) {
        if self.next.take_if(|(at, _)| *at > zxid).is_some() {
            self.on_change();
        }
    }

    /// A leader's snapshot has replaced tree and log.
    pub(super) fn install(&mut self, tree: &Tree) {
        self.truncate(Zxid::ZERO);
        if let Some(stored) = stored(tree) {
            self.activate(&stored);
        }
    }
}

/// The configuration that the tree holds; none before the first leader has established one.
fn stored(tree: &Tree) -> Option<EnsembleConfig> {
    let data = tree.node(tree.find(CONFIG_NODE)?).data.as_ref()?;
    EnsembleConfig::parse(std::str::from_utf8(data).ok()?).ok()
}

/// The voter list in the form of the state file.
pub(crate) fn kept_list(voters: &Voters) -> BTreeSet<ServerId> {
    if voters.alone() { [THIS_SERVER].into() } else { voters.set().clone() }
}

impl Replica {
    /// The replicated configuration; `None` if reconfiguration is disabled.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// Takes over the configuration that another server has in force, if it is newer than what this
    /// server knows. Returns whether it is.
    pub(crate) fn adopt_config(&mut self, text: &str) -> bool {
        let config = EnsembleConfig::parse(text).ok();
        self.membership.as_mut().zip(config).is_some_and(|(own, config)| own.adopt(&config))
    }

    /// Notes a configuration that another server has logged, if it is newer than what this server
    /// knows. Returns whether it is.
    pub(crate) fn see_config(&mut self, text: &str) -> bool {
        let config = EnsembleConfig::parse(text).ok();
        self.membership.as_mut().zip(config).is_some_and(|(own, config)| own.see(config))
    }

    /// The replicated configuration, once a leader has established one.
    pub(crate) fn established_config(&self) -> Option<&EnsembleConfig> {
        let membership = self.membership().filter(|membership| membership.is_established());
        membership.map(Membership::active)
    }

    /// The voters that the state file is to name: those of the configuration in force.
    pub(super) fn voters_to_keep<'a>(&'a self, voters: &'a Voters) -> &'a Voters {
        self.established_config().map_or(voters, |config| config.members().voters())
    }
}
