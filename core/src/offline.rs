//! What tools can read from a server's data directory while no server runs on it.
//!
//! Owns the order of replay and comparison. Must not change anything, nor know files.

use std::collections::BTreeMap;

use crate::digest;
use crate::error::Corrupt;
use crate::ids::Zxid;
use crate::replica::Replica;
use crate::rng::Rng;
use crate::status::Halted;
use crate::store::Recovered;

/// The result of replaying a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The zxid of the last transaction that was applied.
    pub applied: Zxid,
    /// Why the next transaction cannot be applied, if there is one.
    pub halted: Option<Halted>,
}

/// The differences between the data of two servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compared {
    /// The first zxid that both logs contain with different content.
    pub txn: Option<Zxid>,
    /// The last zxid that both can be replayed to; `None` if the snapshot of one is later than the
    /// log of the other.
    pub at: Option<Zxid>,
    /// The first path, in order, whose node differs at `at` or exists in only one of the trees.
    pub path: Option<String>,
}

/// Applies all recovered log entries to the snapshot, as a server does once a quorum has committed
/// them.
///
/// # Errors
/// Content that passed its checksums and is still inconsistent.
pub fn replay(recovered: Recovered) -> Result<Replayed, Corrupt> {
    replay_up_to(recovered, Zxid(u64::MAX)).map(|(_, replayed)| replayed)
}

/// Compares the transactions of two servers, and their trees at the last zxid that both have.
///
/// # Errors
/// Content that passed its checksums and is still inconsistent.
pub fn compare(one: Recovered, other: Recovered) -> Result<Compared, Corrupt> {
    let theirs: BTreeMap<Zxid, _> =
        other.entries.iter().map(|entry| (entry.zxid, &entry.bytes)).collect();
    let differs = |zxid: &Zxid, bytes| theirs.get(zxid).is_some_and(|theirs| **theirs != bytes);
    let txn = one.entries.iter().find(|entry| differs(&entry.zxid, entry.bytes.clone()));
    let txn = txn.map(|entry| entry.zxid);
    let positions = |recovered: &Recovered| -> Vec<Zxid> {
        let base = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |snapshot| snapshot.zxid);
        [base].into_iter().chain(recovered.entries.iter().map(|entry| entry.zxid)).collect()
    };
    let known = positions(&other);
    let at = positions(&one).into_iter().rev().find(|zxid| known.binary_search(zxid).is_ok());
    let Some(zxid) = at else {
        return Ok(Compared { txn, at, path: None });
    };
    let [(one, _), (other, _)] = [replay_up_to(one, zxid)?, replay_up_to(other, zxid)?];
    let [mine, mut theirs] = [shares(&one), shares(&other)];
    let mut differing: Vec<String> = mine
        .into_iter()
        .filter_map(|(path, share)| (theirs.remove(&path) != Some(share)).then_some(path))
        .collect();
    differing.extend(theirs.into_keys());
    Ok(Compared { txn, at, path: differing.into_iter().min() })
}

/// The digest of each node, by path.
fn shares(replica: &Replica) -> BTreeMap<String, u64> {
    let mut shares = BTreeMap::new();
    replica.visit_nodes(&mut |view| {
        shares.insert(view.path.to_owned(), digest::node(view));
    });
    shares
}

/// Replays up to `last`, or up to the transaction before the first one that cannot be applied.
pub(crate) fn replay_up_to(
    mut recovered: Recovered,
    last: Zxid,
) -> Result<(Replica, Replayed), Corrupt> {
    recovered.entries.retain(|entry| entry.zxid <= last);
    let base = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |snapshot| snapshot.zxid);
    let end = recovered.entries.last().map_or(base, |entry| entry.zxid);
    if end < recovered.history.end() {
        recovered.history.truncate(end);
    }
    let mut replica = Replica::recover(None, recovered, &mut Rng::new(0))?;
    replica.log.commit(replica.log.appended());
    let halted = loop {
        match replica.apply_next() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(halted) => break Some(halted),
        }
    };
    let applied = replica.log.applied();
    Ok((replica, Replayed { applied, halted }))
}
