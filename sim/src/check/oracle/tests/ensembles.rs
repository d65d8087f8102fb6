//! Z with several servers: promises, acknowledgements, commits and truncations.

use bytes::Bytes;
use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage, Vote};
use zabkeeper_core::store::{DiskCommand, Entry};
use zabkeeper_core::{
    Epoch, HistoryStatus, Instant, LinkCloseReason, ServerId, StepDownReason, Zxid,
};

use super::cast::{self, link};
use super::history::{History, check_pair_of, create};
use crate::check::observe::Observation;

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
fn second_reign(h: &mut History) {
    h.dies(S1);
    h.rises(S2);
    h.turns_to(S3, S2);
    h.promises(S3, S2, E2);
    h.promises_itself(S2, E2);
}

fn second_reign_serves(h: &mut History) {
    second_reign(h);
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
    second_reign_serves(&mut h);
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
fn z1_two_leaders_begin_the_same_epoch() {
    check_pair_of(3, "Z1", |h, violating| {
        second_reign_serves(h);
        let other = if violating { E2 } else { Epoch(3) };
        h.returns(S1);
        h.rises(S1);
        h.promises_itself(S1, other);
        h.begins(S1, other);
    });
}

#[test]
fn z1_leader_begins_without_enough_promises() {
    check_pair_of(5, "Z1", |h, violating| {
        h.dies(S1);
        h.rises(S2);
        for id in [S3, ServerId(4)] {
            h.turns_to(id, S2);
            if id == S3 || !violating {
                h.promises(id, S2, E2);
            }
        }
        h.promises_itself(S2, E2);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
    });
}

#[test]
fn z1_promise_of_a_damaged_server_makes_the_majority() {
    check_pair_of(3, "Z1", |h, violating| {
        if violating {
            h.saves(S3, |state| state.damaged = true);
            h.confirms(S3);
        }
        second_reign_serves(h);
    });
}

#[test]
fn z1_leader_serves_before_a_quorum_has_its_history() {
    check_pair_of(3, "Z1", |h, violating| {
        second_reign(h);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
        if !violating {
            h.enters(S3, S2, E2);
        }
        h.serves(S2);
    });
}

/// If the epoch ended now, the next one would take a joining voter for one that has lost nothing.
#[test]
fn z1_leader_serves_before_a_quorum_stores_its_voters() {
    check_pair_of(3, "Z1", |h, violating| {
        second_reign(h);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
        if violating {
            h.saves(S3, |state| state.voters = [S2, S3].into());
        }
        h.enters(S3, S2, E2);
        h.serves(S2);
    });
}

/// If that epoch fails, the next one takes a joining voter for one that has lost its disk.
#[test]
fn z1_server_stores_new_voters_before_a_quorum_has_the_history() {
    check_pair_of(3, "Z1", |h, violating| {
        second_reign(h);
        h.saves(S3, |state| state.voters = [S2, S3].into());
        h.confirms(S3);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
        if !violating {
            h.enters(S3, S2, E2);
        }
        h.saves(S3, |state| {
            state.current_epoch = E2;
            state.voters = [S1, S2, S3].into();
        });
        h.confirms(S3);
    });
}

#[test]
fn z2_learner_logs_other_bytes_than_proposed() {
    check_pair_of(3, "Z2", |h, violating| {
        let Entry { zxid, bytes } = only_the_leader_logs(h);
        let bytes = if violating { Bytes::from_static(b"other") } else { bytes };
        h.gets(S2, S1, &Entry { zxid, bytes });
    });
}

#[test]
fn z3_server_commits_an_entry_that_a_later_epoch_lacks() {
    check_pair_of(3, "Z3", |h, violating| {
        let lost = only_the_leader_logs(h);
        let before = h.tip();
        second_reign_serves(h);
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
        second_reign(h);
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
fn z8_epoch_begins_with_less_than_an_earlier_one() {
    check_pair_of(3, "Z8", |h, violating| {
        // Z27 would report the worse history first, at the begin of its epoch.
        h.oracles.mute("Z27");
        // Server 1 has begun epoch 2 with one more entry, handles late the acknowledgement of
        // server 3, and serves for a moment. Until then nobody has committed that entry.
        let extra = only_the_leader_logs(h);
        h.rises_again(S1);
        h.turns_to(S3, S1);
        h.promises(S3, S1, E2);
        h.promises_itself(S1, E2);
        h.begins(S1, E2);
        h.is_synced_with(S3, S1, E2);
        h.enters(S3, S1, E2);
        let (with, other) = if violating { (S2, Epoch(3)) } else { (S3, Epoch(3)) };
        if violating {
            // Server 3 follows a leader without that entry and truncates it.
            h.rises(S2);
            h.turns_to(S3, S2);
            h.promises(S3, S2, other);
            h.promises_itself(S2, other);
            h.begins(S2, other);
            h.is_synced_with(S3, S2, other);
            h.enters(S3, S2, other);
            h.serves(with);
        }
        assert_eq!(extra.zxid, h.member(S1).end());
        h.serves_late(S1);
    });
}

#[test]
fn z9_follower_skips_part_of_the_initial_history() {
    check_pair_of(3, "Z9", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        for id in [S2, S3] {
            h.confirms(id);
        }
        h.dies(S1);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        h.promises_itself(S2, E2);
        h.begins(S2, E2);
        h.is_synced_with(S3, S2, E2);
        h.enters(S3, S2, E2);
        (h.leader, h.epoch) = (S2, E2);
        h.model.apply(txn.clone()).unwrap();
        h.serves(S2);
        h.joins_without(S3, S2, violating.then_some(txn.zxid));
        h.client_of(S3, 1);
    });
}

#[test]
fn z10_learner_keeps_the_end_of_an_earlier_epoch() {
    check_pair_of(3, "Z10", |h, violating| {
        let lost = only_the_leader_logs(h);
        second_reign_serves(h);
        h.client_of(S3, 1);
        h.returns(S1);
        h.turns_to(S1, S2);
        h.promises(S1, S2, E2);
        if violating {
            let entry = h.member(S2).log.last().unwrap().clone();
            assert_eq!((entry.zxid, h.member(S1).end()), (z(2, 1), lost.zxid));
            h.gets(S1, S2, &entry);
        } else {
            h.is_synced_with(S1, S2, E2);
        }
    });
}

#[test]
fn z11_established_leader_lacks_a_committed_entry() {
    check_pair_of(3, "Z11", |h, violating| {
        h.oracles.mute("Z27");
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        h.logs(S1, &txn.encode());
        h.gets(S2, S1, &txn.encode());
        h.confirms(S2);
        h.confirms(S1);
        h.member(S1).committed = txn.zxid;
        h.shows(S1);
        h.model.apply(txn).unwrap();
        h.dies(S1);
        // Server 2 has the entry, server 3 does not.
        let (leader, follower) = if violating { (S3, S2) } else { (S2, S3) };
        h.rises(leader);
        h.turns_to(follower, leader);
        h.promises(follower, leader, E2);
        h.promises_itself(leader, E2);
        h.begins(leader, E2);
        if !violating {
            h.is_synced_with(follower, leader, E2);
        } else {
            h.sends(leader, follower, cast::new_leader(E2));
        }
        h.enters(follower, leader, E2);
        (h.leader, h.epoch) = (leader, E2);
        h.serves(leader);
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
        second_reign(h);
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
fn z14_server_promises_an_epoch_to_two_leaders() {
    check_pair_of(3, "Z14", |h, violating| {
        h.dies(S1);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        h.returns(S1);
        h.rises(S1);
        h.turns_to(S3, S1);
        h.is_told_epoch(S3, S1, E2);
        h.acks_epoch_as(S3, S1, violating);
    });
}

#[test]
fn z14_server_acks_to_an_earlier_leader_after_a_later_promise() {
    check_pair_of(3, "Z14", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S3, S1, &entry);
        h.confirms(S3);
        if violating {
            h.saves(S3, |state| state.accepted_epoch = E2);
        }
        h.whispers(S3, S1, ack(entry.zxid));
    });
}

#[test]
fn z16_vote_names_a_zxid_that_is_not_durable() {
    check_pair_of(3, "Z16", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        if !violating {
            h.confirms(S2);
        }
        let vote = h.own_vote(S2);
        h.votes(S2, vote, HistoryStatus::Complete);
    });
}

#[test]
fn z16_vote_names_the_applied_zxid_instead_of_the_logged_one() {
    check_pair_of(3, "Z16", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        let own = h.own_vote(S2);
        let applied = h.member(S2).applied;
        h.votes(
            S2,
            if violating { Vote { zxid: applied, ..own } } else { own },
            HistoryStatus::Complete,
        );
    });
}

#[test]
fn z16_vote_for_a_worse_history_than_the_voters() {
    check_pair_of(3, "Z16", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        let worse = h.own_vote(S3);
        h.votes(S3, worse, HistoryStatus::Complete);
        let own = h.own_vote(S2);
        h.votes(S2, if violating { worse } else { own }, HistoryStatus::Complete);
    });
}

#[test]
fn z16_vote_that_its_candidate_never_cast() {
    check_pair_of(3, "Z16", |h, violating| {
        let vote = h.own_vote(S3);
        h.votes(S3, vote, HistoryStatus::Complete);
        let better = Vote { zxid: Zxid(vote.zxid.0 + 7), ..vote };
        h.votes(S2, if violating { better } else { vote }, HistoryStatus::Complete);
    });
}

#[test]
fn z16_damaged_server_claims_a_complete_history() {
    check_pair_of(3, "Z16", |h, violating| {
        h.saves(S2, |state| state.damaged = true);
        h.confirms(S2);
        let vote = h.own_vote(S2);
        h.votes(S2, vote, if violating { HistoryStatus::Complete } else { HistoryStatus::Lost });
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
        h.is_told_epoch(S3, S2, E2);
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
        second_reign(h);
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
fn z18_epoch_is_stored_before_the_history() {
    check_pair_of(3, "Z18", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        second_reign(h);
        h.begins(S2, E2);
        if violating {
            h.saves(S3, |state| state.current_epoch = E2);
        }
        h.is_synced_with(S3, S2, E2);
        h.saves(S3, |state| state.current_epoch = E2);
    });
}

#[test]
fn z18_disk_holds_the_epoch_without_the_history() {
    check_pair_of(3, "Z18", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        second_reign(h);
        h.begins(S2, E2);
        let before = h.member(S3).end();
        h.is_synced_with(S3, S2, E2);
        h.saves(S3, |state| state.current_epoch = E2);
        let (state, digest) = (h.member(S3).state.clone(), h.model.digest_at(before));
        let mut found = state;
        if !violating {
            found.current_epoch = Epoch(1);
        }
        h.audit(S3, found, before, digest);
    });
}

#[test]
fn z19_committed_entry_is_truncated() {
    check_pair_of(3, "Z19", |h, violating| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        second_reign(h);
        h.begins(S2, E2);
        let to = if violating { before } else { zxid };
        h.sends(S2, S3, PeerMessage::Leader(FromLeader::Trunc { to }));
        h.cuts(S3, to);
    });
}

/// Seed 0x606000a8 with three servers.
#[test]
fn unsynced_truncation_may_leave_the_longer_log() {
    let mut h = History::of(3);
    let lost = only_the_leader_logs(&mut h).zxid;
    let (kept, digest) = (h.tip(), h.model.digest_at(h.tip()));
    second_reign_serves(&mut h);
    h.returns(S1);
    h.turns_to(S1, S2);
    h.promises(S1, S2, E2);
    h.confirms(S1);
    let state = h.member(S1).state.clone();
    h.is_synced_with(S1, S2, E2);
    h.audit(S1, state.clone(), lost, digest);
    h.sees(Observation::CachedAudit { server: S1, state, last: kept });
    h.passes();
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

#[test]
fn z23_proposal_of_an_earlier_leader_is_logged() {
    check_pair_of(3, "Z23", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        // The old leader's proposal is still on its way.
        h.hears_on(S3, link(S3, S1), PeerMessage::Leader(FromLeader::Proposal(entry.clone())));
        if violating {
            h.logs(S3, &entry);
        } else {
            h.shows(S3);
        }
    });
}

#[test]
fn z5_learner_logs_with_a_gap() {
    check_pair_of(3, "Z5", |h, violating| {
        let first = only_the_leader_logs(h);
        let a = h.client_unanswered(1);
        let mut txn = h.session_txn(a, zabkeeper_core::SessionId(0x99));
        txn.zxid = first.zxid.next().unwrap();
        let second = txn.encode();
        h.logs(S1, &second);
        if !violating {
            h.gets(S2, S1, &first);
        }
        h.gets(S2, S1, &second);
    });
}

#[test]
fn z3_uncommitted_snapshot_is_installed() {
    check_pair_of(3, "Z3", |h, violating| {
        let lost = only_the_leader_logs(h);
        let snapshot = if violating { lost.zxid } else { h.tip() };
        h.hears_on(S3, link(S3, S1), piece_of(snapshot));
        let write = h.member(S3).next_write();
        h.puts(S3, &[DiskCommand::Rebase { id: write, snapshot }], &[]);
    });
}

fn piece_of(snapshot: Zxid) -> PeerMessage {
    PeerMessage::Leader(FromLeader::Snap {
        zxid: snapshot,
        index: 0,
        bytes: Bytes::new(),
        last: true,
    })
}

#[test]
fn z23_snapshot_of_an_earlier_leader_is_installed() {
    check_pair_of(3, "Z23", |h, violating| {
        only_the_leader_logs(h);
        let snapshot = h.tip();
        h.hears_on(S3, link(S3, S1), piece_of(snapshot));
        if violating {
            // The snapshot arrives whole, and is durable after the link to its leader is closed.
            h.puts(
                S3,
                &[],
                &[PeerCommand::Close(link(S3, S1), LinkCloseReason::Looks(StepDownReason::Leader))],
            );
        }
        let write = h.member(S3).next_write();
        h.puts(S3, &[DiskCommand::Rebase { id: write, snapshot }], &[]);
    });
}

#[test]
fn z24_leader_goes_on_without_followers() {
    check_pair_of(3, "Z24", |h, violating| {
        h.member(S1).followers = 0;
        h.shows(S1);
        h.waits(9_000);
        h.shows(S1);
        if !violating {
            h.member(S1).followers = 1;
            h.shows(S1);
            h.member(S1).followers = 0;
        }
        h.waits(2_000);
        h.shows(S1);
    });
}

#[test]
fn z25_leader_receives_nothing_from_a_majority() {
    check_pair_of(3, "Z25", |h, violating| {
        h.waits(11_000);
        if !violating {
            h.sends(
                S2,
                S1,
                PeerMessage::Learner(FromLearner::Pong {
                    round: 1,
                    sent: Instant(0),
                    echo: Instant(0),
                    touched: Vec::new(),
                    digests: Vec::new(),
                }),
            );
        }
        h.waits(2_000);
        h.shows(S1);
    });
}

#[test]
fn z25_follower_receives_nothing_from_its_leader() {
    check_pair_of(3, "Z25", |h, violating| {
        h.waits(11_000);
        if !violating {
            h.sends(
                S1,
                S2,
                PeerMessage::Leader(FromLeader::Ping {
                    round: 1,
                    sent: Instant(0),
                    echo: Instant(0),
                }),
            );
        }
        h.waits(2_000);
        h.shows(S2);
    });
}
