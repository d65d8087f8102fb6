//! Z28: leaders that are about to step down.

use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::{FromLeader, PeerMessage, Vote};
use zabkeeper_core::{Input, ServerId};

use super::super::cast::link;
use super::super::history::{History, check_pair_of, create};
use super::{S1, S2, S3, only_the_leader_logs};
use crate::check::observe::Observation;

/// The leader names this server at the end of its own log.
fn names(h: &mut History, candidate: ServerId) -> [PeerCommand; 1] {
    let leader = h.member(S1);
    let vote = Vote { epoch: leader.state.current_epoch, zxid: leader.end(), candidate };
    [PeerCommand::Send(link(S2, S1), PeerMessage::Leader(FromLeader::TakeOver { vote }))]
}

#[test]
fn z28_leader_names_a_server_that_lacks_a_committed_transaction() {
    check_pair_of(3, "Z28", |h, violating| {
        let a = h.client(0);
        let before = h.tip();
        h.writes(a, create("/a"));
        if violating {
            h.forgets(S3, before);
        }
        h.takes(S1, &Input::Stop);
        let commands = names(h, S3);
        h.looks_and(S1, &commands);
    });
}

/// It cannot know that the disk has been erased since.
#[test]
fn z28_leader_names_a_server_that_lacks_its_log_and_keeps_its_disk() {
    check_pair_of(3, "Z28", |h, violating| {
        let a = h.client(0);
        let before = h.tip();
        h.writes(a, create("/a"));
        h.waits(1);
        if violating {
            h.forgets(S3, before);
        } else {
            h.sees(Observation::Wiped { server: S3 });
        }
        h.takes(S1, &Input::Stop);
        let commands = names(h, S3);
        h.looks_and(S1, &commands);
    });
}

/// One whose epoch is used up names itself.
#[test]
fn z28_leader_that_is_to_stop_names_itself() {
    check_pair_of(3, "Z28", |h, violating| {
        if violating {
            h.takes(S1, &Input::Stop);
        }
        let commands = names(h, S1);
        h.looks_and(S1, &commands);
    });
}

#[test]
fn z28_leader_that_is_to_stop_proposes() {
    check_pair_of(3, "Z28", |h, violating| {
        if violating {
            h.takes(S1, &Input::Stop);
        }
        only_the_leader_logs(h);
    });
}

#[test]
fn z28_leader_leads_on_after_it_has_named_the_next_one() {
    check_pair_of(3, "Z28", |h, violating| {
        h.takes(S1, &Input::Stop);
        let commands = names(h, S2);
        if violating {
            h.puts(S1, &[], &commands);
        } else {
            h.looks_and(S1, &commands);
        }
    });
}
