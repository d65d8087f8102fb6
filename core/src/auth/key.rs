//! Scheme `key`: a client proves itself by a multiple of the number in the node `/key` (ACL-15,
//! Java `KeyAuthenticationProvider`). This is ZooKeeper's example of a scheme that reads a node.
//!
//! Owns that check. Must not look up the node: the caller does.

use super::{Access, AuthOutcome, Facts, Scheme};
use crate::wire::Id;

/// The scheme `key`. It is an example and gives no protection: a multiple is easy to guess, and
/// while `/key` has no data, every packet with data is accepted.
#[derive(Debug)]
pub(super) struct Key;

impl Scheme for Key {
    fn name(&self) -> &str {
        "key"
    }

    fn node(&self) -> Option<&str> {
        Some("/key")
    }

    fn authenticate(&self, auth: Option<&[u8]>, facts: &Facts<'_>) -> AuthOutcome {
        let fits = match (facts.data, auth) {
            (_, None) => false,
            // Every client is accepted, so that one can write the first number.
            (None, Some(_)) => true,
            (Some(key), Some(auth)) => match (number(key), number(auth)) {
                (Some(key), Some(auth)) => key == 0 || auth.wrapping_rem(key) == 0,
                (None, _) | (_, None) => false,
            },
        };
        if !fits {
            return AuthOutcome::Refused;
        }
        // The identity is the same for every number, as in ZooKeeper.
        AuthOutcome::Accepted(vec![Id { scheme: "key".to_owned(), id: String::new() }])
    }

    fn is_valid(&self, _id: &str) -> bool {
        true
    }

    fn matches(&self, id: &str, entry: &str, _access: &Access<'_>) -> bool {
        id == entry
    }
}

/// Java's `Integer.parseInt`: digits with an optional sign, without blanks.
fn number(text: &[u8]) -> Option<i32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
