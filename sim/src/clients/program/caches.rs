//! Programs that keep a copy of a subtree, and change it.
//!
//! Owns what these programs do. Must not judge it: the oracle R6 does.

use zabkeeper_client::recipes::TreeCache;
use zabkeeper_client::{Client, CreateMode, Error};
use zabkeeper_core::Zxid;

use super::turns::unless_fatal;
use super::{Told, User};

/// The root of the subtree.
pub const TREE: &str = "/tree";

/// Nodes on each of its two levels.
const NODES: u64 = 3;

pub(super) async fn copy_and_change(mut user: User) {
    let cache = loop {
        match TreeCache::load(&user.client, TREE).await.map(Some).or_else(unless_fatal) {
            Ok(Some(cache)) => break cache,
            Ok(None) => user.pause().await,
            Err(_) => return,
        }
    };
    loop {
        user.pause().await;
        let path = drawn_path(&mut user);
        // The data of each write are its own, so that a write that is made twice shows (C8).
        let (how, data) = (user.rng.below(4), user.rng.word().to_string());
        if change(&user.client, &path, how, data).await.is_err() {
            return;
        }
        let (zxid, nodes) = cache.snapshot();
        if let Some(zxid) = zxid {
            let nodes = nodes.iter();
            let nodes = nodes.map(|(path, node)| (&**path, &node.data[..], node.stat.mzxid));
            user.tell(Told::Cached(zxid, digest(nodes)));
        }
    }
}

fn drawn_path(user: &mut User) -> String {
    let (first, second) = (user.rng.below(NODES), user.rng.below(NODES + 1));
    if second < NODES { format!("{TREE}/n{first}/m{second}") } else { format!("{TREE}/n{first}") }
}

/// Fails if the session has ended.
async fn change(client: &Client, path: &str, how: u64, data: String) -> Result<(), Error> {
    let result = match how {
        0 => client.delete(path, None).await,
        1 => client.set(path, data, None).await.map(|_| ()),
        _ => {
            for above in [TREE, &path[..TREE.len() + 3], path] {
                let create = client.create(above, "", CreateMode::Persistent);
                create
                    .await
                    .map(|_| ())
                    .or_else(|error| unless_fatal(error).map(|_: Option<()>| ()))?;
            }
            Ok(())
        }
    };
    result.or_else(|error| unless_fatal(error).map(|_: Option<()>| ()))
}

/// A digest of the nodes of a subtree, in the order of their paths: FNV-1a.
pub fn digest<'a>(nodes: impl Iterator<Item = (&'a str, &'a [u8], Zxid)>) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for (path, data, mzxid) in nodes {
        add(path.as_bytes());
        add(&[0]);
        add(data);
        add(&mzxid.0.to_be_bytes());
    }
    digest
}
