//! A number that is a multiple of the one in `/key` (ACL-15, Java `KeyAuthenticationProvider`): ZooKeeper's example of a
//! scheme that reads a node.
//!
//! Owns that computation. Must not find the node: the caller does.

use super::{Access, AuthOutcome, Facts, Scheme};
use crate::wire::Id;

/// The scheme `key`. It protects nothing that matters: whoever guesses a multiple is in, and so is everybody while there
/// is no `/key`.
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
            // So that somebody can write the first one.
            (None, Some(_)) => true,
            (Some(key), Some(auth)) => match (number(key), number(auth)) {
                (Some(key), Some(auth)) => key == 0 || auth.wrapping_rem(key) == 0,
                (None, _) | (_, None) => false,
            },
        };
        if !fits {
            return AuthOutcome::Refused;
        }
        // The same for all, whatever the number was, as in ZooKeeper.
        AuthOutcome::Accepted(vec![Id { scheme: "key".to_owned(), id: String::new() }])
    }

    fn is_valid(&self, _id: &str) -> bool {
        true
    }

    fn matches(&self, id: &str, entry: &str, _access: &Access<'_>) -> bool {
        id == entry
    }
}

/// As Java's `parseInt`: nothing around it, a sign at most.
fn number(text: &[u8]) -> Option<i32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
