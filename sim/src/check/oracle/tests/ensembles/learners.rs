//! Z2, Z3, Z5, Z10, Z18, Z19, Z23: what a learner logs, truncates and installs.
//!
//! A name that begins with an id is the violation that must be reported.

use bytes::Bytes;
use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::{FromLeader, PeerMessage};
use zabkeeper_core::store::{DiskCommand, Entry};
use zabkeeper_core::{Epoch, LinkCloseReason, StepDownReason, Zxid};

use super::{E2, S1, S2, S3, only_the_leader_logs, second_epoch, second_epoch_serves, z};
use crate::check::observe::Observation;
use crate::check::oracle::tests::cast::link;
use crate::check::oracle::tests::history::{History, check_pair_of, create};

fn piece_of(snapshot: Zxid) -> PeerMessage {
    PeerMessage::Leader(FromLeader::Snap {
        zxid: snapshot,
        index: 0,
        bytes: Bytes::new(),
        last: true,
    })
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
fn z10_learner_keeps_the_end_of_an_earlier_epoch() {
    check_pair_of(3, "Z10", |h, violating| {
        let lost = only_the_leader_logs(h);
        second_epoch_serves(h);
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
fn z18_epoch_is_stored_before_the_history() {
    check_pair_of(3, "Z18", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        second_epoch(h);
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
        second_epoch(h);
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
        second_epoch(h);
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
    second_epoch_serves(&mut h);
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
fn z23_proposal_of_an_earlier_leader_is_logged() {
    check_pair_of(3, "Z23", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.rises(S2);
        h.turns_to(S3, S2);
        h.promises(S3, S2, E2);
        // The old leader's proposal is still on its way.
        h.receives_on(S3, link(S3, S1), PeerMessage::Leader(FromLeader::Proposal(entry.clone())));
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
        h.receives_on(S3, link(S3, S1), piece_of(snapshot));
        let write = h.member(S3).next_write();
        h.puts(S3, &[DiskCommand::Rebase { id: write, snapshot }], &[]);
    });
}

#[test]
fn z23_snapshot_of_an_earlier_leader_is_installed() {
    check_pair_of(3, "Z23", |h, violating| {
        only_the_leader_logs(h);
        let snapshot = h.tip();
        h.receives_on(S3, link(S3, S1), piece_of(snapshot));
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
