//! Z with several servers: acknowledgements and commits here, the other subjects in files of their
//! own.
//!
//! A name that begins with an id is the violation that must be reported.

use bytes::Bytes;
use zabkeeper_core::peer::{FromLearner, PeerMessage};
use zabkeeper_core::store::Entry;
use zabkeeper_core::{Epoch, ServerId, Zxid};

use super::history::{History, check_pair_of, create};

mod alone;
mod configs;
mod contact;
mod epochs;
mod hand_over;
mod learners;
mod releases;

const S1: ServerId = ServerId(1);
const S2: ServerId = ServerId(2);
const S3: ServerId = ServerId(3);
const E2: Epoch = Epoch(2);

fn z(epoch: u64, counter: u64) -> Zxid {
    Zxid(epoch << 32 | counter)
}

fn ack(zxid: Zxid) -> PeerMessage {
    PeerMessage::Learner(FromLearner::Ack { zxid })
}

/// An entry that only the leader has logged.
pub(super) fn only_the_leader_logs(h: &mut History) -> Entry {
    let entry = h.wants("/lost");
    h.logs(S1, &entry);
    h.confirms(S1);
    entry
}

/// Server 2 is elected with the promise of server 3, and stores its own promise.
fn second_epoch(h: &mut History) {
    h.dies(S1);
    h.rises(S2);
    h.turns_to(S3, S2);
    h.promises(S3, S2, E2);
    h.promises_itself(S2, E2);
}

fn second_epoch_serves(h: &mut History) {
    second_epoch(h);
    h.begins(S2, E2);
    h.is_synced_with(S3, S2, E2);
    h.enters(S3, S2, E2);
    (h.leader, h.epoch) = (S2, E2);
    h.serves(S2);
    h.joins(S3, S2);
}

#[test]
fn three_servers_pass_through_two_epochs() {
    let mut h = History::of(3);
    let a = h.client(0);
    h.writes(a, create("/a"));
    let lost = only_the_leader_logs(&mut h);
    h.closes(a);
    second_epoch_serves(&mut h);
    let b = h.client_of(S3, 1);
    h.asks(b, create("/b"));
    h.does(b);
    h.follows(S3);
    h.answers(b);
    h.returns(S1);
    assert_eq!(h.member(S1).end(), lost.zxid);
    h.turns_to(S1, S2);
    h.promises(S1, S2, E2);
    h.is_synced_with(S1, S2, E2);
    h.enters(S1, S2, E2);
    h.joins(S1, S2);
    h.passes();
}

#[test]
fn z3_server_commits_an_entry_that_a_later_epoch_lacks() {
    check_pair_of(3, "Z3", |h, violating| {
        let lost = only_the_leader_logs(h);
        let before = h.tip();
        second_epoch_serves(h);
        let a = h.client_of(S3, 1);
        h.writes(a, create("/a"));
        h.returns(S1);
        h.member(S1).committed = if violating { lost.zxid } else { before };
        h.shows(S1);
    });
}

#[test]
fn z6_old_leader_commits_after_a_new_one() {
    check_pair_of(3, "Z6", |h, violating| {
        let lost = only_the_leader_logs(h);
        let before = h.tip();
        // The old leader knows nothing of the new one.
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        h.promises_itself(S2, E2);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
        h.enters(S3, S2, E2);
        (h.leader, h.epoch) = (S2, E2);
        h.serves(S2);
        h.joins(S3, S2);
        h.client_of(S3, 1);
        h.member(S1).committed = if violating { lost.zxid } else { before };
        h.shows(S1);
    });
}

#[test]
fn z7_proposing_leader_lacks_a_committed_entry() {
    check_pair_of(3, "Z7", |h, violating| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        second_epoch(h);
        if violating {
            // The server has lost an entry, and its disk does not report the loss.
            h.member(S2).log.retain(|entry| entry.zxid <= before);
            h.forgets(S2, before);
        }
        h.begins(S2, E2);
        let mut txn = h.model.txn(zxid).unwrap().clone();
        txn.zxid = z(2, 1);
        h.logs(S2, &txn.encode());
    });
}

#[test]
fn z12_follower_logs_other_bytes_for_a_committed_entry() {
    check_pair_of(3, "Z12", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        let Entry { zxid, bytes } = txn.encode();
        h.logs(S1, &txn.encode());
        h.gets(S2, S1, &txn.encode());
        h.confirms(S2);
        h.confirms(S1);
        h.member(S1).committed = zxid;
        h.shows(S1);
        h.model.apply(txn).unwrap();
        let bytes = if violating { Bytes::from_static(b"other") } else { bytes };
        h.gets(S3, S1, &Entry { zxid, bytes });
    });
}

#[test]
fn z13_leader_commits_with_a_minority() {
    check_pair_of(5, "Z13", |h, violating| {
        let entry = only_the_leader_logs(h);
        let others: &[u64] = if violating { &[2] } else { &[2, 3] };
        for id in others.iter().copied().map(ServerId) {
            h.gets(id, S1, &entry);
            h.confirms(id);
        }
        h.member(S1).committed = entry.zxid;
        h.shows(S1);
    });
}

#[test]
fn z13_leader_counts_an_ack_of_an_earlier_epoch() {
    check_pair_of(3, "Z13", |h, violating| {
        // Server 2 has the transaction of epoch 1, too, and commits it in epoch 2 because server 3
        // acknowledged it in epoch 1, before server 3 has followed into epoch 2.
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.gets(S3, S1, &entry);
        h.confirms(S2);
        h.confirms(S3);
        second_epoch(h);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
        if !violating {
            h.enters(S3, S2, E2);
        }
        h.member(S2).committed = entry.zxid;
        h.shows(S2);
    });
}

#[test]
fn z13_follower_applies_before_a_leader_commits() {
    check_pair_of(3, "Z13", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        if !violating {
            h.settles(txn.zxid);
        }
        h.model.apply(txn).unwrap();
        let (leader, tip) = (h.leader, h.tip());
        h.member(leader).committed = tip;
        h.follows(S2);
    });
}

#[test]
fn z17_ack_of_an_entry_that_is_not_durable() {
    check_pair_of(3, "Z17", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        if !violating {
            h.confirms(S2);
        }
        h.whispers(S2, S1, ack(entry.zxid));
    });
}

#[test]
fn z17_ackepoch_before_the_promise_is_durable() {
    check_pair_of(3, "Z17", |h, violating| {
        h.dies(S1);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.receives_epoch(S3, S2, E2);
        h.saves(S3, |state| state.accepted_epoch = E2);
        if !violating {
            h.confirms(S3);
        }
        h.acks_epoch(S3, S2);
    });
}

#[test]
fn z17_ack_of_newleader_before_the_epoch_is_durable() {
    check_pair_of(3, "Z17", |h, violating| {
        second_epoch(h);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
        h.saves(S3, |state| state.current_epoch = E2);
        if !violating {
            h.confirms(S3);
        }
        h.sends(S3, S2, PeerMessage::Learner(FromLearner::AckNewLeader { epoch: E2 }));
    });
}

#[test]
fn z20_applied_zxid_is_above_the_committed_one() {
    check_pair_of(3, "Z20", |h, violating| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.follows(S2);
        if violating {
            // Its status reports an applied zxid above the committed one.
            h.member(S2).committed = z(1, 1);
        }
        h.shows(S2);
    });
}
