//! Counters and summaries by subject: traffic of clients, the ensemble, the store, namespaces.
//!
//! Owns their fields. Must not count: the driver and the host do.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Sizes, Summary, Totals};
use crate::error::ErrorCode;
use crate::ids::{Instant, ServerId};
use crate::measure::Namespace;
use crate::wire::{EventType, Reply};

/// Requests and connections of clients.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Bytes of events queued for sending.
    pub watch_bytes: u64,
    /// Bytes of answers queued for sending.
    pub response_bytes: u64,
    /// Sizes of answers, in bytes.
    pub response_sizes: Sizes,
    /// Requests refused because they had waited longer than the timeout of their session (THR-06).
    pub stale_requests: u64,
    /// Requests refused because they had waited too long (THR-07).
    pub throttled_ops: u64,
    /// How often a connection began to wait because of a bound on the requests of all connections.
    pub throttle_waits: u64,
    /// Connections that the client has ended without closing its session, or that have failed.
    pub dropped: u64,
    /// Connections closed because no server has led for too long.
    pub closed_without_leader: u64,
    /// Tokens that are missing in the bucket of the throttle whenever a handshake is read.
    pub token_deficit: Summary,
    /// Handshakes that resume a session.
    pub revalidations: u64,
    /// Replies to connections that are closed.
    pub stale_replies: u64,
    /// Authentications that have failed.
    pub auth_failed: u64,
    /// Time from reading a request to queueing its reply, of requests that are no transactions.
    pub reads: Summary,
    /// The same of transactions.
    pub updates: Summary,
    /// Time for which requests have waited because of a bound on those of all connections.
    pub throttle_time: Summary,
    /// Of watches that fire, the number of connections that receive the event, by kind of event.
    pub fired: Fired,
    /// Ephemeral nodes deleted because their session has ended.
    pub ephemerals_deleted: u64,
}

/// A summary for each kind of event.
#[derive(Clone, Debug, Default)]
pub struct Fired {
    /// A node is created.
    pub created: Summary,
    /// A node is deleted.
    pub deleted: Summary,
    /// The data of a node has changed.
    pub changed: Summary,
    /// The children of a node have changed.
    pub children: Summary,
}

/// Roles, synchronization, proposals.
#[derive(Clone, Debug, Default)]
pub struct EnsembleMetrics {
    /// How often the server has begun to look for a leader.
    pub looking: u64,
    /// Time to elect one.
    pub election: Summary,
    /// Time without service.
    pub unavailable: Summary,
    /// The same, of a server that leads afterwards.
    pub leader_unavailable: Summary,
    /// Learners synchronized by DIFF.
    pub diffs: u64,
    /// Learners synchronized by SNAP.
    pub snaps: u64,
    /// TRUNC sent to learners.
    pub truncs: u64,
    /// Learners that are synchronized by DIFF whenever one begins to be.
    pub inflight_diffs: Summary,
    /// Learners that are synchronized by SNAP whenever one begins to be.
    pub inflight_snaps: Summary,
    /// Time for which this server, as a follower, was synchronized.
    pub follower_sync: Summary,
    /// Time for which this server, as an observer, was synchronized.
    pub observer_sync: Summary,
    /// Transactions that this server has committed as a leader.
    pub commits: u64,
    /// Sessions that this server has expired as a leader.
    pub sessions_expired: u64,
    /// Sessions that this server, as a leader, was asked about.
    pub revalidations: u64,
    /// Learners whose state differed from this server's.
    pub digest_mismatches: u64,
    /// Proposals received from a leader.
    pub proposals_received: u64,
    /// Messages about commits received from a leader.
    pub commits_received: u64,
    /// Time from a proposal to its acknowledgements by a quorum.
    pub quorum_ack: Summary,
    /// Time from a proposal to the acknowledgement of a learner.
    pub ack: BTreeMap<ServerId, Summary>,
    /// Time from the leader's time stamp of a transaction until this server applies it.
    pub propagation: Summary,
    /// The same, of transactions that another server leads.
    pub commit_propagation: Summary,
    /// Time from the leader's time stamp of a transaction until this server receives the proposal.
    pub proposal: Summary,
    /// Time from there until this server acknowledges it.
    pub ack_creation: Summary,
}

