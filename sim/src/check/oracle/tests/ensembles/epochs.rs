//! Z1, Z8, Z9, Z11, Z14, Z16: votes, promises, and the history with which an epoch begins.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::peer::Vote;
use zabkeeper_core::{Epoch, HistoryStatus, ServerId, Zxid};

use super::{E2, S1, S2, S3, ack, only_the_leader_logs, second_epoch, second_epoch_serves};
use crate::check::observe::Observation;
use crate::check::oracle::tests::cast;
use crate::check::oracle::tests::history::{check_pair_of, create};

#[test]
fn z1_two_leaders_begin_the_same_epoch() {
    check_pair_of(3, "Z1", |h, violating| {
        second_epoch_serves(h);
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
        second_epoch_serves(h);
    });
}

#[test]
fn z1_leader_serves_before_a_quorum_has_its_history() {
    check_pair_of(3, "Z1", |h, violating| {
        second_epoch(h);
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
        second_epoch(h);
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
        second_epoch(h);
        h.saves(S3, |state| state.voters = [S2, S3].into());
        h.confirms(S3);
        h.sees(Observation::Grown { voters: &[S1, S2, S3] });
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
fn z8_epoch_begins_with_less_than_an_earlier_one() {
    check_pair_of(3, "Z8", |h, violating| {
        // Z27 would report the worse history first, at the begin of its epoch.
        h.oracles.mute("Z27");
        // Server 1 has begun epoch 2 with one more entry, handles late the acknowledgement of
        // server 3, and serves for a moment. Until then no server has committed that entry.
        let extra = only_the_leader_logs(h);
        h.starts_again(S1);
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
fn z14_server_promises_an_epoch_to_two_leaders() {
    check_pair_of(3, "Z14", |h, violating| {
        h.dies(S1);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        h.returns(S1);
        h.rises(S1);
        h.turns_to(S3, S1);
        h.receives_epoch(S3, S1, E2);
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
