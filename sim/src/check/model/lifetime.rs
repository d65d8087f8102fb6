//! Containers, TTL nodes and ephemeral nodes (DATA-17 to DATA-19, DATA-22 to DATA-24).
//!
//! Owns the lifetime that each request gives its node, the owner field for it, and when a node
//! expires.

use zabkeeper_core::txn::Lifetime;
use zabkeeper_core::wire::Request;
use zabkeeper_core::{ErrorCode, SessionId, TreeOptions, WallMs};

use super::Node;

/// The greatest TTL, ms: what fits five bytes (DATA-19).
const TTL_MAX: i64 = (1 << 40) - 1;

/// Whether the name of the created node is sequential, and the node's lifetime.
pub(super) fn asked(
    request: &Request,
    options: &TreeOptions,
) -> Result<(bool, Lifetime), ErrorCode> {
    let (flags, ttl) = if let Request::CreateTtl { flags, ttl, .. } = request {
        (*flags, Some(*ttl))
    } else if let Request::Create { flags, .. } | Request::CreateContainer { flags, .. } = request {
        (*flags, None)
    } else {
        unreachable!("{request} creates nothing")
    };
    let sequential = matches!(flags, 2 | 3 | 6);
    match flags {
        0..=4 if ttl.is_some() => return Err(ErrorCode::BadArguments),
        0..=4 => {}
        5 | 6 if !options.extended_types => return Err(ErrorCode::Unimplemented),
        5 | 6 => {
            let range = 1..=TTL_MAX;
            let ttl = ttl.filter(|ttl| range.contains(ttl)).ok_or(ErrorCode::BadArguments)?;
            let ms = u64::try_from(ttl).expect("in range");
            return Ok((sequential, Lifetime::Ttl { ms }));
        }
        _ => return Err(ErrorCode::BadArguments),
    }
    Ok((
        sequential,
        match (request, flags) {
            (Request::CreateContainer { .. }, _) => Lifetime::Container,
            (_, 1 | 3) => Lifetime::Ephemeral,
            // Flag 4 (container) in a plain create makes a persistent node (DATA-24).
            (_, _) => Lifetime::Persistent,
        },
    ))
}

/// The owner field of a node that `session` creates.
pub(super) fn owner_field(lifetime: Lifetime, session: SessionId) -> SessionId {
    match lifetime {
        Lifetime::Persistent => SessionId(0),
        Lifetime::Ephemeral => session,
        Lifetime::Container => SessionId(i64::MIN),
        Lifetime::Ttl { ms } => SessionId((0xff00_0000_0000_0000 | ms).cast_signed()),
    }
}

/// Whether a server may delete the node at this time on its own. A node with children stays; a
/// container that never had a child stays, too, unless `container_never_used_ms` is set.
pub(super) fn may_go(node: &Node, now: WallMs, options: &TreeOptions) -> bool {
    let idle = |ms: u64| i128::from(now.0) - i128::from(node.mtime) > i128::from(ms);
    let never_used = options.container_never_used_ms;
    node.children == 0
        && match node.lifetime {
            Lifetime::Persistent | Lifetime::Ephemeral => false,
            Lifetime::Container => node.creates > 0 || never_used > 0 && idle(never_used),
            Lifetime::Ttl { ms } => options.extended_types && idle(ms),
        }
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::wire::Acl;

    use super::*;

    /// DATA-23, DATA-24, edges 15 to 24
    #[test]
    fn create_flags_select_lifetime_and_sequence() {
        let (path, data, acl) = (|| "/a".to_owned(), || None, Acl::open);
        let plain = |flags| {
            let (path, data, acl) = (path(), data(), acl());
            Request::Create { path, data, acl, flags, with_stat: false }
        };
        let container = |flags| {
            let (path, data, acl) = (path(), data(), acl());
            Request::CreateContainer { path, data, acl, flags }
        };
        let timed = |flags, ttl| {
            let (path, data, acl) = (path(), data(), acl());
            Request::CreateTtl { path, data, acl, flags, ttl }
        };
        let on = TreeOptions { extended_types: true, ..TreeOptions::default() };
        let (bad, off) = (Err(ErrorCode::BadArguments), Err(ErrorCode::Unimplemented));
        let longest = Lifetime::Ttl { ms: (1 << 40) - 1 };
        for (request, with, without) in [
            (plain(9), bad, bad),
            (plain(4), Ok((false, Lifetime::Persistent)), Ok((false, Lifetime::Persistent))),
            (plain(3), Ok((true, Lifetime::Ephemeral)), Ok((true, Lifetime::Ephemeral))),
            (plain(5), bad, off),
            (container(0), Ok((false, Lifetime::Container)), Ok((false, Lifetime::Container))),
            (container(2), Ok((true, Lifetime::Container)), Ok((true, Lifetime::Container))),
            (container(6), bad, off),
            (timed(5, 0), bad, off),
            (timed(5, 1 << 40), bad, off),
            (timed(5, (1 << 40) - 1), Ok((false, longest)), off),
            (timed(6, 7), Ok((true, Lifetime::Ttl { ms: 7 })), off),
            (timed(0, 5), bad, bad),
            (timed(0, -1), bad, bad),
        ] {
            assert_eq!(asked(&request, &on), with, "{request:?}");
            assert_eq!(asked(&request, &TreeOptions::default()), without, "{request:?}");
        }
    }

    /// DATA-18, DATA-19
    #[test]
    fn owner_field_encodes_the_lifetime() {
        let session = SessionId(0x77);
        assert_eq!(owner_field(Lifetime::Ephemeral, session), session);
        assert_eq!(owner_field(Lifetime::Container, session).0, i64::MIN);
        assert_eq!(owner_field(Lifetime::Ttl { ms: 1 }, session).0, -0x00ff_ffff_ffff_ffff);
    }
}
