//! Identities of clients, and the ACLs that they set: a few users, and restricted ACLs.
//!
//! Owns the users of a run. Must not know which client has which identity: every client tries every
//! one.

use bytes::Bytes;
use zabkeeper_core::AuthOptions;
use zabkeeper_core::wire::{Acl, Perms, Secret};

use crate::check::model;
use crate::check::observe::SUPER_SUBJECT;
use crate::engine::seed::Rng;

/// Two share a name, and two a password.
const USERS: [&str; 4] = ["ann:a", "bob:a", "bob:b", "nobody"];
/// IPv6 networks, and invalid ones.
const NETWORKS: [&str; 14] = [
    "fd00::/16",
    "fd00::/125",
    "fd00::3",
    "fd00:0:0:0:0:0:0:7",
    "::/0",
    "::1",
    "1::",
    "fd00::/129",
    "fd00::12345",
    "1::2::3",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7::8",
    "fd00:::1",
    "fd00::x",
];
/// Credentials of the super user.
pub(super) const SUPER: &str = "super:test";

/// The ensemble name that clients may ask for.
pub const ENSEMBLE: &str = "zab";

/// The servers' authentication options.
pub fn known() -> AuthOptions {
    AuthOptions {
        super_digest: Some(model::digest_of(SUPER.as_bytes())),
        x509_super_user: Some(SUPER_SUBJECT.to_owned()),
        ensemble_names: vec!["other".to_owned(), ENSEMBLE.to_owned()],
        ..AuthOptions::default()
    }
}

/// A random credential; a few are refused, which ends the session.
pub(super) fn credential(rng: &mut Rng) -> (String, Secret) {
    let (scheme, auth) = match rng.below(20) {
        0 => *rng.pick(&[("foo", "x"), ("world", "x"), ("auth", "x"), ("sasl", "x")]),
        1 | 2 => ("digest", SUPER),
        3 => ("digest", ""),
        4 => ("ip", "10.9.9.9"),
        _ => ("digest", *rng.pick(&USERS)),
    };
    (scheme.to_owned(), Secret::from(auth))
}

/// A unique user, and an ACL for that user alone.
pub(super) fn other_user(client: u32, serial: u32) -> (Secret, Vec<Acl>) {
    let user = format!("t{client}.{serial}:x");
    let id = model::digest_of(user.as_bytes());
    let own = Acl { perms: Perms::ALL, scheme: "digest".to_owned(), id };
    (Secret(Some(Bytes::from(user))), vec![own])
}

/// An ACL that restricts access, or that the server refuses.
pub(super) fn narrow(rng: &mut Rng) -> Vec<Acl> {
    let count = match rng.below(20) {
        0 => 0,
        count => 1 + count / 9,
    };
    (0..count).map(|_| entry(rng)).collect()
}

fn entry(rng: &mut Rng) -> Acl {
    let perms = match rng.below(8) {
        0 => 0,
        1 => 255,
        2 => 1,
        3 => 31,
        _ => i32::try_from(rng.below(32)).expect("small"),
    };
    let (scheme, id) = match rng.below(19) {
        0 if rng.chance(1, 4) => ("world", "somebody".to_owned()),
        0..4 => ("world", "anyone".to_owned()),
        4..7 => ("auth", (*rng.pick(&["", "anything"])).to_owned()),
        7..12 => ("digest", model::digest_of(rng.pick(&USERS).as_bytes())),
        12 => ("digest", (*rng.pick(&["a:b:c", "a:", ":b", "a:b:"])).to_owned()),
        13 | 14 => {
            let within = ["10.0.0.0/30", "10.0.0.4", "10.0.0.3/32", "0.0.0.0/0", "10.0.0.8/29"];
            ("ip", (*rng.pick(&within)).to_owned())
        }
        15 => (*rng.pick(&["ip", "foo", "ensemble"]), "10.0.0.1/33".to_owned()),
        16 | 17 => ("x509", rng.pick(&model::NAMES).0.to_owned()),
        _ => ("ip", (*rng.pick(&NETWORKS)).to_owned()),
    };
    Acl { perms: Perms(perms), scheme: scheme.to_owned(), id }
}
