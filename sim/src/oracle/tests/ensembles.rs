//! Z across servers: what they promise, acknowledge, commit and cut off.

use bytes::Bytes;
use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage, Vote};
use zabkeeper_core::store::{DiskCommand, Entry};
use zabkeeper_core::{
    Epoch, HistoryStatus, Instant, LinkCloseReason, ServerId, StepDownReason, Zxid,
};

use super::cast::{self, link};
use super::history::{History, create, twins_of};
use crate::observe::Observation;

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

/// A transaction that the leader has logged, and nobody else.
pub(super) fn only_the_leader_logs(h: &mut History) -> Entry {
    let entry = h.wants("/lost");
    h.logs(S1, &entry);
    h.confirms(S1);
    entry
}

/// Server 2 is elected and wins over server 3; its reign begins as far as the leader itself is concerned.
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
    h.is_mended(S3, S2, E2);
    h.enters(S3, S2, E2);
    (h.leader, h.epoch) = (S2, E2);
    h.serves(S2);
    h.joins(S3, S2);
}

#[test]
fn three_servers_go_through_two_reigns() {
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
    h.is_mended(S1, S2, E2);
    h.enters(S1, S2, E2);
    h.joins(S1, S2);
    h.passes();
}

#[test]
fn z1_two_leaders_begin_an_epoch() {
    twins_of(3, "Z1", |h, lie| {
        second_reign_serves(h);
        let other = if lie { E2 } else { Epoch(3) };
        h.returns(S1);
        h.rises(S1);
        h.promises_itself(S1, other);
        h.begins(S1, other);
    });
}

#[test]
fn z1_a_leader_goes_on_without_enough_promises() {
    twins_of(5, "Z1", |h, lie| {
        h.dies(S1);
        h.rises(S2);
        for id in [S3, ServerId(4)] {
            h.turns_to(id, S2);
            if id == S3 || !lie {
                h.promises(id, S2, E2);
            }
        }
        h.promises_itself(S2, E2);
        h.begins(S2, E2);
        h.is_mended(S3, S2, E2);
    });
}

#[test]
fn z1_a_damaged_voice_makes_the_majority() {
    twins_of(3, "Z1", |h, lie| {
        if lie {
            h.saves(S3, |state| state.damaged = true);
            h.confirms(S3);
        }
        second_reign_serves(h);
    });
}

#[test]
fn z1_a_leader_serves_before_a_quorum_has_its_history() {
    twins_of(3, "Z1", |h, lie| {
        second_reign(h);
        h.begins(S2, E2);
        h.is_mended(S3, S2, E2);
        if !lie {
            h.enters(S3, S2, E2);
        }
        h.serves(S2);
    });
}

/// Where it ends then, a server that was none before is taken for one that has lost nothing.
#[test]
fn z1_a_leader_serves_before_a_quorum_keeps_its_voters() {
    twins_of(3, "Z1", |h, lie| {
        second_reign(h);
        h.begins(S2, E2);
        h.is_mended(S3, S2, E2);
        if lie {
            h.saves(S3, |state| state.voters = [S2, S3].into());
        }
        h.enters(S3, S2, E2);
        h.serves(S2);
    });
}

