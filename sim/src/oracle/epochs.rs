//! What is known of each epoch: who leads it, what it began with, who was promised what, and what was proposed.
//!
//! Owns the table of epochs and the bytes of every proposal. Must not know disks.

use std::collections::BTreeMap;

use bytes::Bytes;
use zabkeeper_core::store::Entry;
use zabkeeper_core::{Epoch, Instant, ServerId, Zxid};

use super::history::Path;
use super::voters::Past;

/// All epochs that anybody has begun.
#[derive(Clone, Default, Debug)]
pub(super) struct Epochs(BTreeMap<Epoch, View>);

/// One epoch.
#[derive(Clone, Default, Debug)]
pub(super) struct View {
    /// Who leads it, and the history that it began with.
    pub(super) begun: Option<Begun>,
    /// Enough have promised it to its leader.
    pub(super) decided: bool,
    /// When its leader began to serve, with a quorum behind it.
    pub(super) established: Option<Instant>,
    /// By counter, from 1.
    proposals: Vec<Proposal>,
}

/// A leader has taken over.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) leader: ServerId,
    pub(super) initial: Path,
    pub(super) at: Instant,
}

/// A transaction that exists.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) bytes: Bytes,
    pub(super) when: Proposed,
}

/// When a transaction was proposed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposed {
    /// Place among all observations.
    pub(super) order: u64,
    pub(super) at: Instant,
    /// Who did it, and since when it had led.
    pub(super) by: ServerId,
    pub(super) leads_since: Instant,
    /// How far it had applied, at least.
    pub(super) applied: Zxid,
}

/// Whom a would-be leader has won over to an epoch, and what they know of the past.
#[derive(Clone, Default, Debug)]
pub(super) struct Promises {
    pub(super) epoch: Epoch,
    pub(super) pasts: BTreeMap<ServerId, Past>,
    /// What it knew itself when it first named the epoch.
    pub(super) own: Option<Past>,
    /// One of them that has shown a better history: its epoch, and where it ends.
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

    /// Established epochs other than this one, with what they began with.
    pub(super) fn established(&self, but: Epoch) -> impl Iterator<Item = (Epoch, &Path)> {
        let others = self.0.iter().filter(move |(epoch, _)| **epoch != but);
        others.filter_map(|(epoch, view)| {
            view.established?;
            view.begun.as_ref().map(|begun| (*epoch, &begun.initial))
        })
    }

    /// When the latest of all leaders to do so began to serve.
    pub(super) fn last_established(&self) -> Instant {
        let times = self.0.values().filter_map(|view| view.established);
        times.max().unwrap_or_default()
    }

    /// The transaction, if it was ever proposed.
    pub(super) fn proposal(&self, zxid: Zxid) -> Option<&Proposal> {
        let index = usize::try_from(zxid.counter()).ok()?.checked_sub(1)?;
        self.0.get(&zxid.epoch())?.proposals.get(index)
    }

    /// The next transaction of its epoch.
    pub(super) fn propose(&mut self, entry: &Entry, when: Proposed) {
        let view = self.of_mut(entry.zxid.epoch());
        view.proposals.push(Proposal { bytes: entry.bytes.clone(), when });
        assert_eq!(view.proposals.len() as u64, u64::from(entry.zxid.counter()), "checked before");
    }
}
