//! The grammar of paths (DATA-01, DATA-02), from the rules for users.
//!
//! Owns what a valid path is and where its parent stands. Must not know which nodes exist.

/// Nodes that cannot be deleted (DATA-26).
const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// May a node have this path?
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

/// Java counts UTF-16 units: whatever needs a surrogate pair falls into the refused range, too.
fn is_allowed(c: char) -> bool {
    !matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// What stands before the last slash; the root where that is nothing. `None` without a slash or with U+0000.
pub(super) fn parent(path: &str) -> Option<&str> {
    if path.contains('\0') {
        return None;
    }
    match path.rfind('/')? {
        0 => Some("/"),
        slash => Some(&path[..slash]),
    }
}

/// What stands after the last slash.
pub(super) fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

/// Does the node belong to the server?
pub(super) fn is_reserved(path: &str) -> bool {
    RESERVED.contains(&path)
}