/// Where that reign comes to nothing, who joins in the next one is taken for one that has lost its disk.
#[test]
fn z1_a_server_keeps_new_voters_before_a_quorum_has_the_history() {
    twins_of(3, "Z1", |h, lie| {
        second_reign(h);
        h.saves(S3, |state| state.voters = [S2, S3].into());
        h.confirms(S3);
        h.begins(S2, E2);
        h.is_mended(S3, S2, E2);
        if !lie {
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
fn z2_a_learner_logs_other_bytes() {
    twins_of(3, "Z2", |h, lie| {
        let Entry { zxid, bytes } = only_the_leader_logs(h);
        let bytes = if lie { Bytes::from_static(b"other") } else { bytes };
        h.gets(S2, S1, &Entry { zxid, bytes });
    });
}

#[test]
fn z3_a_server_takes_as_committed_what_another_reign_has_cut_off() {
    twins_of(3, "Z3", |h, lie| {
        let lost = only_the_leader_logs(h);
        let before = h.tip();
        second_reign_serves(h);
        let a = h.client_of(S3, 1);
        h.writes(a, create("/a"));
        h.returns(S1);
        h.member(S1).committed = if lie { lost.zxid } else { before };
        h.shows(S1);
    });
}

#[test]
fn z6_an_old_leader_commits_after_a_new_one() {
    twins_of(3, "Z6", |h, lie| {
        let lost = only_the_leader_logs(h);
        let before = h.tip();
        // Nobody has told the old leader.
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        h.promises_itself(S2, E2);
        h.begins(S2, E2);
        h.is_mended(S3, S2, E2);
        h.enters(S3, S2, E2);
        (h.leader, h.epoch) = (S2, E2);
        h.serves(S2);
        h.joins(S3, S2);
        h.client_of(S3, 1);
        h.member(S1).committed = if lie { lost.zxid } else { before };
        h.shows(S1);
    });
}

#[test]
fn z7_a_leader_proposes_without_what_was_committed() {
    twins_of(3, "Z7", |h, lie| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        second_reign(h);
        if lie {
            // It has forgotten one, and its disk says so to nobody.
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
fn z8_an_epoch_began_with_less_than_an_earlier_one() {
    twins_of(3, "Z8", |h, lie| {
        // Whoever begins with less is seen where he does (Z27).
        h.oracles.mute("Z27");
        // Server 1 has begun epoch 2 with one more transaction, is told late that server 3 has followed it there, and
        // serves for a moment. Until then nobody has committed that transaction.
        let extra = only_the_leader_logs(h);
        h.rises_again(S1);
        h.turns_to(S3, S1);
        h.promises(S3, S1, E2);
        h.promises_itself(S1, E2);
        h.begins(S1, E2);
        h.is_mended(S3, S1, E2);
        h.enters(S3, S1, E2);
        let (with, other) = if lie { (S2, Epoch(3)) } else { (S3, Epoch(3)) };
        if lie {
            // Server 3 follows a leader that lacks it, and is cut.
            h.rises(S2);
            h.turns_to(S3, S2);
            h.promises(S3, S2, other);
            h.promises_itself(S2, other);
            h.begins(S2, other);
            h.is_mended(S3, S2, other);
            h.enters(S3, S2, other);
            h.serves(with);
        }
        assert_eq!(extra.zxid, h.member(S1).end());
        h.serves_late(S1);
    });
}

#[test]
fn z9_the_beginning_of_an_epoch_is_left_out() {
    twins_of(3, "Z9", |h, lie| {
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
        h.is_mended(S3, S2, E2);
        h.enters(S3, S2, E2);
        (h.leader, h.epoch) = (S2, E2);
        h.model.apply(txn.clone()).unwrap();
        h.serves(S2);
        h.joins_without(S3, S2, lie.then_some(txn.zxid));
        h.client_of(S3, 1);
    });
}

#[test]
fn z10_a_learner_keeps_the_end_of_another_reign() {
    twins_of(3, "Z10", |h, lie| {
        let lost = only_the_leader_logs(h);
        second_reign_serves(h);
        h.client_of(S3, 1);
        h.returns(S1);
        h.turns_to(S1, S2);
        h.promises(S1, S2, E2);
        if lie {
            let entry = h.member(S2).log.last().unwrap().clone();
            assert_eq!((entry.zxid, h.member(S1).end()), (z(2, 1), lost.zxid));
            h.gets(S1, S2, &entry);
        } else {
            h.is_mended(S1, S2, E2);
        }
    });
}

#[test]
fn z11_a_leader_lacks_what_was_committed() {
    twins_of(3, "Z11", |h, lie| {
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
        // Server 2 has it, server 3 has not.
        let (leader, follower) = if lie { (S3, S2) } else { (S2, S3) };
        h.rises(leader);
        h.turns_to(follower, leader);
        h.promises(follower, leader, E2);
        h.promises_itself(leader, E2);
        h.begins(leader, E2);
        if !lie {
            h.is_mended(follower, leader, E2);
        } else {
            h.sends(leader, follower, cast::new_leader(E2));
        }
        h.enters(follower, leader, E2);
        (h.leader, h.epoch) = (leader, E2);
        h.serves(leader);
    });
}

#[test]
fn z12_a_follower_logs_other_bytes_for_what_is_committed() {
    twins_of(3, "Z12", |h, lie| {
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
        let bytes = if lie { Bytes::from_static(b"other") } else { bytes };
        h.gets(S3, S1, &Entry { zxid, bytes });
    });
}

#[test]
fn z13_a_minority_has_it() {
    twins_of(5, "Z13", |h, lie| {
        let entry = only_the_leader_logs(h);
        let others: &[u64] = if lie { &[2] } else { &[2, 3] };
        for id in others.iter().copied().map(ServerId) {
            h.gets(id, S1, &entry);
            h.confirms(id);
        }
        h.member(S1).committed = entry.zxid;
        h.shows(S1);
    });
}

#[test]
fn z13_an_acknowledgement_of_an_older_epoch_is_counted() {
    twins_of(3, "Z13", |h, lie| {
        // Server 2 has the transaction of epoch 1, too, and commits it in epoch 2 because server 3 acknowledged it
        // in epoch 1, before it has followed into epoch 2.
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.gets(S3, S1, &entry);
        h.confirms(S2);
        h.confirms(S3);
        second_reign(h);
        h.begins(S2, E2);
        h.is_mended(S3, S2, E2);
        if !lie {
            h.enters(S3, S2, E2);
        }
        h.member(S2).committed = entry.zxid;
        h.shows(S2);
    });
}

#[test]
fn z13_a_follower_applies_what_no_leader_has_committed() {
    twins_of(3, "Z13", |h, lie| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        if !lie {
            h.settles(txn.zxid);
        }
        h.model.apply(txn).unwrap();
        let (leader, tip) = (h.leader, h.tip());
        h.member(leader).committed = tip;
        h.follows(S2);
    });
}

#[test]
fn z14_a_promise_is_made_to_two_leaders() {
    twins_of(3, "Z14", |h, lie| {
        h.dies(S1);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        h.returns(S1);
        h.rises(S1);
        h.turns_to(S3, S1);
        h.is_told_epoch(S3, S1, E2);
        h.acks_epoch_as(S3, S1, lie);
    });
}

#[test]
fn z14_an_acknowledgement_for_a_leader_of_the_past() {
    twins_of(3, "Z14", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.gets(S3, S1, &entry);
        h.confirms(S3);
        if lie {
            h.saves(S3, |state| state.accepted_epoch = E2);
        }
        h.whispers(S3, S1, ack(entry.zxid));
    });
}

#[test]
fn z16_a_vote_names_what_is_not_durable() {
    twins_of(3, "Z16", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        if !lie {
            h.confirms(S2);
        }
        let vote = h.own_vote(S2);
        h.votes(S2, vote, HistoryStatus::Complete);
    });
}

#[test]
fn z16_a_vote_names_what_is_applied_and_more_is_logged() {
    twins_of(3, "Z16", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        let own = h.own_vote(S2);
        let applied = h.member(S2).applied;
        h.votes(S2, if lie { Vote { zxid: applied, ..own } } else { own }, HistoryStatus::Complete);
    });
}

#[test]
fn z16_a_vote_for_less_than_the_voter_has() {
    twins_of(3, "Z16", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        let worse = h.own_vote(S3);
        h.votes(S3, worse, HistoryStatus::Complete);
        let own = h.own_vote(S2);
        h.votes(S2, if lie { worse } else { own }, HistoryStatus::Complete);
    });
}

#[test]
fn z16_a_vote_that_its_candidate_has_never_cast() {
    twins_of(3, "Z16", |h, lie| {
        let vote = h.own_vote(S3);
        h.votes(S3, vote, HistoryStatus::Complete);
        let better = Vote { zxid: Zxid(vote.zxid.0 + 7), ..vote };
        h.votes(S2, if lie { better } else { vote }, HistoryStatus::Complete);
    });
}

#[test]
fn z16_a_damaged_server_speaks_as_if_it_were_whole() {
    twins_of(3, "Z16", |h, lie| {
        h.saves(S2, |state| state.damaged = true);
        h.confirms(S2);
        let vote = h.own_vote(S2);
        h.votes(S2, vote, if lie { HistoryStatus::Complete } else { HistoryStatus::Lost });
    });
}

#[test]
fn z17_an_acknowledgement_of_what_is_not_durable() {
    twins_of(3, "Z17", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        if !lie {
            h.confirms(S2);
        }
        h.whispers(S2, S1, ack(entry.zxid));
    });
}

#[test]
fn z17_an_epoch_is_acknowledged_before_its_promise_is_durable() {
    twins_of(3, "Z17", |h, lie| {
        h.dies(S1);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.is_told_epoch(S3, S2, E2);
        h.saves(S3, |state| state.accepted_epoch = E2);
        if !lie {
            h.confirms(S3);
        }
        h.acks_epoch(S3, S2);
    });
}

#[test]
fn z17_a_reign_is_entered_before_it_is_durable() {
    twins_of(3, "Z17", |h, lie| {
        second_reign(h);
        h.begins(S2, E2);
        h.is_mended(S3, S2, E2);
        h.saves(S3, |state| state.current_epoch = E2);
        if !lie {
            h.confirms(S3);
        }
        h.sends(S3, S2, PeerMessage::Learner(FromLearner::AckNewLeader { epoch: E2 }));
    });
}

#[test]
fn z18_the_epoch_is_stored_before_the_history() {
    twins_of(3, "Z18", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        second_reign(h);
        h.begins(S2, E2);
        if lie {
            h.saves(S3, |state| state.current_epoch = E2);
        }
        h.is_mended(S3, S2, E2);
        h.saves(S3, |state| state.current_epoch = E2);
    });
}

