//! Nodes of the tree, as what was told of a step names them.
//!
//! Owns how they are found there, and which of them are above which. Must not know what a step does with them.

/// The nodes that are named there.
pub(super) fn nodes(told: &str) -> Vec<String> {
    let words = told.split([' ', ';', ',', '[', ']']);
    words.filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// A node, and all above it but the root.
pub(super) fn ancestors(node: &str) -> impl Iterator<Item = &str> {
    let ends = node.rmatch_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    [node.len()].into_iter().chain(ends).map(|end| &node[..end])
}

/// Is it that node, or below it?
pub(super) fn is_in(node: &str, above: &str) -> bool {
    node.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_from_what_was_told() {
        let told = "c2 multi [setData /n5 v=-1; setData /n4/n22 v=0]";
        assert_eq!(nodes(told), ["/n5", "/n4/n22"]);
        assert_eq!(nodes("net.stall; c5 between s1 and s2"), [""; 0]);
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b/c", "/a/b", "/a"]);
        assert!(is_in("/a", "/a") && is_in("/a/b", "/a"));
        assert!(!is_in("/ab", "/a") && !is_in("/a", "/a/b"));
    }
}
