//! The first node, by path, at which two trees with different digests differ: in data, stat or ACL.
//!
//! Owns the copy of a tree for that. Must not check anything: the digests decide.

use std::collections::BTreeMap;

use zabkeeper_core::digest::NodeView;
use zabkeeper_core::{Server, Zxid};

use crate::check::model::Model;
use crate::check::observe::Holder;

/// The stored fields of a stat, by name.
type Stat = [(&'static str, i64); 10];

/// The comparable parts of a tree.
#[derive(Clone, Default, Debug)]
pub(super) struct Nodes(BTreeMap<String, Parts>);

/// A node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Parts {
    data: Option<Vec<u8>>,
    stat: Stat,
    /// The ACL as text.
    acl: String,
}

impl Parts {
    fn of(node: &NodeView<'_>) -> Parts {
        let NodeView { path: _, data, acl, czxid, mzxid, pzxid, ctime, mtime, .. } = *node;
        let NodeView { version, creates, aversion, owner, children, .. } = *node;
        let stat = [
            ("czxid", czxid.0.cast_signed()),
            ("mzxid", mzxid.0.cast_signed()),
            ("pzxid", pzxid.0.cast_signed()),
            ("ctime", ctime),
            ("mtime", mtime),
            ("version", version.into()),
            ("children created", creates.into()),
            ("aversion", aversion.into()),
            ("owner", owner.0),
            ("children", children.into()),
        ];
        Parts { data: data.map(<[u8]>::to_vec), stat, acl: format!("{acl:?}") }
    }

    /// The parts that differ from the right ones.
    fn differ_from(&self, right: &Parts) -> String {
        let mut parts = Vec::new();
        if self.data != right.data {
            let (held, right) = (shown(self.data.as_deref()), shown(right.data.as_deref()));
            parts.push(format!("data: {held}, the model {right}"));
        }
        for ((name, held), (_, right)) in self.stat.iter().zip(&right.stat) {
            if held != right {
                parts.push(format!("stat: {name} {held:#x}, the model {right:#x}"));
            }
        }
        if self.acl != right.acl {
            parts.push(format!("acl: {}, the model {}", self.acl, right.acl));
        }
        parts.join("; ")
    }
}

impl Nodes {
    /// The tree of this server.
    pub(super) fn of(server: &Server) -> Nodes {
        let mut nodes = Nodes::default();
        server.visit_nodes(&mut |view| nodes.add(view));
        nodes
    }

    fn add(&mut self, view: &NodeView<'_>) {
        self.0.insert(view.path.to_owned(), Parts::of(view));
    }

    /// The first node that differs from the model's at `zxid`.
    pub(super) fn differ_from(&self, model: &Model, zxid: Zxid) -> String {
        let mut right = Nodes::default();
        model.nodes_at(zxid).for_each(|(path, node)| right.add(&node.view(path)));
        let paths = self.0.keys().chain(right.0.keys());
        let differs = |path: &&String| self.0.get(*path) != right.0.get(*path);
        let Some(path) = paths.filter(differs).min() else {
            return "no node differs: sessions do".to_owned();
        };
        let how = match (self.0.get(path), right.0.get(path)) {
            (Some(held), Some(right)) => held.differ_from(right),
            (Some(_), None) => "it is there, and not in the model".to_owned(),
            (None, _) => "it is not there, and in the model".to_owned(),
        };
        format!("the first node that differs is {path}: {how}")
    }
}

/// Length and first bytes of the data.
fn shown(data: Option<&[u8]>) -> String {
    const BEGINS: usize = 32;
    let Some(data) = data else {
        return "null".to_owned();
    };
    let begin = data.get(..BEGINS).unwrap_or(data);
    format!("{} bytes {:?}", data.len(), String::from_utf8_lossy(begin))
}

/// Where the holder's tree differs from the model's at `zxid`, if there is a holder.
pub(super) fn first(model: &Model, zxid: Zxid, holder: Holder<'_>) -> Option<String> {
    holder.0.map(|server| Nodes::of(server).differ_from(model, zxid))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use zabkeeper_core::wire::{Acl, Perms};

    use super::*;
    use crate::check::model::Rules;

    fn model() -> Model {
        Model::new(Rules::default())
    }

    /// The difference of an empty ensemble's tree after one change of one node.
    fn text_of(path: &str, change: impl FnOnce(&mut crate::check::model::Node)) -> String {
        let (model, mut nodes) = (model(), Nodes::default());
        let mut change = Some(change);
        for (each, node) in model.nodes_at(Zxid::ZERO) {
            let mut node = node.clone();
            if each == path
                && let Some(change) = change.take()
            {
                change(&mut node);
            }
            nodes.add(&node.view(each));
        }
        nodes.differ_from(&model, Zxid::ZERO)
    }

    #[test]
    fn first_different_node_is_named_with_its_parts() {
        let list = [Acl { perms: Perms(1), scheme: "world".into(), id: "anyone".into() }];
        assert_eq!(text_of("", |_| {}), "no node differs: sessions do");
        let data = text_of("/", |node| node.data = Some(Bytes::from_static(b"x")));
        assert!(data.ends_with("is /: data: 1 bytes \"x\", the model 0 bytes \"\""), "{data}");
        let stat = text_of("/zookeeper", |node| (node.version, node.mzxid) = (3, Zxid(0x10)));
        assert_eq!(
            stat,
            "the first node that differs is /zookeeper: stat: mzxid 0x10, the model 0x0; stat: \
             version 0x3, the model 0x0"
        );
        let acl = text_of("/zookeeper", |node| node.acl = list.into());
        assert!(acl.starts_with("the first node that differs is /zookeeper: acl: [Acl"), "{acl}");
        let model = model();
        let nothing = Nodes::default().differ_from(&model, Zxid::ZERO);
        assert_eq!(nothing, "the first node that differs is /: it is not there, and in the model");
    }
}
