//! The configuration of the ensemble as replicated state: the one in force, and the one that is
//! logged and not committed (Java `QuorumPeer.getLastSeenQuorumVerifier`).
//!
//! Owns which of them the log makes known. Must not decide on reconfigurations: `zab/propose` does.
//!
//! A server that has logged a configuration needs a quorum of both (RECONF-10), whether it leads,
//! votes or acknowledges. Therefore no quorum of the old voters alone can decide behind its back:
//! each contains a server that has logged it, whose history is the later one.

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
    /// The members of the active configuration; until the next one is active, all members of both.
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
        for entry in entries {
            let TxnOp::Reconfig { config: text } = Txn::decode(entry)?.op else { continue };
            let next = EnsembleConfig::parse(&text).map_err(|what| Corrupt { what })?;
            // Reconfigurations follow each other, so the one before was in force.
            if let Some((_, active)) = membership.next.take() {
                membership.activate(&active);
            }
            membership.propose(entry.zxid, next);
        }
        if let Some((_, next)) = membership.next.clone()
            && kept_list(next.members().voters()) == *voters
            && !next.has_voters_of(&membership.active)
        {
            // The state file names its voters since it is in force.
            membership.activate(&next);
        }
        Ok(Some(membership))
    }

    fn new(active: EnsembleConfig) -> Membership {
        Membership { members: Arc::new(active.members().clone()), active, next: None }
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

    /// Has a leader established the configuration in force? Otherwise it is that of a file, and the
    /// rules for configurations in files apply.
    pub(crate) fn is_established(&self) -> bool {
        self.active.version > Zxid::ZERO
    }

    /// The line of a server: of the next configuration, if that has one.
    pub(crate) fn member(&self, id: ServerId) -> Option<&Member> {
        let next = self.next.as_ref().and_then(|(_, next)| next.server(id));
        next.or_else(|| self.active.server(id))
    }

    /// All members, and what is a quorum.
    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// A configuration is logged.
    pub(super) fn propose(&mut self, zxid: Zxid, next: EnsembleConfig) {
        if next.version > self.active.version {
            let both = self.active.members().with_next(next.members());
            self.members = Arc::new(both);
            self.next = Some((zxid, next));
        }
    }

    /// A configuration is committed.
    pub(super) fn activate(&mut self, config: &EnsembleConfig) {
        if config.version > self.active.version {
            *self = Membership::new(config.clone());
        }
    }

    /// Everything after `zxid` is removed from the log.
    pub(super) fn truncate(&mut self, zxid: Zxid) {
        if self.next.take_if(|(at, _)| *at > zxid).is_some() {
            *self = Membership::new(self.active.clone());
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
