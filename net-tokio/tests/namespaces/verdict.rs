//! The end of a schedule: all servers serve, agree, and have kept what they acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use sim::check::history::{History, Recorded};
use sim::check::model::{Rules, TimeoutBounds};
use storage_fs::{Inspected, OsDir};
use zabkeeper_core::store::Entry;
use zabkeeper_core::wire::{FromServer, ReplyBody, ReplyKind, Request};
use zabkeeper_core::{AuthOptions, ErrorCode, Zxid, compare};

use crate::client::Client;
use crate::ensemble::{Ensemble, TICK_MS, lines};
use crate::tape::Tape;
use crate::workload::QUEUE;

/// Promises that each schedule must have checked.
const CHECKED: [&str; 16] = [
    "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "S1", "S5", "S6", "T6",
    "W3",
];
/// Number of the client that compares the servers.
const READER: u32 = 1_001;

/// The answer to getData of each node, by path.
type Content = BTreeMap<String, Vec<u8>>;

/// Waits until all servers have applied the same transactions and show the same tree, ends them,
/// and returns their log up to there.
pub(crate) fn agreed_log(mut ensemble: Ensemble, tape: &Arc<Tape>) -> Vec<Entry> {
    let mut agreed = None;
    // Sessions of clients that are gone expire meanwhile.
    ensemble.eventually("all servers to agree", || {
        agreed = agreement(&ensemble, tape);
        agreed.is_some()
    });
    let end = agreed.expect("has been waited for");
    ensemble.ids().into_iter().for_each(|id| ensemble.kill(id));
    let stores: Vec<Inspected> = ensemble.ids().iter().map(|id| inspect(&ensemble, *id)).collect();
    let logs: Vec<Vec<Entry>> = stores.iter().map(|store| log_up_to(store, end)).collect();
    for (id, log) in ensemble.ids().iter().zip(&logs) {
        let last = log.last().map(|entry| entry.zxid);
        assert_eq!(last, Some(end), "the log of server {id}\n{}", ensemble.logs());
        let same = log.iter().zip(&logs[0]).all(|(one, other)| one == other);
        assert!(same && log.len() == logs[0].len(), "server {id} has another log");
    }
    let mut trees = stores.into_iter().map(|store| store.recovered);
    let first = trees.next().expect("has servers");
    for other in trees {
        let compared = compare(first.clone(), other).expect("consistent stores");
        assert_eq!((compared.txn, compared.path), (None, None), "trees differ");
    }
    logs.into_iter().next().expect("has servers")
}

/// The last transaction that all servers have applied, if they have applied no other since, and
/// show the same tree.
fn agreement(ensemble: &Ensemble, tape: &Arc<Tape>) -> Option<Zxid> {
    let open = |id: u64| Client::open(tape, READER, id);
    let mut clients: Vec<Client> = ensemble.ids().into_iter().map(open).collect::<Option<_>>()?;
    for client in &mut clients {
        client.call(Request::Sync { path: "/".into() })?;
    }
    let before = applied_by_all(ensemble)?;
    let trees: Vec<Content> = clients.iter_mut().map(content).collect::<Option<_>>()?;
    if applied_by_all(ensemble)? != before {
        return None;
    }
    for (id, tree) in ensemble.ids().iter().zip(&trees) {
        assert_eq!(tree, &trees[0], "the tree of server {id} at {before}\n{}", ensemble.logs());
    }
    Some(before)
}

/// The zxid that each server reports, if it is the same one.
fn applied_by_all(ensemble: &Ensemble) -> Option<Zxid> {
    let applied: Vec<u64> =
        ensemble.ids().into_iter().map(|id| ensemble.applied(id)).collect::<Option<_>>()?;
    applied.iter().all(|zxid| *zxid == applied[0]).then_some(Zxid(applied[0]))
}

/// Reads all nodes of the workload.
fn content(client: &mut Client) -> Option<Content> {
    let mut content = Content::new();
    for parent in ["/", QUEUE] {
        let request = Request::GetChildren { path: parent.into(), watch: false, with_stat: false };
        for name in children(client, request)? {
            let path = format!("{}/{name}", parent.trim_end_matches('/'));
            let (err, body) = client.call(Request::GetData { path: path.clone(), watch: false })?;
            assert!([0, ErrorCode::NoNode.wire()].contains(&err), "{path}: {err}");
            content.insert(path, body.to_vec());
        }
    }
    Some(content)
}

fn children(client: &mut Client, request: Request) -> Option<Vec<String>> {
    let (err, body) = client.call(request)?;
    let reply = FromServer::reply(0, 0, err, body, ReplyKind::Children).expect("an answer");
    match reply.result {
        Ok(ReplyBody::Children(names)) => Some(names),
        other => panic!("a list of children: {other:?}"),
    }
}

fn inspect(ensemble: &Ensemble, id: u64) -> Inspected {
    let folder = || OsDir::new(ensemble.folder(id)).expect("is there");
    storage_fs::inspect(folder(), folder()).expect("a sound store")
}

fn log_up_to(store: &Inspected, end: Zxid) -> Vec<Entry> {
    assert!(store.recovered.snapshot.is_none(), "the log is complete without a snapshot");
    let entries = store.recovered.entries.iter();
    entries.take_while(|entry| entry.zxid <= end).cloned().collect()
}

/// Judges the recording; returns what was checked, for people.
pub(crate) fn check(recorded: Vec<Recorded>, log: &[Entry], servers: u64) -> String {
    let records = recorded.len();
    let ids: Vec<u64> = (1..=servers).collect();
    let rules = Rules {
        auth: AuthOptions { skip_acl: true, ..AuthOptions::default() },
        first_config: Some(lines(&ids)),
        timeouts: TimeoutBounds {
            usual_ms: (2 * TICK_MS, 20 * TICK_MS),
            ..TimeoutBounds::default()
        },
        ..Rules::default()
    };
    let history = History::new(recorded, log).expect("a log of transactions");
    let checks = match history.check(rules) {
        Ok(checks) => BTreeMap::from_iter(checks),
        Err(violation) => panic!("{violation}"),
    };
    let count = |id: &&str| format!("{id} {}", checks[id]);
    for id in CHECKED {
        assert!(checks[id] > 0, "{id} was not checked");
    }
    let counts: Vec<String> = CHECKED.iter().map(count).collect();
    format!("{} transactions, {records} records; checked {}", log.len(), counts.join(", "))
}
