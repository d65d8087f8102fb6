//! Z22: servers of the last release in an ensemble that clients reconfigure.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::io::PeerEvent;
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::{ErrorCode, Input, ServerId};

use super::configs::{configured, first_config, five, reconfiguration};
use super::{S1, S2, S3};
use crate::check::oracle::tests::cast::link;
use crate::check::oracle::tests::history::{History, check_pair_from};

/// The link of this server with its leader, server 1, speaks version 5.
fn is_older(h: &mut History, id: ServerId) {
    h.takes(S1, &Input::Peer(link(id, S1), PeerEvent::Version(5)));
}

/// RECONF-09.
#[test]
fn z22_configuration_is_proposed_to_a_learner_of_the_last_release() {
    check_pair_from(five, "Z22", |h, violating| {
        if violating {
            is_older(h, S2);
        }
        h.commits(first_config());
    });
}

/// RECONF-01.
#[test]
fn z22_reconfiguration_is_refused_though_nobody_runs_the_last_release() {
    check_pair_from(configured, "Z22", |h, violating| {
        if !violating {
            is_older(h, S2);
        }
        let asked = reconfiguration(h, &[S1, S2, S3]);
        let op = TxnOp::Error { code: ErrorCode::ReconfigDisabled };
        h.commits(Txn { op, ..asked });
    });
}
