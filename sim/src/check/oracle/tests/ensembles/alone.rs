//! QV-03: one of two voters, alone with the permission of the operator's oracle.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::Input;
use zabkeeper_core::io::PeerEvent;

use super::{E2, S1, S2, only_the_leader_logs};
use crate::check::oracle::tests::cast::link;
use crate::check::oracle::tests::history::{History, check_pair_of};

fn loses_its_follower(h: &mut History) {
    h.dies(S2);
    h.takes(S1, &Input::Peer(link(S2, S1), PeerEvent::Down));
}

#[test]
fn z13_one_of_two_voters_commits_without_the_oracle() {
    check_pair_of(2, "Z13", |h, violating| {
        let entry = only_the_leader_logs(h);
        loses_its_follower(h);
        h.takes(S1, &Input::Oracle(true));
        h.takes(S1, &Input::Oracle(!violating));
        h.member(S1).committed = entry.zxid;
        h.shows(S1);
    });
}

#[test]
fn z13_one_of_two_voters_commits_alone_while_the_other_one_follows() {
    check_pair_of(2, "Z13", |h, violating| {
        let entry = only_the_leader_logs(h);
        h.takes(S1, &Input::Oracle(true));
        if !violating {
            loses_its_follower(h);
        }
        h.member(S1).committed = entry.zxid;
        h.shows(S1);
    });
}

#[test]
fn z1_one_of_two_voters_leads_without_the_oracle() {
    check_pair_of(2, "Z1", |h, violating| {
        h.dies(S1);
        h.rises(S2);
        h.takes(S2, &Input::Oracle(!violating));
        h.promises_itself(S2, E2);
        h.begins(S2, E2);
        h.serves(S2);
    });
}
