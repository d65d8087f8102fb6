//! Paths of nodes in the descriptions of steps.
//!
//! Owns how they are recognized, and which are ancestors of which. Must not know what a step does
//! with them.

/// The paths in a description.
pub(super) fn nodes(effect: &str) -> Vec<String> {
    let words = effect.split([' ', ';', ',', '[', ']']);
    words.filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// A path and its ancestors, without the root.
pub(super) fn ancestors(node: &str) -> impl Iterator<Item = &str> {
    let ends = node.rmatch_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    [node.len()].into_iter().chain(ends).map(|end| &node[..end])
}

/// Whether it is that node, or a descendant.
pub(super) fn is_in(node: &str, above: &str) -> bool {
    node.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_paths_are_found_in_descriptions() {
        let effect = "c2 multi [setData /n5 v=-1; setData /n4/n22 v=0]";
        assert_eq!(nodes(effect), ["/n5", "/n4/n22"]);
        assert_eq!(nodes("net.stall; c5 between s1 and s2"), [""; 0]);
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b/c", "/a/b", "/a"]);
        assert!(is_in("/a", "/a") && is_in("/a/b", "/a"));
        assert!(!is_in("/ab", "/a") && !is_in("/a", "/a/b"));
    }
}
