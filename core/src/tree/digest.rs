//! The digest of the tree: a sum of one share per node, kept up to date with each change.
//!
//! Owns which shares are in the sum. Must not change nodes.

use std::{iter, mem};

use super::{NO_NODE, NOT_IN_SUM, NodeId, Tree};
use crate::digest::{self, NodeView};

/// The tree rehashes changed nodes in batches of this many, so that repeated changes hash once.
const CHANGED: usize = 64;

impl Tree {
    /// Digest of all nodes; see [`digest`]. Hashes the nodes changed since the last batch.
    pub(crate) fn digest(&self) -> u64 {
        let changed = self.changed.iter().filter_map(|id| self.share(*id));
        changed.fold(self.digest, u64::wrapping_add)
    }

    /// To be called after each transaction: adds changed nodes to the digest once there are enough.
    pub(crate) fn settle_digest(&mut self) {
        if self.changed.len() >= CHANGED {
            self.add_changed_shares();
        }
    }

    pub(super) fn add_changed_shares(&mut self) {
        for id in mem::take(&mut self.changed) {
            let share = self.share(id);
            self.slots[id.index()].share = share.unwrap_or(NO_NODE);
            self.digest = self.digest.wrapping_add(share.unwrap_or(0));
        }
    }

    /// To be called before a slot changes: subtracts its share from the digest.
    pub(super) fn remove_share(&mut self, id: NodeId) {
        match mem::replace(&mut self.slots[id.index()].share, NOT_IN_SUM) {
            NOT_IN_SUM => return,
            NO_NODE => {}
            share => self.digest = self.digest.wrapping_sub(share),
        }
        self.changed.push(id);
    }

    /// Digest share of the node in this slot, if any.
    fn share(&self, id: NodeId) -> Option<u64> {
        let view = self.view(id, "")?;
        let above = |id: &NodeId| Some(self.node(*id).parent);
        let nodes = iter::successors(Some(id), above).take_while(|id| *id != NodeId::ROOT);
        Some(digest::named(nodes.map(|id| &*self.node(id).name), &view))
    }

    /// Calls `visit` with each node, in no particular order.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&NodeView<'_>)) {
        for index in 0..self.slots.len() {
            let id = NodeId(u32::try_from(index).expect("places are 32-bit"));
            if self.slots[index].node.is_some() {
                let path = self.path_of(id);
                let view = self.view(id, &path);
                visit(&view.expect("there is a node"));
            }
        }
    }

    /// The node at `path`, if any.
    pub(crate) fn view_at<'a>(&'a self, path: &'a str) -> Option<NodeView<'a>> {
        self.view(self.find(path)?, path)
    }

    /// The node in this slot, if any, as a view with this path.
    fn view<'a>(&'a self, id: NodeId, path: &'a str) -> Option<NodeView<'a>> {
        let slot = &self.slots[id.index()];
        let node = slot.node.as_ref()?;
        Some(NodeView {
            path,
            data: node.data.as_deref(),
            acl: self.acls.list(node.acl),
            czxid: node.czxid,
            mzxid: node.mzxid,
            pzxid: node.pzxid,
            ctime: node.ctime,
            mtime: node.mtime,
            version: node.version,
            creates: node.creates,
            aversion: node.aversion,
            owner: node.owner,
            children: slot.links.children,
        })
    }
}
