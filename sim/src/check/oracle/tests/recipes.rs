//! R1 to R9: programs that use recipes.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::{ConnId, Zxid};

use super::history::{History, check_pair, create, create_with, delete};
use crate::check::observe::{ClientId, Observation};
use crate::clients::program::{Share, Told, caches, meetings};

/// A program says this of the session of its connection.
fn tells(h: &mut History, (client, conn): (u32, ConnId), told: Told) {
    let session = h.session(conn);
    h.sees(Observation::Told { client: ClientId(client), session, told });
}

/// Two clients.
fn two(h: &mut History) -> [(u32, ConnId); 2] {
    [0, 1].map(|client| (client, h.client(client)))
}

fn holds(share: Share, token: u64) -> Told {
    Told::Holds(7, share, Zxid(token))
}

#[test]
fn r1_lock_is_taken_that_another_session_holds() {
    check_pair("R1", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, holds(Share::Alone, 3));
        if !violating {
            tells(h, a, Told::Ends(7));
        }
        tells(h, b, holds(Share::Alone, 4));
    });
}

#[test]
fn r1_token_does_not_rise() {
    check_pair("R1", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, holds(Share::Alone, 3));
        tells(h, a, Told::Ends(7));
        tells(h, b, holds(Share::Alone, if violating { 3 } else { 4 }));
    });
}

#[test]
fn r1_writer_holds_the_lock_beside_a_reader() {
    check_pair("R1", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, holds(Share::Readers, 3));
        tells(h, b, holds(if violating { Share::Alone } else { Share::Readers }, 4));
    });
}

#[test]
fn r1_more_leases_are_held_than_there_are() {
    check_pair("R1", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, holds(Share::Leases, 3));
        tells(h, b, holds(Share::Leases, 5));
        if !violating {
            tells(h, b, Told::Ends(7));
        }
        tells(h, a, holds(Share::Leases, 4));
    });
}

#[test]
fn r2_item_is_taken_twice() {
    check_pair("R2", |h, violating| {
        let [a, b] = two(h);
        for item in [1, 2] {
            tells(h, a, Told::Puts(item));
        }
        tells(h, a, Told::Took(Some(1)));
        tells(h, b, Told::Took(Some(if violating { 1 } else { 2 })));
    });
}

#[test]
fn r2_item_is_taken_that_nobody_has_put() {
    check_pair("R2", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, Told::Puts(1));
        tells(h, b, Told::Took(Some(if violating { 2 } else { 1 })));
    });
}

#[test]
fn r2_item_is_lost() {
    check_pair("R2", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, Told::Puts(1));
        tells(h, a, Told::Put(1));
        tells(h, b, Told::Takes);
        if violating {
            tells(h, b, Told::Took(None));
        }
        h.ends();
    });
}

/// Writes have the time 7 ms.
#[test]
fn r2_item_is_taken_before_its_time() {
    check_pair("R2", |h, violating| {
        let [a, b] = two(h);
        h.writes(a.1, create("/queues"));
        tells(h, a, Told::Puts(1));
        tells(h, a, Told::Due(1, if violating { 8 } else { 7 }));
        tells(h, b, Told::Took(Some(1)));
    });
}

#[test]
fn r3_two_additions_make_the_same_value() {
    check_pair("R3", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, Told::Adds);
        tells(h, b, Told::Adds);
        tells(h, a, Told::Added(1));
        tells(h, b, Told::Added(if violating { 1 } else { 2 }));
    });
}

#[test]
fn r3_counter_has_more_than_was_added() {
    check_pair("R3", |h, violating| {
        let [a, _] = two(h);
        tells(h, a, Told::Adds);
        tells(h, a, Told::Added(if violating { 2 } else { 1 }));
    });
}

/// The session's node at a double barrier.
fn comes(h: &mut History, (_, conn): (u32, ConnId), name: &str) -> String {
    let path = format!("{}/{name}", meetings::double_barrier_path(0));
    h.writes(conn, create_with(&path, "", 1));
    path
}

/// Two clients, and the node of a double barrier.
fn two_at_a_barrier(h: &mut History) -> [(u32, ConnId); 2] {
    let both = two(h);
    for path in ["/barriers", &meetings::double_barrier_path(0)] {
        h.writes(both[0].1, create(path));
    }
    both
}

