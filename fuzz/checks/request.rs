//! Requests from an input: every operation, on few paths, so that requests affect the same nodes.

use bytes::Bytes;
use zabkeeper_core::Zxid;
use zabkeeper_core::wire::{Acl, AddWatchMode, Perms, Request, Secret, SetWatches, WatcherType};

use super::source::Source;

/// Ordinary paths, reserved paths and invalid paths.
const PATHS: [&str; 28] = [
    "/a",
    "/b",
    "/a/b",
    "/a/c",
    "/a/b/c",
    "/b/a",
    "/",
    "/a0000000000",
    "/a/b0000000001",
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/zookeeper/quota/a",
    "/zookeeper/quota/a/zookeeper_limits",
    "/zookeeper/quota/a/zookeeper_stats",
    "/zookeeper/quota/a/b",
    "/zookeeper/quota/a/b/zookeeper_limits",
    "",
    "a",
    "//",
    "/a/",
    "/a//b",
    "/a/..",
    "/a/./b",
    "/a\0b",
    "/\u{1}",
    "/\u{e9}\u{10ffff}",
    "/a b",
];

const LIMITS: [&str; 6] = [
    "count=1,bytes=-1",
    "count=-1,bytes=9",
    "count=2,bytes=20=;byteHardLimit=9;countHardLimit=2",
    "count=0,bytes=0=;byteHardLimit=;countHardLimit=0",
    "count=x",
    "count=9223372036854775807,bytes=-9223372036854775808",
];

/// The next request; if `part`, an operation that a multi may hold.
pub(crate) fn request(source: &mut Source<'_>, part: bool) -> Request {
    match source.below(if part { 8 } else { 30 }) {
        0 | 1 => Request::Create {
            path: path(source),
            data: data(source),
            acl: acl(source),
            flags: flags(source),
            with_stat: source.below(2) == 1,
        },
        2 => Request::Delete { path: path(source), version: version(source) },
        3 => Request::SetData { path: path(source), data: data(source), version: version(source) },
        4 => Request::Check { path: path(source), version: version(source) },
        5 => Request::CreateContainer {
            path: path(source),
            data: data(source),
            acl: acl(source),
            flags: flags(source),
        },
        6 => Request::CreateTtl {
            path: path(source),
            data: data(source),
            acl: acl(source),
            flags: 5 + i32::from(source.below(3)),
            ttl: ttl(source),
        },
        7 => Request::SetData { path: limits_path(source), data: limits(source), version: -1 },
        8 | 9 => Request::Multi((0..source.below(5)).map(|_| request(source, true)).collect()),
        10 => Request::Create {
            path: limits_path(source),
            data: limits(source),
            acl: Acl::open(),
            flags: 0,
            with_stat: false,
        },
        11 => Request::Exists { path: path(source), watch: source.below(2) == 1 },
        12 => Request::GetData { path: path(source), watch: source.below(2) == 1 },
        13 => Request::GetChildren {
            path: path(source),
            watch: source.below(2) == 1,
            with_stat: source.below(2) == 1,
        },
        14 => Request::Sync { path: path(source) },
        15 => Request::Ping,
        16 => Request::Watches {
            path: path(source),
            kind: watcher_type(source),
            remove: source.below(2) == 1,
        },
        17 => Request::Auth { scheme: "digest".into(), auth: Secret(Some(user(source).into())) },
        18 => {
            let schemes = ["digest", "ip", "world", "auth", "sasl", "x509", "super", ""];
            let scheme = schemes[usize::from(source.below(8))].to_owned();
            Request::Auth { scheme, auth: Secret(Some(Bytes::copy_from_slice(source.bytes()))) }
        }
        19 => Request::SetWatches(SetWatches {
            relative_zxid: Some(zxid(source)),
            data: paths(source),
            exist: paths(source),
            child: paths(source),
            persistent: Vec::new(),
            recursive: Vec::new(),
        }),
        20 => Request::SetWatches(SetWatches {
            relative_zxid: Some(zxid(source)),
            data: paths(source),
            exist: paths(source),
            child: paths(source),
            persistent: paths(source),
            recursive: paths(source),
        }),
        21 => Request::GetAcl { path: path(source) },
        22 => Request::SetAcl { path: path(source), acl: acl(source), version: version(source) },
        23 => Request::MultiRead((0..source.below(5)).map(|_| read(source)).collect()),
        24 => Request::GetEphemerals { prefix: path(source) },
        25 => Request::GetAllChildrenNumber { path: path(source) },
        26 | 27 => Request::AddWatch {
            path: path(source),
            mode: match source.below(2) {
                0 => AddWatchMode::Persistent,
                _ => AddWatchMode::PersistentRecursive,
            },
        },
        28 => Request::WhoAmI,
        _ => Request::CloseSession,
    }
}

