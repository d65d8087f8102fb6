//! R1: programs that take locks.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::{ConnId, Zxid};

use super::history::{History, check_pair};
use crate::check::observe::{ClientId, Observation};
use crate::clients::program::Told;

/// A program says this of the session of its connection.
fn tells(h: &mut History, (client, conn): (u32, ConnId), told: Told) {
    let session = h.session(conn);
    h.sees(Observation::LockUsed { client: ClientId(client), session, told });
}

#[test]
fn r1_lock_is_taken_that_another_session_holds() {
    check_pair("R1", |h, violating| {
        let [a, b] = [0, 1].map(|client| (client, h.client(client)));
        tells(h, a, Told::Holds(7, Zxid(3)));
        if !violating {
            tells(h, a, Told::Ends(7));
        }
        tells(h, b, Told::Holds(7, Zxid(4)));
    });
}

#[test]
fn r1_token_does_not_rise() {
    check_pair("R1", |h, violating| {
        let [a, b] = [0, 1].map(|client| (client, h.client(client)));
        tells(h, a, Told::Holds(7, Zxid(3)));
        tells(h, a, Told::Ends(7));
        tells(h, b, Told::Holds(7, Zxid(if violating { 3 } else { 4 })));
    });
}