/// The store.
#[derive(Clone, Debug, Default)]
pub struct StorageMetrics {
    /// Time to write a batch to the log and sync it.
    pub fsync: Summary,
    /// Commands in a batch.
    pub batch: Summary,
    /// Transactions handed to the log.
    pub queued: u64,
    /// Time from there until they are durable.
    pub queue_and_flush: Summary,
    /// Time to write a snapshot.
    pub snapshot: Summary,
    /// Snapshots that have failed.
    pub snapshot_errors: u64,
    /// When the last snapshot was complete.
    pub last_snapshot: Option<Instant>,
    /// What the start has loaded.
    pub startup: Startup,
}

/// What the start of the process has loaded.
#[derive(Clone, Debug, Default)]
pub struct Startup {
    /// Time to read the store and build the state from it.
    pub init: Summary,
    /// Transactions behind the snapshot.
    pub txns: Summary,
}

/// A write to the log, as its worker reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogWrite {
    /// How long writing and syncing has taken.
    pub took: Duration,
    /// Commands written together.
    pub commands: usize,
}

/// Bytes read or written by namespace.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    known: BTreeMap<Namespace, Totals>,
    others: Totals,
}

/// WIRE-09: the xid of the reply to an authentication.
const XID_AUTH: i32 = -4;

/// Namespaces counted apart: clients choose their names, so their number needs a bound.
const NAMESPACES_MAX: usize = 1_000;

impl Traffic {
    /// Counts a reply of so many bytes.
    pub(in crate::driver) fn count_reply(&mut self, reply: &Reply, bytes: u64) {
        self.response_bytes += bytes;
        self.response_sizes.add(usize::try_from(bytes).unwrap_or(usize::MAX));
        let failed = reply.xid == XID_AUTH && reply.result == Err(ErrorCode::AuthFailed);
        self.auth_failed += u64::from(failed);
    }
}

impl Fired {
    /// The summary of a kind of event.
    pub fn of(&mut self, event: EventType) -> &mut Summary {
        match event {
            EventType::NodeCreated => &mut self.created,
            EventType::NodeDeleted => &mut self.deleted,
            EventType::NodeDataChanged => &mut self.changed,
            EventType::NodeChildrenChanged => &mut self.children,
        }
    }
}

impl StorageMetrics {
    /// Counts a write to the log.
    pub fn count_write(&mut self, write: LogWrite, now: Instant) {
        self.fsync.add_time(write.took, now);
        self.batch.add(write.commands as u64, now);
    }
}

impl Namespaces {
    /// Counts an access. Namespaces beyond the bound are counted together.
    pub fn add(&mut self, namespace: Namespace, bytes: usize) {
        let full = self.known.len() >= NAMESPACES_MAX;
        let totals = match self.known.get_mut(&namespace) {
            Some(totals) => totals,
            None if full => &mut self.others,
            None => self.known.entry(namespace).or_default(),
        };
        totals.add(bytes as u64);
    }

    /// Each namespace with its figures. The name of those beyond the bound is `/`, which is no
    /// segment of a path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Totals)> {
        let known = self.known.iter().map(|(namespace, totals)| (namespace.as_str(), totals));
        known.chain((self.others.count() > 0).then_some(("/", &self.others)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// METRIC-12.
    #[test]
    fn number_of_namespaces_is_bounded() {
        let mut namespaces = Namespaces::default();
        for number in 0..1_010 {
            let path = format!("/{number:04}");
            namespaces.add(Namespace::of(&path).expect("is one"), 7);
        }
        namespaces.add(Namespace::of("/0000/again").expect("is one"), 8);
        let listed: Vec<_> = namespaces.iter().collect();
        assert_eq!(listed.len(), 1_001);
        let counts = |at: usize| (listed[at].0, listed[at].1.count(), listed[at].1.sum_min_max());
        assert_eq!(counts(0), ("0000", 2, [15, 7, 8]));
        assert_eq!(counts(1_000), ("/", 10, [70, 7, 7]));
    }
}
