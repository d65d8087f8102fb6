//! The identities of one connection (ACL-17, Java `ServerCnxn.authInfo`).
//!
//! Owns their order. Must not know what they are worth.

use std::sync::Arc;

use crate::wire::Id;

/// Each identity once; they only become more. They are in the order that ZooKeeper's set has, which shows: in the
/// answer to whoAmI, and in lists for the entry `auth`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    ids: Arc<[Id]>,
}

impl Known {
    /// Those that are not there yet are added.
    pub(crate) fn extend(&mut self, ids: impl IntoIterator<Item = Id>) {
        let mut all = self.ids.to_vec();
        for id in ids {
            if !all.contains(&id) {
                all.push(id);
            }
        }
        if all.len() > self.ids.len() {
            let buckets = buckets(all.len());
            // Those of one bucket stay in the order in which they came.
            all.sort_by_key(|id| hash(id) % buckets);
            self.ids = Arc::from(all);
        }
    }

    /// As they are now; a request keeps those that it was read with.
    pub(crate) fn ids(&self) -> &Arc<[Id]> {
        &self.ids
    }
}

/// How many buckets a set of Java's has for so many: sixteen, and twice as many whenever it is three quarters full.
fn buckets(count: usize) -> u32 {
    let mut buckets = 16;
    while count >= buckets / 4 * 3 {
        buckets *= 2;
    }
    u32::try_from(buckets).expect("fewer identities than a frame has bytes")
}

/// `Id.hashCode` of ZooKeeper's generated class, as Java's hash maps spread it.
fn hash(id: &Id) -> u32 {
    let field = |hash: u32, text: &str| hash.wrapping_mul(37).wrapping_add(text_hash(text));
    let hash = field(field(17, &id.scheme), &id.id);
    (hash ^ (hash >> 16)) & 0x7fff_ffff
}

/// `String.hashCode`.
fn text_hash(text: &str) -> u32 {
    text.encode_utf16().fold(0, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}
