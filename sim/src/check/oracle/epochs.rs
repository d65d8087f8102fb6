//! What is known of each epoch: its leader, its initial history, the promises for it and its
//! proposals.
//!
//! Owns the table of epochs and the bytes of every proposal. Must not know disks.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zabkeeper_core::store::Entry;
use zabkeeper_core::{Epoch, Instant, ServerId, Zxid};

use super::history::Path;
use super::voters::Past;

/// All epochs that a server has begun.
#[derive(Clone, Default, Debug)]
pub(super) struct Epochs(BTreeMap<Epoch, View>);

/// One epoch.
#[derive(Clone, Default, Debug)]
pub(super) struct View {
    /// Its leader, and the history that it began with.
    pub(super) begun: Option<Begun>,
    /// A quorum has promised it to its leader.
    pub(super) decided: bool,
    /// When its leader began to serve with a quorum.
    pub(super) established: Option<Instant>,
    /// By counter, beginning with `first`.
    proposals: Vec<Proposal>,
    first: u32,
}

/// A leader's log has become the initial history of an epoch.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) leader: ServerId,
    pub(super) initial: Path,
    pub(super) at: Instant,
}

/// A proposed transaction.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) bytes: Bytes,
    pub(super) when: Proposed,
}

/// The proposer of a transaction, and the time.
#[derive(Clone, Debug)]
pub(super) struct Proposed {
    /// Observation number.
    pub(super) order: u64,
    pub(super) at: Instant,
    /// The leader, and since when it had led.
    pub(super) by: ServerId,
    pub(super) leads_since: Instant,
    /// A lower bound of what the leader had applied.
    pub(super) applied: Zxid,
    /// The servers that had the leader's history, where the outcome may depend on that (RECONF-08).
    pub(super) synced: Option<BTreeSet<ServerId>>,
    /// The leader or one of its learners runs the last release, so it may be one without
    /// reconfigurations.
    pub(super) older: bool,
}

/// The promises that a prospective leader has for an epoch, and what the promising servers know of
/// earlier ones.
#[derive(Clone, Default, Debug)]
pub(super) struct Promises {
    pub(super) epoch: Epoch,
    pub(super) pasts: BTreeMap<ServerId, Past>,
    /// What the leader itself knew when it first named the epoch.
    pub(super) own: Option<Past>,
    /// The first of them with a better history: its current epoch and last zxid.
    pub(super) better: Option<(ServerId, Epoch, Zxid)>,
}

impl Epochs {
    pub(super) fn of(&self, epoch: Epoch) -> Option<&View> {
        self.0.get(&epoch)
    }

    pub(super) fn of_mut(&mut self, epoch: Epoch) -> &mut View {
        self.0.entry(epoch).or_default()
    }

    /// The history that an epoch began with.
    pub(super) fn initial(&self, epoch: Epoch) -> Option<&Path> {
        self.0.get(&epoch)?.begun.as_ref().map(|begun| &begun.initial)
    }

    /// Established epochs other than `but`, with their initial histories.
    pub(super) fn established(&self, but: Epoch) -> impl Iterator<Item = (Epoch, &Path)> {
        let others = self.0.iter().filter(move |(epoch, _)| **epoch != but);
        others.filter_map(|(epoch, view)| {
            view.established?;
            view.begun.as_ref().map(|begun| (*epoch, &begun.initial))
        })
    }

    /// The latest time at which a leader of a new epoch began to serve.
    pub(super) fn last_established(&self) -> Instant {
        let times = self.0.values().filter_map(|view| view.established);
        times.max().unwrap_or_default()
    }

    /// The transaction with this zxid, if it was proposed.
    pub(super) fn proposal(&self, zxid: Zxid) -> Option<&Proposal> {
        let view = self.0.get(&zxid.epoch())?;
        let index = zxid.counter().checked_sub(view.first)?;
        view.proposals.get(usize::try_from(index).ok()?)
    }

    /// Adds the next transaction of its epoch.
    pub(super) fn propose(&mut self, entry: &Entry, when: Proposed) {
        let view = self.of_mut(entry.zxid.epoch());
        let counter = entry.zxid.counter();
        if view.proposals.is_empty() {
            view.first = counter;
        }
        assert_eq!(view.proposals.len() as u64, u64::from(counter - view.first), "checked before");
        view.proposals.push(Proposal { bytes: entry.bytes.clone(), when });
    }
}
