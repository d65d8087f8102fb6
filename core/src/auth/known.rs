//! The identities of one connection (ACL-17, Java `ServerCnxn.authInfo`).
//!
//! Owns their order and their limits. Must not know what they permit.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire::Id;

/// The identities of one connection at one time. Successive lists share their elements, so a
/// request that keeps the list it was read with costs little.
pub type Ids = Arc<[Arc<Id>]>;

/// Limit of identities per connection.
const MOST: usize = 1_000;

/// Limit of the text of all identities of a connection, schemes included, bytes.
const MOST_BYTES: usize = 1 << 20;

/// The limit that a client's identities would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TooMany {
    /// Number of identities.
    Identities,
    /// Bytes of their text.
    Bytes,
}

/// A set of identities that only grows. Its order is that of ZooKeeper's hash set, because clients
/// see that order: in the reply to whoAmI, and in lists in which `auth` is expanded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    ids: Ids,
    /// The same identities with their hashes, which are computed once.
    hashed: Vec<(u32, Arc<Id>)>,
    bytes: usize,
}

impl Identities {
    /// Adds the identities that are not in the set: all of them, or none if they would exceed a
    /// limit.
    ///
    /// # Errors
    /// The limit that would be exceeded.
    pub(crate) fn extend(&mut self, ids: impl IntoIterator<Item = Id>) -> Result<(), TooMany> {
        let before = self.hashed.len();
        let mut bytes = self.bytes;
        for id in ids {
            let hash = hash(&id);
            if !self.hashed.iter().any(|(other, known)| *other == hash && **known == id) {
                bytes += id.scheme.len() + id.id.len();
                self.hashed.push((hash, Arc::new(id)));
            }
        }
        let too_many = match (self.hashed.len() > MOST, bytes > MOST_BYTES) {
            (true, _) => Some(TooMany::Identities),
            (false, true) => Some(TooMany::Bytes),
            (false, false) => None,
        };
        if let Some(too_many) = too_many {
            self.hashed.truncate(before);
            return Err(too_many);
        }
        if self.hashed.len() > before {
            self.bytes = bytes;
            let buckets = buckets(self.hashed.len());
            // The sort is stable: identities of one bucket stay in the order of insertion.
            self.hashed.sort_by_key(|(hash, _)| hash % buckets);
            self.ids = self.hashed.iter().map(|(_, id)| id.clone()).collect();
        }
        Ok(())
    }

    /// The current identities; a request keeps the list that it was read with.
    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, of_what) = match self {
            TooMany::Identities => (MOST, "identities"),
            TooMany::Bytes => (MOST_BYTES, "bytes of identities"),
        };
        write!(
            f,
            "its auth packets show more than {most} {of_what}, the most that one connection may \
             have; use fewer, or \
             several connections"
        )
    }
}

/// Buckets of a Java hash set with `count` elements: 16, doubled whenever the set is three quarters
/// full.
pub(super) fn buckets(count: usize) -> u32 {
    let mut buckets = 16;
    while count >= buckets / 4 * 3 {
        buckets *= 2;
    }
    u32::try_from(buckets).expect("fewer identities than a frame has bytes")
}

/// `Id.hashCode` of ZooKeeper's generated class, spread as by Java's `ConcurrentHashMap`.
pub(super) fn hash(id: &Id) -> u32 {
    let field = |hash: u32, text: &str| hash.wrapping_mul(37).wrapping_add(text_hash(text));
    let hash = field(field(17, &id.scheme), &id.id);
    (hash ^ (hash >> 16)) & 0x7fff_ffff
}

/// `String.hashCode`.
fn text_hash(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}