#[test]
fn r4_session_begins_alone() {
    check_pair("R4", |h, violating| {
        let [a, b] = two_at_a_barrier(h);
        comes(h, a, "a");
        // It counts once, though its deletion of an earlier node is under way.
        comes(h, if violating { a } else { b }, "b");
        tells(h, a, Told::Begins(0));
    });
}

#[test]
fn r4_session_begins_after_another_one_has_gone() {
    check_pair("R4", |h, violating| {
        let [a, b] = two_at_a_barrier(h);
        if !violating {
            comes(h, a, "a");
        }
        let other = comes(h, b, "b");
        h.writes(b.1, delete(&other));
        if violating {
            comes(h, a, "a");
        }
        tells(h, a, Told::Begins(0));
    });
}

#[test]
fn r4_session_has_left_while_another_one_is_inside() {
    check_pair("R4", |h, violating| {
        let [a, b] = two_at_a_barrier(h);
        for (who, name) in [(a, "a"), (b, "b")] {
            comes(h, who, name);
            tells(h, who, Told::Comes(0));
        }
        for who in [a, b] {
            tells(h, who, Told::Begins(0));
        }
        tells(h, a, Told::Leaves(0));
        if !violating {
            tells(h, b, Told::Leaves(0));
        }
        tells(h, a, Told::Left(0));
    });
}

#[test]
fn r5_sites_learn_different_decisions() {
    check_pair("R5", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, Told::Decided(4, false));
        for site in [0, 1] {
            tells(h, b, Told::Votes(4, site, true));
        }
        tells(h, b, Told::Decided(4, violating));
    });
}

#[test]
fn r5_commit_is_decided_without_a_vote_of_all() {
    check_pair("R5", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, Told::Votes(4, 0, true));
        tells(h, b, Told::Votes(4, 1, !violating));
        tells(h, b, Told::Decided(4, true));
    });
}

#[test]
fn r6_copy_lacks_a_change() {
    check_pair("R6", |h, violating| {
        let [a, b] = two(h);
        h.writes(a.1, create("/tree"));
        let zxid = h.tip();
        let seen = if violating { Zxid(0) } else { zxid };
        let copy = [("/tree", &b"v0"[..], seen)];
        tells(h, b, Told::Cached(zxid, caches::digest(copy.into_iter())));
    });
}

#[test]
fn r6_value_is_that_of_another_version() {
    check_pair("R6", |h, violating| {
        let [a, _] = two(h);
        tells(h, a, Told::Configured(4, if violating { 4 } else { 5 }));
    });
}

#[test]
fn r7_session_passes_a_barrier_that_stays() {
    check_pair("R7", |h, violating| {
        let [a, b] = two(h);
        let path = meetings::barrier_path(0);
        h.writes(a.1, create("/barriers"));
        tells(h, b, Told::Closes(0));
        h.writes(a.1, create(&path));
        if !violating {
            h.writes(a.1, delete(&path));
        }
        tells(h, b, Told::Passes(0));
    });
}

#[test]
fn r8_member_is_not_in_its_own_list() {
    check_pair("R8", |h, violating| {
        let [a, _] = two(h);
        tells(h, a, Told::Joins(2, 7));
        tells(h, a, Told::Joined(2, 7));
        tells(h, a, Told::Lists);
        if !violating {
            tells(h, a, Told::Member(2, 7));
        }
        tells(h, a, Told::Listed);
    });
}

#[test]
fn r8_member_is_listed_whom_nobody_knows() {
    check_pair("R8", |h, violating| {
        let [a, b] = two(h);
        tells(h, a, Told::Joins(2, 7));
        tells(h, b, Told::Lists);
        tells(h, b, Told::Member(2, if violating { 8 } else { 7 }));
        tells(h, b, Told::Listed);
    });
}

#[test]
fn r9_kept_node_has_former_data() {
    check_pair("R9", |h, violating| {
        let [a, _] = two(h);
        tells(h, a, Told::Keeps(1));
        tells(h, a, Told::Keeping(1));
        tells(h, a, Told::Keeps(2));
        if violating {
            tells(h, a, Told::Keeping(2));
        }
        tells(h, a, Told::Kept(1));
    });
}