#[test]
fn z18_the_disk_keeps_the_epoch_and_not_the_history() {
    twins_of(3, "Z18", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        second_reign(h);
        h.begins(S2, E2);
        let before = h.member(S3).end();
        h.is_mended(S3, S2, E2);
        h.saves(S3, |state| state.current_epoch = E2);
        let (state, digest) = (h.member(S3).state.clone(), h.model.digest_at(before));
        let mut found = state;
        if !lie {
            found.current_epoch = Epoch(1);
        }
        h.truth(S3, found, before, digest);
    });
}

#[test]
fn z19_something_committed_is_cut_off() {
    twins_of(3, "Z19", |h, lie| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        second_reign(h);
        h.begins(S2, E2);
        let to = if lie { before } else { zxid };
        h.sends(S2, S3, PeerMessage::Leader(FromLeader::Trunc { to }));
        h.cuts(S3, to);
    });
}

/// Seed 0x606000a8 with three servers.
#[test]
fn a_cut_that_is_not_synced_may_leave_the_longer_log() {
    let mut h = History::of(3);
    let lost = only_the_leader_logs(&mut h).zxid;
    let (kept, digest) = (h.tip(), h.model.digest_at(h.tip()));
    second_reign_serves(&mut h);
    h.returns(S1);
    h.turns_to(S1, S2);
    h.promises(S1, S2, E2);
    h.confirms(S1);
    let state = h.member(S1).state.clone();
    h.is_mended(S1, S2, E2);
    h.truth(S1, state.clone(), lost, digest);
    h.sees(Observation::CachedTruth { server: S1, state, last: kept });
    h.passes();
}

