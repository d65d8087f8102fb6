//! What servers propose, apply and keep: the white-box oracles (Z), and recovery (T2).
//!
//! Owns every proposal with the one before it in its leader's log, and per server how far it has applied, answered
//! and saved. Must not look into transactions: their content is the model's.
//!
//! With a single voter, what is durable there is committed. With more, a recovered log is only a candidate, and the
//! first server that applies decides.

use std::collections::BTreeMap;

use bytes::Bytes;
use zabkeeper_core::io::{DurableState, Entry};
use zabkeeper_core::{Epoch, Instant, ServerId, Zxid};

use super::catalog::{Fault, Id, Tally, Verdict};
use crate::model::Model;

/// All that was ever proposed, and the servers.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    alone: bool,
    proposed: BTreeMap<Zxid, Proposal>,
    servers: BTreeMap<ServerId, Server>,
    /// Digests of disks at zxids that are not committed yet.
    waiting: Vec<DiskDigest>,
}

#[derive(Clone, Debug)]
struct Proposal {
    bytes: Bytes,
    /// The transaction before it in the log of the leader that made it.
    previous: Zxid,
    when: Proposed,
}

/// When a transaction was proposed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposed {
    /// Place among all observations.
    pub(super) order: u64,
    pub(super) at: Instant,
    /// When the leader's life had begun.
    pub(super) life_since: Instant,
}

/// A transaction that is committed now.
pub(super) struct Committed {
    pub(super) entry: Entry,
    pub(super) proposed: Proposed,
}

/// What is known of one server and its disk.
#[derive(Clone, Debug, Default)]
struct Server {
    /// Last transaction of its log.
    tail: Zxid,
    /// Last transaction applied in this life, if any was seen.
    applied: Option<Zxid>,
    /// Highest zxid in any reply that a client has read from it.
    answered: Zxid,
    /// Highest zxid seen durable on its disk.
    durable: Zxid,
    accepted: Epoch,
    current: Epoch,
    life: u64,
    life_since: Instant,
}

#[derive(Clone, Debug)]
struct DiskDigest {
    server: ServerId,
    zxid: Zxid,
    digest: u64,
}

/// What a disk holds, by sampling or by recovery.
pub(super) struct Disk<'a> {
    pub(super) server: ServerId,
    pub(super) state: &'a DurableState,
    pub(super) last: Zxid,
}

