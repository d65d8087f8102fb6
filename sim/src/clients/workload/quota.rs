//! Quotas on a few paths: created node by node as by the command line client, changed, and removed.
//!
//! Owns the quota texts and the choice of nodes. Must not know which nodes exist: some requests
//! fail.

use bytes::Bytes;
use zabkeeper_core::wire::{Acl, Request};

use crate::engine::seed::Rng;

/// The next request concerning the quota of this path.
pub(super) fn request(path: &str, rng: &mut Rng) -> Request {
    let root = format!("/zookeeper/quota{path}");
    let (limits, stats) = (format!("{root}/zookeeper_limits"), format!("{root}/zookeeper_stats"));
    match rng.below(12) {
        0..4 => {
            let ends = root.match_indices('/').map(|(end, _)| end).skip(2);
            let mut above: Vec<&str> = ends.map(|end| &root[..end]).collect();
            above.push(&root);
            create((*rng.pick(&above[1..])).to_owned(), Bytes::new())
        }
        4..7 => {
            let limits = create(limits, text(rng));
            Request::Multi(vec![limits, create(stats, Bytes::from_static(b"count=0,bytes=0"))])
        }
        7 => Request::SetData { path: limits, data: Some(text(rng)), version: -1 },
        8 | 9 => Request::GetData { path: stats, watch: rng.chance(1, 2) },
        10 => Request::Delete { path: limits, version: -1 },
        _ => Request::Delete { path: stats, version: -1 },
    }
}

fn create(path: String, data: Bytes) -> Request {
    Request::Create { path, data: Some(data), acl: Acl::open(), flags: 0, with_stat: false }
}

fn text(rng: &mut Rng) -> Bytes {
    let mut limit = |most| match rng.chance(1, 2) {
        true => -1,
        false => i64::try_from(rng.range(1, most)).expect("small"),
    };
    let (count, bytes, count_hard, bytes_hard) = (limit(6), limit(100), limit(6), limit(300));
    let mut text = format!("count={count},bytes={bytes}");
    if count_hard > 0 || bytes_hard > 0 {
        text += &format!("=;byteHardLimit={bytes_hard};countHardLimit={count_hard}");
    }
    if rng.chance(1, 20) {
        text = "no limits".to_owned();
    }
    Bytes::from(text)
}