#[test]
fn z20_committed_beyond_what_is_logged() {
    twins_of(3, "Z20", |h, lie| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.follows(S2);
        if lie {
            // It says that it has applied more than it knows to be committed.
            h.member(S2).committed = z(1, 1);
        }
        h.shows(S2);
    });
}

#[test]
fn z23_a_proposal_of_the_last_leader_is_logged() {
    twins_of(3, "Z23", |h, lie| {
        let entry = only_the_leader_logs(h);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        // What the old leader sent is still on its way.
        h.hears_on(S3, link(S3, S1), PeerMessage::Leader(FromLeader::Proposal(entry.clone())));
        if lie {
            h.logs(S3, &entry);
        } else {
            h.shows(S3);
        }
    });
}

#[test]
fn z5_a_learner_logs_with_a_gap() {
    twins_of(3, "Z5", |h, lie| {
        let first = only_the_leader_logs(h);
        let a = h.client_unanswered(1);
        let mut txn = h.session_txn(a, zabkeeper_core::SessionId(0x99));
        txn.zxid = first.zxid.next().unwrap();
        let second = txn.encode();
        h.logs(S1, &second);
        if !lie {
            h.gets(S2, S1, &first);
        }
        h.gets(S2, S1, &second);
    });
}

#[test]
fn z3_a_snapshot_of_what_is_not_committed_is_taken_over() {
    twins_of(3, "Z3", |h, lie| {
        let lost = only_the_leader_logs(h);
        let snapshot = if lie { lost.zxid } else { h.tip() };
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
fn z23_a_snapshot_of_the_last_leader_is_taken_over() {
    twins_of(3, "Z23", |h, lie| {
        only_the_leader_logs(h);
        let snapshot = h.tip();
        h.hears_on(S3, link(S3, S1), piece_of(snapshot));
        if lie {
            // It arrives whole, and is durable when its leader is gone.
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
fn z24_a_leader_goes_on_without_followers() {
    twins_of(3, "Z24", |h, lie| {
        h.member(S1).followers = 0;
        h.shows(S1);
        h.waits(9_000);
        h.shows(S1);
        if !lie {
            h.member(S1).followers = 1;
            h.shows(S1);
            h.member(S1).followers = 0;
        }
        h.waits(2_000);
        h.shows(S1);
    });
}

#[test]
fn z25_a_leader_hears_nobody() {
    twins_of(3, "Z25", |h, lie| {
        h.waits(11_000);
        if !lie {
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
fn z25_a_follower_does_not_hear_its_leader() {
    twins_of(3, "Z25", |h, lie| {
        h.waits(11_000);
        if !lie {
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
