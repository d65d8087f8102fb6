//! The grammar of paths (DATA-01, DATA-02), from ZooKeeper's documentation for users.
//!
//! Owns which paths are valid, and their parents and names. Must not know which nodes exist.

use super::CONFIG_NODE;

/// Nodes that cannot be deleted (DATA-26).
const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", CONFIG_NODE];

/// Whether a node may have this path.
pub(super) fn is_valid(path: &str) -> bool {
    if path == "/" {
        return true;
    }
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    let segment_is_fine = |segment: &str| !matches!(segment, "" | "." | "..");
    rest.split('/').all(segment_is_fine) && path.chars().all(is_allowed)
}

/// Java checks UTF-16 code units: surrogates are refused, and with them all characters beyond
/// U+FFFF.
fn is_allowed(c: char) -> bool {
    !matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// The part before the last slash; the root if that is empty. `None` without a slash or with
/// U+0000.
pub(super) fn parent(path: &str) -> Option<&str> {
    if path.contains('\0') {
        return None;
    }
    match path.rfind('/')? {
        0 => Some("/"),
        slash => Some(&path[..slash]),
    }
}

/// The part after the last slash.
pub(super) fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

/// Whether the node is one of the server's own, which cannot be deleted.
pub(super) fn is_reserved(path: &str) -> bool {
    RESERVED.contains(&path)
}
