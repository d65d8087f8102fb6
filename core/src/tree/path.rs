//! Path syntax (DATA-01, DATA-02), and splitting of paths.
//!
//! Owns the grammar. Must not know whether a node exists.

use std::iter;

/// Whether a node may be created or changed at `path` (Java `PathUtils.validatePath`).
pub(crate) fn is_valid(path: &str) -> bool {
    match path.strip_prefix('/') {
        None => false,
        Some("") => true,
        Some(rest) => {
            names(rest).all(|name| !matches!(name, "" | "." | "..")) && path.chars().all(is_allowed)
        }
    }
}

/// DATA-02 counts in UTF-16 units, whose surrogates lie in the refused range: nothing beyond U+FFFF
/// is allowed.
fn is_allowed(c: char) -> bool {
    !matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// The names in a path without its first slash. Each request looks for a few short ones, for which
/// a plain loop is several times faster than the search of `str::split`, which is made for long
/// texts.
pub(super) fn names(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.bytes().position(|byte| byte == b'/') else {
            return rest.take();
        };
        rest = Some(&text[end + 1..]);
        Some(&text[..end])
    })
}

/// Parent and name, cut at the last slash; `None` for the root and for what has no slash.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    match (parent, name) {
        ("", "") => None,
        ("", name) => Some(("/", name)),
        parts => Some(parts),
    }
}

/// The node itself and the nodes that no client may delete (DATA-26).
pub(crate) fn is_reserved(path: &str) -> bool {
    matches!(path, "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_at_slashes() {
        for path in ["", "a", "a/b", "a//b", "/", "a/", "ä/ö/", "zookeeper/quota"] {
            assert!(names(path).eq(path.split('/')), "{path:?}");
        }
    }

    /// Edges 2 to 11.
    #[test]
    fn path_grammar_matches_zookeeper() {
        for good in ["/", "/a", "/a..b", "/.a", "/...", "/a/b", "/\u{a0}"] {
            assert!(is_valid(good), "{good:?}");
        }
        for bad in [
            "",
            "abc",
            "//a",
            "/a/",
            "/.",
            "/..",
            "/a/./b",
            "/a//b",
            "/\u{1}",
            "/\u{0}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{fff0}",
            "/\u{1f600}",
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
    }

    #[test]
    fn split_at_the_last_slash() {
        for (path, parts) in [
            ("/a", Some(("/", "a"))),
            ("/a/b", Some(("/a", "b"))),
            ("/a/", Some(("/a", ""))),
            ("//a", Some(("/", "a"))),
            ("/", None),
            ("abc", None),
        ] {
            assert_eq!(split(path), parts, "{path:?}");
        }
    }
}
