//! The identities of one connection (ACL-17, Java `ServerCnxn.authInfo`).
//!
//! Owns their order and their bounds. Must not know what they are worth.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire::Id;

/// The identities of one connection at one time. Lists of different times share what they have in common, so a request
/// that keeps the one that it was read with costs little.
pub type Ids = Arc<[Arc<Id>]>;

/// Most identities of one connection.
const MOST: usize = 1_000;

/// Most bytes of their text, schemes included.
const MOST_BYTES: usize = 1 << 20;

/// A client wants to be more than one connection may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TooMany {
    /// Identities.
    Identities,
    /// Bytes of their text.
    Bytes,
}

/// Each identity once; they only become more. They are in the order that ZooKeeper's set has, which shows: in the
/// answer to whoAmI, and in lists for the entry `auth`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    ids: Ids,
    /// The same with their hashes, which are made once.
    hashed: Vec<(u32, Arc<Id>)>,
    bytes: usize,
}

impl Identities {
    /// Those that are not there yet are added; all, or none where they would be too many.
    ///
    /// # Errors
    /// What there would be too much of.
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
            // Those of one bucket stay in the order in which they came.
            self.hashed.sort_by_key(|(hash, _)| hash % buckets);
            self.ids = self.hashed.iter().map(|(_, id)| id.clone()).collect();
        }
        Ok(())
    }

    /// As they are now; a request keeps those that it was read with.
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
            "its auth packets show more than {most} {of_what}, the most that one connection may have; use fewer, or \
             several connections"
        )
    }
}

/// How many buckets a set of Java's has for so many: sixteen, and twice as many whenever it is three quarters full.
pub(super) fn buckets(count: usize) -> u32 {
    let mut buckets = 16;
    while count >= buckets / 4 * 3 {
        buckets *= 2;
    }
    u32::try_from(buckets).expect("fewer identities than a frame has bytes")
}

/// `Id.hashCode` of ZooKeeper's generated class, as Java's hash maps spread it.
pub(super) fn hash(id: &Id) -> u32 {
    let field = |hash: u32, text: &str| hash.wrapping_mul(37).wrapping_add(text_hash(text));
    let hash = field(field(17, &id.scheme), &id.id);
    (hash ^ (hash >> 16)) & 0x7fff_ffff
}

/// `String.hashCode`.
fn text_hash(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}
