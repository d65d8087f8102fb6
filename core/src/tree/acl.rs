//! Access control lists, each distinct one stored once with a reference count (ACL-21), and who passes them (ACL-01).
//!
//! Owns interning and the check. Must not know nodes. The only scheme offered is `world`; another one in a list is
//! refused before it gets here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::ErrorCode;
use crate::wire::{Acl, Perms};

/// A stored list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct AclId(u32);

impl AclId {
    /// No list: everything is allowed. What the server's own nodes have.
    pub(crate) const NONE: AclId = AclId(0);
}

/// All lists in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclTable {
    /// Index is `AclId - 1`; a list with no references is free.
    lists: Vec<(Vec<Acl>, u32)>,
    ids: BTreeMap<Vec<Acl>, AclId>,
    free: Vec<AclId>,
}

impl AclTable {
    /// The id of `list`, with one reference more.
    pub(crate) fn intern(&mut self, list: &[Acl]) -> AclId {
        if list.is_empty() {
            return AclId::NONE;
        }
        if let Some(id) = self.ids.get(list) {
            self.lists[id.0 as usize - 1].1 += 1;
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.lists.push((Vec::new(), 0));
            AclId(u32::try_from(self.lists.len()).expect("fewer lists than nodes"))
        });
        self.lists[id.0 as usize - 1] = (list.to_vec(), 1);
        self.ids.insert(list.to_vec(), id);
        id
    }

    /// One reference fewer.
    pub(crate) fn release(&mut self, id: AclId) {
        if id == AclId::NONE {
            return;
        }
        let (list, references) = &mut self.lists[id.0 as usize - 1];
        *references -= 1;
        if *references == 0 {
            self.ids.remove(list);
            list.clear();
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
            let list = ids.get(&n).cloned().unwrap_or_default();
            if list.is_empty() {
                table.free.push(AclId(n));
            } else {
                table.ids.insert(list.clone(), AclId(n));
            }
            table.lists.push((list, 0));
        }
        table
    }

    /// One reference more to a restored list; `false` where there is no such list.
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

    /// May anyone do this?
    pub(crate) fn allows(&self, id: AclId, wanted: Perms) -> bool {
        allows(self.list(id), wanted)
    }
}

/// May anyone do this? An empty list restricts nothing.
pub(crate) fn allows(list: &[Acl], wanted: Perms) -> bool {
    list.is_empty() || list.iter().any(|acl| acl.perms.intersects(wanted) && is_world(acl))
}

/// The list to store for one that a client sent: without repetitions (ACL-04), each entry of a scheme that is offered.
pub(crate) fn fixup(list: Vec<Acl>) -> Result<Vec<Acl>, ErrorCode> {
    let mut fixed: Vec<Acl> = Vec::with_capacity(list.len());
    for acl in list {
        if !is_world(&acl) {
            return Err(ErrorCode::InvalidAcl);
        }
        if !fixed.contains(&acl) {
            fixed.push(acl);
        }
    }
    if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(fixed) }
}

fn is_world(acl: &Acl) -> bool {
    acl.scheme == "world" && acl.id == "anyone"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(perms: i32) -> Acl {
        Acl { perms: Perms(perms), scheme: "world".into(), id: "anyone".into() }
    }

    #[test]
    fn acl_21_equal_lists_share_an_id_and_the_last_release_frees_it() {
        let mut table = AclTable::default();
        let (a, b) = (table.intern(&[world(31)]), table.intern(&[world(31)]));
        assert_eq!(a, b);
        assert_ne!(a, table.intern(&[world(1)]));
        table.release(a);
        assert_eq!(table.list(b), [world(31)]);
        table.release(b);
        assert_eq!(table.intern(&[world(2)]), a, "the id is used again");
    }

    #[test]
    fn acl_01_any_entry_with_a_shared_bit_suffices() {
        let list = [world(1), world(4)];
        assert!(allows(&list, Perms::READ) && allows(&list, Perms::CREATE));
        assert!(!allows(&list, Perms::DELETE));
        assert!(allows(&[], Perms::DELETE), "no list, no restriction");
    }

    #[test]
    fn edges_161_to_169_which_lists_are_taken() {
        let bob = Acl { id: "bob".into(), ..world(1) };
        let digest = Acl { scheme: "digest".into(), id: "a:b".into(), ..world(1) };
        for bad in [vec![], vec![bob], vec![world(1), digest]] {
            assert_eq!(fixup(bad), Err(ErrorCode::InvalidAcl));
        }
        assert_eq!(fixup(vec![world(255), world(0), world(255)]), Ok(vec![world(255), world(0)]));
    }
}