impl Ledger {
    pub(super) fn new(voters: &[ServerId]) -> Ledger {
        Ledger {
            alone: voters.len() == 1,
            proposed: BTreeMap::new(),
            servers: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    fn server(&mut self, id: ServerId) -> &mut Server {
        self.servers.entry(id).or_default()
    }

    /// How far a server has applied, as far as was seen in this life.
    pub(super) fn applied_by(&self, id: ServerId) -> Option<Zxid> {
        self.servers.get(&id)?.applied
    }

    /// A client has read a reply of this server that names `zxid`.
    pub(super) fn answered(&mut self, id: ServerId, zxid: Zxid) {
        let server = self.server(id);
        server.answered = server.answered.max(zxid);
    }

    /// A leader has put a transaction into its log, at this place among all observations and at this time.
    pub(super) fn propose(
        &mut self,
        tally: &mut Tally,
        id: ServerId,
        entry: &Entry,
        (order, at): (u64, Instant),
    ) -> Verdict {
        let zxid = entry.zxid;
        let earlier = self.proposed.get(&zxid);
        tally.hold(Id::Z15, earlier.is_none(), || {
            let same = earlier.is_some_and(|proposal| proposal.bytes == entry.bytes);
            let bytes = if same { "the same bytes" } else { "other bytes" };
            vec![format!("server {id} proposes {zxid}, which was dealt before with {bytes}")]
        })?;
        let server = self.server(id);
        let previous = server.tail;
        let begins_epoch = zxid.epoch() > previous.epoch() && zxid.counter() == 1;
        tally.hold(Id::Z5, previous.next() == Some(zxid) || begins_epoch, || {
            vec![format!("server {id} proposes {zxid} after {previous}")]
        })?;
        server.tail = zxid;
        let when = Proposed { order, at, life_since: server.life_since };
        self.proposed.insert(zxid, Proposal { bytes: entry.bytes.clone(), previous, when });
        Ok(())
    }

    /// The proposals after `tip` that lead to `zxid`, oldest first: what is committed with it.
    pub(super) fn chain(
        &self,
        tally: &mut Tally,
        tip: Zxid,
        zxid: Zxid,
    ) -> Result<Vec<Committed>, Fault> {
        let mut chain = Vec::new();
        let mut at = zxid;
        while at > tip {
            let proposal = self.proposed.get(&at);
            tally.hold(Id::Z2, proposal.is_some(), || {
                vec![format!("{at} is taken as committed, and nobody has proposed it")]
            })?;
            let proposal = proposal.expect("held");
            let entry = Entry { zxid: at, bytes: proposal.bytes.clone() };
            chain.push(Committed { entry, proposed: proposal.when });
            at = proposal.previous;
        }
        tally.hold(Id::Z12, at == tip, || {
            vec![format!(
                "{zxid} is taken as committed; its history leaves the committed one after {at}, \
                 which has reached {tip}"
            )]
        })?;
        chain.reverse();
        Ok(chain)
    }

    /// A server has moved on to `zxid`, which is committed by now; `tip` was so before it did.
    pub(super) fn apply(
        &mut self,
        tally: &mut Tally,
        model: &Model,
        id: ServerId,
        zxid: Zxid,
    ) -> Verdict {
        let server = self.server(id);
        let before = server.applied;
        tally.hold(Id::Z4, before.is_none_or(|before| before < zxid), || {
            vec![format!("server {id} applies {zxid} after {before:?}")]
        })?;
        tally.hold(Id::Z2, model.txn(zxid).is_some(), || {
            vec![format!("server {id} applies {zxid}, which is not in the committed history")]
        })?;
        // The first of a life may lie anywhere: recovery is free to begin at a snapshot.
        if let Some(before) = before {
            let next = model.after(before).map(|txn| txn.zxid);
            tally.hold(Id::Z5, next == Some(zxid), || {
                vec![format!("server {id} applies {zxid} after {before}; {next:?} comes between")]
            })?;
        }
        server.applied = Some(zxid);
        Ok(())
    }

    /// A server begins or ends a life.
    pub(super) fn restarted(&mut self, id: ServerId, at: Instant) {
        let server = self.server(id);
        server.life_since = at;
        server.applied = None;
        server.life += 1;
    }

    /// A number that no other life of the server has.
    pub(super) fn life(&self, id: ServerId) -> u64 {
        self.servers.get(&id).map_or(0, |server| server.life)
    }

    /// A disk, sampled while its server runs.
    pub(super) fn sampled(
        &mut self,
        tally: &mut Tally,
        model: &Model,
        disk: &Disk<'_>,
        applied: Zxid,
        digest: u64,
    ) -> Verdict {
        let &Disk { server, last, .. } = disk;
        self.keeps_epochs(tally, disk)?;
        let (alone, known) = (self.alone, self.server(server));
        let (durable, answered) = (known.durable, known.answered);
        let is_kept = |zxid: Zxid| model.at_or_before(zxid) <= last;
        // A follower may have to give up what it has not heard to be committed; a single voter has nobody to tell it so.
        let holds_on = if alone { durable <= last } else { is_kept(durable) };
        tally.hold(Id::Z12, holds_on, || {
            vec![format!("the disk of server {server} ends at {last}; it had reached {durable}")]
        })?;
        known.durable = durable.max(last);
        if alone {
            tally.hold(Id::Z17, is_kept(answered), || {
                vec![format!(
                    "server {server} has named {answered} to a client; its disk ends at {last}"
                )]
            })?;
            tally.hold(Id::Z13, is_kept(applied), || {
                vec![format!("server {server} has applied {applied}; its disk ends at {last}")]
            })?;
        }
        self.waiting.push(DiskDigest { server, zxid: last, digest });
        self.compare_disks(tally, model)
    }

    /// A server has begun a new life and found this. Answers up to where that is committed.
    pub(super) fn recovered(
        &mut self,
        tally: &mut Tally,
        model: &Model,
        disk: &Disk<'_>,
        acknowledged: Zxid,
    ) -> Result<Option<Zxid>, Fault> {
        let &Disk { server, last, .. } = disk;
        self.keeps_epochs(tally, disk)?;
        let (alone, known) = (self.alone, self.server(server));
        let (durable, answered) = (known.durable, known.answered);
        let is_kept = |zxid: Zxid| model.at_or_before(zxid) <= last;
        if alone {
            tally.hold(Id::C7, is_kept(acknowledged), || {
                vec![format!(
                    "server {server} recovers {last}; writes up to {acknowledged} are acknowledged"
                )]
            })?;
            tally.hold(Id::Z17, is_kept(answered), || {
                vec![format!(
                    "server {server} recovers {last}; it has named {answered} to a client"
                )]
            })?;
            tally.hold(Id::Z12, is_kept(model.tip()), || {
                vec![format!("server {server} recovers {last}; {} was committed", model.tip())]
            })?;
        }
        let holds_on = if alone { durable <= last } else { is_kept(durable) };
        tally.hold(Id::T2, holds_on, || {
            vec![format!("server {server} recovers {last}; its disk had reached {durable}")]
        })?;
        known.applied = None;
        known.tail = last;
        known.durable = durable.max(last);
        Ok(alone.then_some(last))
    }

    fn keeps_epochs(&mut self, tally: &mut Tally, disk: &Disk<'_>) -> Verdict {
        let (id, state, last) = (disk.server, disk.state, disk.last);
        let server = self.server(id);
        let (accepted, current) = (state.accepted_epoch, state.current_epoch);
        let holds = accepted >= current
            && accepted >= server.accepted
            && current >= server.current
            && accepted >= last.epoch();
        tally.hold(Id::Z14, holds, || {
            vec![format!(
                "server {id} has on disk: accepted {accepted}, current {current}, last {last}; \
                 before: accepted {}, current {}",
                server.accepted, server.current
            )]
        })?;
        server.accepted = accepted;
        server.current = current;
        Ok(())
    }

    /// Compares the digests of disks that have become comparable: a disk may be ahead of what is committed.
    pub(super) fn compare_disks(&mut self, tally: &mut Tally, model: &Model) -> Verdict {
        let tip = model.tip();
        for disk in self.waiting.extract_if(.., |disk| disk.zxid <= tip) {
            let DiskDigest { server, zxid, digest } = disk;
            let right = model.digest_at(zxid);
            tally.hold(Id::T2, digest == right, || {
                vec![format!(
                    "the disk of server {server} holds {digest:#x} at {zxid}; the model {right:#x}"
                )]
            })?;
        }
        Ok(())
    }
}
