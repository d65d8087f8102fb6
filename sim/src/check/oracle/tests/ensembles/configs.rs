//! Z13 and Z22: reconfigurations.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::peer::{FromLeader, PeerMessage, ServerState};
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::{ReconfigRequest, Request};
use zabkeeper_core::{AuthOptions, ServerId, SessionId, WallMs, Zxid};

use super::{S1, S2, S3, z};
use crate::check::ensemble::{Ensemble, PARTICIPANT, line};
use crate::check::model::Rules;
use crate::check::observe::Observation;
use crate::check::oracle::tests::history::{History, check_pair_from, create};
use crate::check::oracle::tests::outside::{looks, receives_from};

const S4: ServerId = ServerId(4);
const S5: ServerId = ServerId(5);
/// The version of the first configuration.
const FIRST: Zxid = Zxid(1 << 32);

fn lines(servers: &[ServerId]) -> String {
    servers.iter().map(|id| line(*id, PARTICIPANT)).collect()
}

/// Five voters, whose first configuration is not in the log yet.
pub(super) fn five() -> History {
    let first_config = Some(lines(&[S1, S2, S3, S4, S5]));
    let auth = AuthOptions { skip_acl: true, ..AuthOptions::default() };
    let mut h = History::under(5, Rules { first_config, auth, ..Rules::default() });
    h.begins_leading(S1, &[S2, S3, S4]);
    h
}

pub(super) fn first_config() -> Txn {
    let five = Ensemble::parse(&lines(&[S1, S2, S3, S4, S5])).expect("canonical");
    let op = TxnOp::Reconfig { config: five.text(FIRST.0) };
    Txn { zxid: z(1, 1), session: SessionId(0), time: WallMs(7), origin: None, op }
}

/// The same with the first configuration in force at the leader.
pub(super) fn configured() -> History {
    let mut h = five();
    h.commits(first_config());
    comes_into_force(&mut h, FIRST);
    h
}

fn comes_into_force(h: &mut History, version: Zxid) {
    h.sees(Observation::InForce { server: S1, version });
    h.shows(S1);
}

/// The transaction of a request of client 0 for these voters.
pub(super) fn reconfiguration(h: &mut History, voters: &[ServerId]) -> Txn {
    let a = h.client(0);
    let new_members = Some(lines(voters).trim_end().replace('\n', ","));
    let request = ReconfigRequest { joining: None, leaving: None, new_members, version: -1 };
    h.asks(a, Request::Reconfigure(request));
    let mut txn = h.decides(a);
    if let TxnOp::Reconfig { config } = &mut txn.op {
        *config = config.replace("version=0", &format!("version={:x}", txn.zxid.0));
    }
    txn
}

#[test]
fn z22_configuration_in_force_is_not_committed() {
    check_pair_from(five, "Z22", |h, violating| {
        let txn = first_config();
        if violating {
            h.proposes(&txn.encode());
        } else {
            h.commits(txn);
        }
        comes_into_force(h, FIRST);
    });
}

/// RECONF-08.
#[test]
fn z22_reconfiguration_without_a_quorum_of_its_voters() {
    check_pair_from(configured, "Z22", |h, violating| {
        let voters = if violating { [S1, S5] } else { [S1, S4] };
        let txn = reconfiguration(h, &voters);
        h.proposes(&txn.encode());
    });
}

/// RECONF-09.
#[test]
fn z22_first_configuration_is_that_of_no_file() {
    check_pair_from(five, "Z22", |h, violating| {
        let mut txn = first_config();
        if let (true, TxnOp::Reconfig { config }) = (violating, &mut txn.op) {
            let four = Ensemble::parse(&lines(&[S1, S2, S3, S4])).expect("canonical");
            *config = four.text(FIRST.0);
        }
        h.commits(txn);
    });
}

#[test]
fn z22_state_file_names_voters_that_are_not_committed() {
    check_pair_from(configured, "Z22", |h, violating| {
        let txn = reconfiguration(h, &[S1, S2, S3]);
        let version = txn.zxid;
        if violating {
            h.proposes(&txn.encode());
        } else {
            h.commits(txn);
            comes_into_force(h, version);
        }
        h.saves(S1, |state| state.voters = [S1, S2, S3].into());
    });
}

/// RECONF-10.
#[test]
fn z13_reconfiguration_is_committed_without_its_own_voters() {
    check_pair_from(configured, "Z13", |h, violating| {
        let entry = reconfiguration(h, &[S1, S4, S5]).encode();
        h.logs(S1, &entry);
        h.confirms(S1);
        for id in if violating { [S2, S3] } else { [S2, S4] } {
            h.gets(id, S1, &entry);
            h.confirms(id);
        }
        h.member(S1).committed = entry.zxid;
        h.shows(S1);
    });
}

/// ZAB-14: a server that has lost its vote observes.
#[test]
fn z13_observer_is_sent_what_is_not_committed() {
    check_pair_from(configured, "Z13", |h, violating| {
        let a = h.client(0);
        let txn = reconfiguration(h, &[S1, S2, S3]);
        let version = txn.zxid;
        h.commits(txn);
        comes_into_force(h, version);
        h.asks(a, create("/a"));
        let entry = h.decides(a).encode();
        h.logs(S1, &entry);
        h.confirms(S1);
        h.gets(S2, S1, &entry);
        h.confirms(S2);
        if !violating {
            h.member(S1).committed = entry.zxid;
            h.shows(S1);
        }
        h.sends(S1, S4, PeerMessage::Leader(FromLeader::Inform(entry)));
    });
}

/// A looking server that takes a configuration over begins its election anew.
#[test]
fn z26_notifications_count_while_the_configuration_stays() {
    check_pair_from(configured, "Z26", |h, violating| {
        looks(h, S3);
        if !violating {
            h.sees(Observation::InForce { server: S3, version: FIRST });
        }
        for id in [S2, S4] {
            receives_from(h, S3, id, ServerState::Following, 1);
        }
        receives_from(h, S3, S1, ServerState::Leading, 1);
        h.waits(1_100);
        h.shows(S3);
    });
}
