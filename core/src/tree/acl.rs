//! Access control lists, each distinct one stored once with a reference count (ACL-21).
//!
//! Owns interning. Must not know nodes, nor which clients a list permits (`auth` does).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire::Acl;

/// A stored list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct AclId(u32);

impl AclId {
    /// No list: everyone has all permissions. The nodes that the server creates itself have it.
    pub(crate) const NONE: AclId = AclId(0);
}

/// All lists in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclTable {
    /// Index is `AclId - 1`; a list with no references is free.
    lists: Vec<(Arc<[Acl]>, u32)>,
    ids: BTreeMap<Arc<[Acl]>, AclId>,
    free: Vec<AclId>,
}

impl AclTable {
    /// The id of `list`; adds one reference.
    pub(crate) fn intern(&mut self, list: &[Acl]) -> AclId {
        if list.is_empty() {
            return AclId::NONE;
        }
        if let Some(id) = self.ids.get(list) {
            self.lists[id.0 as usize - 1].1 += 1;
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.lists.push((Arc::default(), 0));
            AclId(u32::try_from(self.lists.len()).expect("fewer lists than nodes"))
        });
        let list: Arc<[Acl]> = Arc::from(list);
        self.lists[id.0 as usize - 1] = (list.clone(), 1);
        self.ids.insert(list, id);
        id
    }

    /// Removes one reference; frees the list with its last one.
    pub(crate) fn release(&mut self, id: AclId) {
        if id == AclId::NONE {
            return;
        }
        let (list, references) = &mut self.lists[id.0 as usize - 1];
        *references -= 1;
        if *references == 0 {
            self.ids.remove(list);
            *list = Arc::default();
            self.free.push(id);
        }
    }

    /// All lists with a reference, by id.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (AclId, &[Acl])> {
        (1..)
            .zip(&self.lists)
            .filter(|(_, (_, references))| *references > 0)
            .map(|(id, (list, _))| (AclId(id), &list[..]))
    }

    /// The lists of a snapshot under their ids, without references yet.
    pub(crate) fn restore(lists: Vec<(AclId, Vec<Acl>)>) -> AclTable {
        let mut table = AclTable::default();
        let ids: BTreeMap<u32, Vec<Acl>> =
            lists.into_iter().map(|(id, list)| (id.0, list)).collect();
        for n in 1..=ids.last_key_value().map_or(0, |(n, _)| *n) {
            let list: Arc<[Acl]> = Arc::from(ids.get(&n).cloned().unwrap_or_default());
            if list.is_empty() {
                table.free.push(AclId(n));
            } else {
                table.ids.insert(list.clone(), AclId(n));
            }
            table.lists.push((list, 0));
        }
        table
    }

    /// Adds one reference to a restored list; `false` if there is no such list.
    pub(crate) fn reference(&mut self, id: AclId) -> bool {
        if id == AclId::NONE {
            return true;
        }
        match self.lists.get_mut(id.0 as usize - 1) {
            Some((list, references)) if !list.is_empty() => {
                *references += 1;
                true
            }
            _ => false,
        }
    }

    /// The list; empty for [`AclId::NONE`].
    pub(crate) fn list(&self, id: AclId) -> &[Acl] {
        match id {
            AclId::NONE => &[],
            AclId(n) => &self.lists[n as usize - 1].0,
        }
    }

    /// The list, shared.
    pub(crate) fn share(&self, id: AclId) -> Arc<[Acl]> {
        match id {
            AclId::NONE => Arc::default(),
            AclId(n) => self.lists[n as usize - 1].0.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Perms;

    fn world(perms: i32) -> Acl {
        Acl { perms: Perms(perms), scheme: "world".into(), id: "anyone".into() }
    }

    /// ACL-21.
    #[test]
    fn equal_lists_share_an_id_until_the_last_release() {
        let mut table = AclTable::default();
        let (a, b) = (table.intern(&[world(31)]), table.intern(&[world(31)]));
        assert_eq!(a, b);
        assert_ne!(a, table.intern(&[world(1)]));
        table.release(a);
        assert_eq!(table.list(b), [world(31)]);
        table.release(b);
        assert_eq!(table.intern(&[world(2)]), a, "the id is used again");
    }
}
