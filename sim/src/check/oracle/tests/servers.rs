//! Z and T with one server: proposals, applies and disks.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::store::Entry;
use zabkeeper_core::{Epoch, Zxid};

use super::history::{History, SERVER, check_pair, create, get, set};

#[test]
fn z2_applied_transaction_was_never_proposed() {
    check_pair("Z2", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        if !violating {
            h.proposes(&txn.encode());
        }
        h.applies(txn);
    });
}

#[test]
fn z2_committed_bytes_are_no_transaction() {
    check_pair("Z2", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        let Entry { zxid, bytes } = txn.encode();
        let kept = if violating { bytes.len() - 3 } else { bytes.len() };
        h.proposes(&Entry { zxid, bytes: bytes.slice(..kept) });
        h.applies(txn);
    });
}

#[test]
fn z4_transaction_is_applied_twice() {
    check_pair("Z4", |h, violating| {
        let a = h.client(0);
        let zxid = h.writes(a, create("/a"));
        if violating {
            h.has_applied(zxid, None);
        }
    });
}

#[test]
fn z5_apply_skips_a_transaction() {
    check_pair("Z5", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.asks(a, create("/b"));
        let first = h.decides(a);
        h.proposes(&first.encode());
        if violating {
            h.settles(first.zxid);
            h.model.apply(first).unwrap();
        } else {
            h.applies(first);
        }
        h.does(a);
    });
}

#[test]
fn z5_proposals_have_a_gap_in_the_counter() {
    check_pair("Z5", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.does_as(a, |txn| txn.zxid = Zxid(txn.zxid.0 + u64::from(violating)));
    });
}

#[test]
fn z12_disk_loses_a_committed_transaction() {
    check_pair("Z12", |h, violating| {
        let a = h.client(0);
        let first = h.writes(a, create("/a"));
        let second = h.writes(a, create("/b"));
        h.disk(second);
        h.disk(if violating { first } else { second });
    });
}

#[test]
fn z12_recovery_loses_an_applied_transaction() {
    check_pair("Z12", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let before = h.tip();
        let zxid = h.does(a);
        h.restarts(if violating { before } else { zxid });
    });
}

#[test]
fn z13_transaction_is_committed_before_it_is_durable() {
    check_pair("Z13", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        if !violating {
            h.confirms(SERVER);
        }
        h.member(SERVER).committed = txn.zxid;
        h.shows(SERVER);
        h.applies(txn);
    });
}

#[test]
fn z14_accepted_epoch_goes_back() {
    check_pair("Z14", |h, violating| {
        h.saves(SERVER, |state| state.accepted_epoch = Epoch(3));
        h.confirms(SERVER);
        let mut state = h.state();
        if violating {
            state.accepted_epoch = Epoch(2);
        }
        let digest = h.model.digest_at(Zxid::ZERO);
        h.disk_with(state, Zxid::ZERO, digest);
    });
}

/// The disk is sampled before its confirmation arrives.
#[test]
fn z14_late_confirmation_of_an_earlier_epoch_is_legal() {
    check_pair("Z14", |h, violating| {
        let [first, second] = if violating { [4, 3] } else { [3, 4] };
        h.saves(SERVER, |state| state.accepted_epoch = Epoch(first));
        let write = h.last_write(SERVER);
        let mut state = h.state();
        if !violating {
            h.saves(SERVER, |state| state.accepted_epoch = Epoch(second));
            state = h.state();
        }
        let digest = h.model.digest_at(Zxid::ZERO);
        h.disk_with(state, Zxid::ZERO, digest);
        if violating {
            h.saves(SERVER, |state| state.accepted_epoch = Epoch(second));
            h.confirms(SERVER);
        } else {
            h.disk_done(SERVER, write);
        }
    });
}

#[test]
fn z14_accepted_epoch_is_below_the_current_one() {
    check_pair("Z14", |h, violating| {
        let mut state = h.state();
        if violating {
            state.accepted_epoch = Epoch(0);
        }
        let digest = h.model.digest_at(Zxid::ZERO);
        h.disk_with(state, Zxid::ZERO, digest);
    });
}

#[test]
fn z15_zxid_is_proposed_twice() {
    check_pair("Z15", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.asks(a, create("/b"));
        let lost = h.decides(a);
        h.proposes(&lost.encode());
        let last = h.tip();
        h.restarts(last);
        let mut other = h.decides(a);
        if violating {
            other.zxid = lost.zxid;
        }
        h.proposes(&other.encode());
    });
}

#[test]
fn z17_disk_loses_a_confirmed_transaction() {
    check_pair("Z17", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let before = h.tip();
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        h.confirms(SERVER);
        let mut ahead = h.model.clone();
        ahead.apply(txn.clone()).unwrap();
        let last = if violating { before } else { txn.zxid };
        h.disk_with(h.state(), last, ahead.digest_at(last));
        h.applies(txn);
    });
}

#[test]
fn t1_tree_differs_at_the_audit() {
    check_pair("T1", |h, violating| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        let (digest, sessions) = (h.model.digest_at(h.tip()), h.model.sessions_at(h.tip()));
        h.ends_with(digest ^ u64::from(violating), sessions);
    });
}

#[test]
fn t1_tree_differs_after_an_apply() {
    check_pair("T1", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        let zxid = txn.zxid;
        h.settles(zxid);
        h.model.apply(txn).unwrap();
        let digest = Some(h.model.digest_at(zxid) ^ u64::from(violating));
        h.has_applied(zxid, digest);
    });
}

#[test]
fn t2_disk_holds_another_state() {
    check_pair("T2", |h, violating| {
        let a = h.client(0);
        let zxid = h.writes(a, create("/a"));
        let digest = h.model.digest_at(zxid) ^ u64::from(violating);
        h.disk_with(h.state(), zxid, digest);
    });
}

#[test]
fn t2_disk_ahead_of_the_commits_is_compared_later() {
    check_pair("T2", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        let (state, last) = (h.state(), txn.zxid);
        let mut ahead = h.model.clone();
        ahead.apply(txn.clone()).unwrap();
        h.disk_with(state, last, ahead.digest_at(last) ^ u64::from(violating));
        h.applies(txn);
    });
}

#[test]
fn t2_unsynced_entry_was_never_commanded() {
    check_pair("T2", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let txn = h.decides(a);
        if !violating {
            h.proposes(&txn.encode());
        }
        h.cached(h.state(), txn.zxid);
        if !violating {
            h.applies(txn);
        }
    });
}

#[test]
fn t2_recovery_loses_a_durable_unapplied_transaction() {
    check_pair("T2", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        let before = h.tip();
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        h.confirms(SERVER);
        h.closes(a);
        let last = txn.zxid;
        if !violating {
            h.model.apply(txn).unwrap();
        }
        h.restarts(if violating { before } else { last });
    });
}

#[test]
fn recovery_may_commit_durable_entries_and_lose_the_rest() {
    let mut h = History::new();
    let a = h.client(0);
    for path in ["/a", "/b"] {
        h.asks(a, create(path));
    }
    let kept = h.decides(a);
    h.proposes(&kept.encode());
    let zxid = kept.zxid;
    h.model.apply(kept).unwrap();
    let lost = h.decides(a);
    h.proposes(&lost.encode());
    h.closes(a);
    h.restarts(zxid);
    let b = h.client(1);
    h.reads(b, get("/a"));
    h.reads(b, get("/b"));
    h.writes(b, set("/a", "v1"));
    h.passes();
}