fn read(source: &mut Source<'_>) -> Request {
    match source.below(2) {
        0 => Request::GetData { path: path(source), watch: false },
        _ => Request::GetChildren { path: path(source), watch: false, with_stat: false },
    }
}

fn path(source: &mut Source<'_>) -> String {
    let choice = usize::from(source.byte());
    match PATHS.get(choice % 32) {
        // The first eight paths are chosen more often, so that requests affect the same nodes.
        _ if choice >= 128 => PATHS[choice % 8].to_owned(),
        Some(path) => (*path).to_owned(),
        None => {
            let bytes = source.bytes();
            format!("/{}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)]))
        }
    }
}

fn paths(source: &mut Source<'_>) -> Vec<String> {
    (0..source.below(4)).map(|_| path(source)).collect()
}

/// At most seven bytes: the oracles take longer data for the unique label of one write.
fn data(source: &mut Source<'_>) -> Option<Bytes> {
    match source.below(4) {
        0 => None,
        1 => Some(Bytes::new()),
        2 => Some(Bytes::from_static(b"seven b")),
        _ => {
            let bytes = source.bytes();
            Some(Bytes::copy_from_slice(&bytes[..bytes.len().min(7)]))
        }
    }
}

fn limits_path(source: &mut Source<'_>) -> String {
    ["/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/a/b/zookeeper_limits"]
        [usize::from(source.below(2))]
    .to_owned()
}

fn limits(source: &mut Source<'_>) -> Option<Bytes> {
    let text = match LIMITS.get(usize::from(source.below(8))) {
        Some(text) => (*text).to_owned(),
        None => {
            let [count, bytes, hard] = [(); 3].map(|()| i64::from(source.byte()) - 2);
            format!("count={count},bytes={bytes}=;byteHardLimit={hard};countHardLimit={hard}")
        }
    };
    Some(text.into())
}

fn acl(source: &mut Source<'_>) -> Vec<Acl> {
    // The open ACL is the most frequent.
    let choice = source.byte();
    if choice < 128 {
        return Acl::open();
    }
    let entry = |source: &mut Source<'_>| {
        let perms = Perms(i32::from(source.byte()) - 1);
        let [bob, ann] = ["bob:LcrmCNs/wfVD+i5a5yaz89GyjIM=", "ann:i9V/d2HTT0sehGWzvQcFNipywIQ="];
        let (scheme, id) = match source.below(10) {
            0 | 1 => ("world", "anyone"),
            2 => ("auth", ""),
            3 => ("digest", bob),
            4 => ("digest", ann),
            5 => ("ip", "10.0.0.1"),
            6 => ("ip", "10.0.0.0/24"),
            7 => ("world", "someone"),
            8 => ("digest", "nobody"),
            _ => ("x509", "CN=a"),
        };
        Acl { perms, scheme: scheme.into(), id: id.into() }
    };
    (0..choice % 4).map(|_| entry(source)).collect()
}

/// Credentials; the ACLs above name the first two.
fn user(source: &mut Source<'_>) -> &'static str {
    ["bob:b", "ann:a", "super:s", "", "no colon"][usize::from(source.below(5))]
}

fn version(source: &mut Source<'_>) -> i32 {
    match source.below(8) {
        0..=3 => -1,
        4 => 0,
        5 => 1,
        6 => 2,
        _ => source.int(),
    }
}

fn flags(source: &mut Source<'_>) -> i32 {
    match source.below(12) {
        0..=2 => 0,
        3..=5 => 1,
        6 | 7 => 2,
        8 => 3,
        9 => 4,
        10 => 5 + i32::from(source.below(3)),
        _ => source.int(),
    }
}

fn ttl(source: &mut Source<'_>) -> i64 {
    match source.below(4) {
        0 => i64::from(source.byte()) * 100,
        1 => 0,
        2 => 0xff_ffff_ffff,
        _ => source.long(),
    }
}

fn zxid(source: &mut Source<'_>) -> Zxid {
    match source.below(4) {
        0 => Zxid::ZERO,
        1 => Zxid(0x1_0000_0000 + u64::from(source.byte())),
        2 => Zxid(u64::MAX >> 1),
        _ => Zxid::from_wire(source.long()),
    }
}

fn watcher_type(source: &mut Source<'_>) -> WatcherType {
    [
        WatcherType::Any,
        WatcherType::Data,
        WatcherType::Children,
        WatcherType::Persistent,
        WatcherType::PersistentRecursive,
    ][usize::from(source.below(5))]
}
