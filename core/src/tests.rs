//! The encodings of everything that is stored or sent to other servers, variant by variant:
//! postcard writes an enum as the index of its variant, and a struct as its fields in order.
//!
//! A new line in the snapshot is fine if its variant is the last of its enum. A changed line breaks
//! the logs, snapshots and peers of earlier versions: raise `VERSION` in `peer::greeting`, and the
//! format version of the affected files (`storage-fs::block`), which must then be read in both
//! forms.

use std::fmt::{Debug, Write as _};
use std::iter;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ErrorCode;
use crate::identity::Seed;
use crate::ids::{ConnId, Epoch, Instant, LinkId, ServerId, SessionId, WallMs, Zxid};
use crate::membership::{HistoryInfo, HistoryStatus};
use crate::peer::{Behind, FromLeader, FromLearner, Notification, ServerState, SessionKind, Vote};
use crate::store::{DurableState, Entry};
use crate::tree::{AclId, Node, NodeId, SnapshotHeader, SnapshotItem};
use crate::txn::{Lifetime, Origin, Txn, TxnOp};
use crate::wire::{Acl, AddWatchMode, Id, OpCode, Perms, Request, Secret, SetWatches, WatcherType};

const ZXID: Zxid = Zxid(5 << 32 | 7);
const SESSION: SessionId = SessionId(0x0100_0000_0000_0007);
const ORIGIN: Origin = Origin { server: ServerId(3), conn: ConnId(300), request: 4 };

#[test]
fn encodings_of_stored_data_and_peer_messages_are_stable() {
    let mut dump = String::new();
    let mut section = |title: &str, lines: Vec<String>| {
        writeln!(dump, "== {title}").expect("strings grow");
        lines.iter().for_each(|line| writeln!(dump, "{line}").expect("strings grow"));
    };
    let txn = |origin, op| Txn { zxid: ZXID, session: SESSION, time: WallMs(1_000), origin, op };
    let check = || TxnOp::Check { path: "/n".into() };
    section("Txn", lines([txn(None, check()), txn(Some(ORIGIN), check())]));
    section("TxnOp", lines(chain(after_op)));
    section("Lifetime", lines(chain(after_lifetime)));
    section("ErrorCode", lines(numbered(ErrorCode::from_wire)));
    section("snapshot item", lines(chain(after_item)));
    section(
        "DurableState",
        lines([DurableState {
            accepted_epoch: Epoch(6),
            current_epoch: Epoch(5),
            snapshot: ZXID,
            damaged: true,
            voters: [1, 3].map(ServerId).into(),
            identity: Some(Seed::from(1).identity(Epoch(4))),
            nonces: vec![Seed::from(1).epoch_nonce(Epoch(5))],
            differs: Some(Zxid(7)),
        }]),
    );
    section("Notification", lines(chain(after_stance).into_iter().map(notification)));
    section("Voice", lines(chain(after_voice)));
    section("FromLearner", lines(chain(after_learners)));
    section("FromLeader", lines(chain(after_leaders)));
    section("Standing", lines(chain(after_standing)));
    section("Request", lines(chain(after_request)));
    section("OpCode", lines(numbered(OpCode::from_wire)));
    section("WatcherType", lines(chain(after_watcher_type)));
    section("AddWatchMode", lines(chain(after_mode)));
    insta::with_settings!({
        snapshot_path => "../tests/golden",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!("postcard", dump);
    });
}

/// Each value's name and encoding. Asserts that decoding returns the value.
fn lines<T: Serialize + DeserializeOwned + Debug>(
    values: impl IntoIterator<Item = T>,
) -> Vec<String> {
    let line = |value: T| {
        let bytes = postcard::to_allocvec(&value).expect("plain data encodes");
        let read: T = postcard::from_bytes(&bytes).expect("it was just written");
        let text = format!("{value:?}");
        assert_eq!(format!("{read:?}"), text);
        assert_eq!(postcard::to_allocvec(&read).expect("plain data encodes"), bytes);
        let name: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
        bytes.iter().fold(name, |mut line, byte| {
            write!(line, "{}{byte:02x}", if line.contains(' ') { "" } else { " " })
                .expect("strings grow");
            line
        })
    };
    values.into_iter().map(line).collect()
}

/// All values that `after` chains together, starting from `None`. `after` matches every variant, so
/// a missing variant does not compile; the snapshot shows that all are reached.
fn chain<T>(after: impl Fn(Option<&T>) -> Option<T>) -> Vec<T> {
    let first = after(None);
    iter::successors(first, |value| after(Some(value))).collect()
}

/// All variants of an enum with wire numbers, in source order.
fn numbered<T: Serialize>(from_wire: impl Fn(i32) -> Option<T>) -> Vec<T> {
    let mut found: Vec<T> = (-1_000..1_000).filter_map(from_wire).collect();
    found.sort_by_key(|value| postcard::to_allocvec(value).expect("plain data encodes"));
    found
}

fn acl() -> Vec<Acl> {
    vec![Acl { perms: Perms(31), scheme: "world".into(), id: "anyone".into() }]
}

fn data() -> Option<Bytes> {
    Some(Bytes::from_static(b"abc"))
}

fn after_op(op: Option<&TxnOp>) -> Option<TxnOp> {
    let path = String::from("/n");
    let code = ErrorCode::NoNode;
    Some(match op {
        None => {
            let (acl, lifetime) = (acl(), Lifetime::Ttl { ms: 500 });
            TxnOp::Create { path, data: data(), acl, lifetime, parent_creates: 2 }
        }
        Some(TxnOp::Create { .. }) => TxnOp::Delete { path },
        Some(TxnOp::Delete { .. }) => TxnOp::SetData { path, data: None, version: 3 },
        Some(TxnOp::SetData { .. }) => TxnOp::Check { path },
        Some(TxnOp::Check { .. }) => TxnOp::Multi(vec![TxnOp::Delete { path }]),
        Some(TxnOp::Multi(_)) => TxnOp::MultiRefused { count: 3, failed: 1, code },
        Some(TxnOp::MultiRefused { .. }) => TxnOp::CreateSession { timeout_ms: 4_000 },
        Some(TxnOp::CreateSession { .. }) => TxnOp::CloseSession,
        Some(TxnOp::CloseSession) => TxnOp::Error { code },
        Some(TxnOp::Error { .. }) => TxnOp::MoveSession { server: ServerId(2) },
        Some(TxnOp::MoveSession { .. }) => TxnOp::SetAcl { path, acl: acl(), version: 1 },
        Some(TxnOp::SetAcl { .. }) => {
            TxnOp::UpgradeSession { timeout_ms: 4_000, server: ServerId(2) }
        }
        Some(TxnOp::UpgradeSession { .. }) => {
            TxnOp::Reconfig { config: "server.1=a:1:2\nversion=100000007".into() }
        }
        Some(TxnOp::Reconfig { .. }) => return None,
    })
}

fn after_lifetime(lifetime: Option<&Lifetime>) -> Option<Lifetime> {
    Some(match lifetime {
        None => Lifetime::Persistent,
        Some(Lifetime::Persistent) => Lifetime::Ephemeral,
        Some(Lifetime::Ephemeral) => Lifetime::Container,
        Some(Lifetime::Container) => Lifetime::Ttl { ms: 500 },
        Some(Lifetime::Ttl { .. }) => return None,
    })
}

fn after_item(item: Option<&SnapshotItem>) -> Option<SnapshotItem> {
    Some(match item {
        None => {
            let header = SnapshotHeader {
                zxid: ZXID,
                sessions: vec![(SESSION, 4_000)],
                last_session_ids: vec![(1, SESSION)],
                owners: Vec::new(),
                keyed: Vec::new(),
            };
            SnapshotItem::Header { header, slots: 300, nodes: 200 }
        }
        Some(SnapshotItem::Header { .. }) => SnapshotItem::Acl { id: AclId::NONE, list: acl() },
        Some(SnapshotItem::Acl { .. }) => SnapshotItem::Node { id: NodeId(9), node: node() },
        Some(SnapshotItem::Node { .. }) => SnapshotItem::Owners(vec![(SESSION, ServerId(2))]),
        Some(SnapshotItem::Owners(_)) => {
            SnapshotItem::NodeInTxn { id: NodeId(9), node: node(), txn_order: 1 }
        }
        Some(SnapshotItem::NodeInTxn { .. }) => SnapshotItem::KeyedSessions(vec![SESSION]),
        Some(SnapshotItem::KeyedSessions(_)) => return None,
    })
}

fn node() -> Node {
    Node {
        parent: NodeId::ROOT,
        name: "n".into(),
        data: data(),
        acl: AclId::NONE,
        czxid: ZXID,
        mzxid: ZXID,
        pzxid: Zxid::ZERO,
        ctime: -1,
        mtime: 1_000,
        version: 1,
        creates: 2,
        aversion: 3,
        owner: SESSION,
        txn_order: 0,
    }
}

fn notification(server_state: ServerState) -> Notification {
    let vote = Vote { epoch: Epoch(5), zxid: ZXID, candidate: ServerId(3) };
    let history =
        HistoryInfo { history_status: HistoryStatus::Complete, epoch: Epoch(5), newcomers: 4 };
    Notification { server_state, round: 8, vote, history, ensemble: 70_000 }
}

fn after_stance(server_state: Option<&ServerState>) -> Option<ServerState> {
    Some(match server_state {
        None => ServerState::Looking,
        Some(ServerState::Looking) => ServerState::Following,
        Some(ServerState::Following) => ServerState::Leading,
        Some(ServerState::Leading) => return None,
    })
}

fn after_voice(history_status: Option<&HistoryStatus>) -> Option<HistoryStatus> {
    Some(match history_status {
        None => HistoryStatus::Complete,
        Some(HistoryStatus::Complete) => HistoryStatus::Uninitialized,
        Some(HistoryStatus::Uninitialized) => HistoryStatus::Lost,
        Some(HistoryStatus::Lost) => return None,
    })
}

fn after_learners(message: Option<&FromLearner>) -> Option<FromLearner> {
    let (session, timeout_ms, origin, epoch, zxid) = (SESSION, 4_000, ORIGIN, Epoch(6), ZXID);
    let (conn, request) = (ConnId(300), 4);
    Some(match message {
        None => {
            let history =
                HistoryInfo { history_status: HistoryStatus::Complete, epoch, newcomers: 4 };
            FromLearner::FollowerInfo { accepted: epoch, history, ensemble: 0 }
        }
        Some(FromLearner::FollowerInfo { .. }) => {
            FromLearner::AckEpoch { fresh: true, current: Epoch(5), last: zxid, nonce: 70_001 }
        }
        Some(FromLearner::AckEpoch { .. }) => FromLearner::SyncAt { last: zxid, nonce: 70_001 },
        Some(FromLearner::SyncAt { .. }) => FromLearner::AckNewLeader { epoch },
        Some(FromLearner::AckNewLeader { .. }) => FromLearner::Ack { zxid },
        Some(FromLearner::Ack { .. }) => FromLearner::Pong {
            round: 8,
            sent: Instant(500),
            echo: Instant(300),
            touched: vec![(session, timeout_ms)],
            digests: vec![(zxid, 70_002)],
        },
        Some(FromLearner::Pong { .. }) => {
            let ids = [Arc::new(Id { scheme: "ip".into(), id: "::1".into() })].into();
            let (request, session_kind) = (Request::Ping, SessionKind::Global);
            FromLearner::Request { session, origin, ids, request, session_kind }
        }
        Some(FromLearner::Request { .. }) => FromLearner::CreateSession { timeout_ms, origin },
        Some(FromLearner::CreateSession { .. }) => {
            FromLearner::Revalidate { conn, session, timeout_ms }
        }
        Some(FromLearner::Revalidate { .. }) => FromLearner::Sync { conn, request },
        Some(FromLearner::Sync { .. }) => FromLearner::Loading { done: 300, all: 400 },
        Some(FromLearner::Loading { .. }) => {
            let history =
                HistoryInfo { history_status: HistoryStatus::Complete, epoch, newcomers: 4 };
            let leader = ServerId(2);
            FromLearner::ObserverInfo { leader, accepted: epoch, history, ensemble: 0 }
        }
        Some(FromLearner::ObserverInfo { .. }) => FromLearner::Attach { behind: BEHIND },
        Some(FromLearner::Attach { .. }) => {
            FromLearner::RevalidateBehind { behind: BEHIND, conn, session, timeout_ms }
        }
        Some(FromLearner::RevalidateBehind { .. }) => {
            FromLearner::SyncBehind { behind: BEHIND, conn, request }
        }
        Some(FromLearner::SyncBehind { .. }) => FromLearner::TouchedBehind {
            behind: BEHIND,
            touched: vec![(session, timeout_ms)],
            digests: vec![(zxid, 70_002)],
        },
        Some(FromLearner::TouchedBehind { .. }) => return None,
    })
}

const BEHIND: Behind = Behind { server: ServerId(4), link: LinkId(300) };

fn after_leaders(message: Option<&FromLeader>) -> Option<FromLeader> {
    let (epoch, zxid) = (Epoch(6), ZXID);
    Some(match message {
        None => FromLeader::LeaderInfo { epoch, empty: true, ensemble: 70_000, blank: false },
        Some(FromLeader::LeaderInfo { .. }) => FromLeader::Trunc { to: zxid },
        Some(FromLeader::Trunc { .. }) => {
            let bytes = Bytes::from_static(b"some nodes");
            FromLeader::Snap { zxid, index: 2, bytes, last: true }
        }
        Some(FromLeader::Snap { .. }) => {
            FromLeader::Proposal(Entry { zxid, bytes: Bytes::from_static(b"a change") })
        }
        Some(FromLeader::Proposal(_)) => {
            let (identity, nonces) = (Seed::from(1).identity(Epoch(4)), Vec::new());
            let [voters, established] = [[1, 3], [1, 2]].map(|ids| ids.map(ServerId).into());
            FromLeader::NewLeader { epoch, voters, established, identity, nonces }
        }
        Some(FromLeader::NewLeader { .. }) => FromLeader::UpToDate { committed: zxid },
        Some(FromLeader::UpToDate { .. }) => FromLeader::Commit { zxid },
        Some(FromLeader::Commit { .. }) => {
            FromLeader::Ping { round: 8, sent: Instant(300), echo: Instant(400) }
        }
        Some(FromLeader::Ping { .. }) => FromLeader::Synced { conn: ConnId(300), request: 4 },
        Some(FromLeader::Synced { .. }) => FromLeader::Differs { zxid },
        Some(FromLeader::Differs { .. }) => {
            FromLeader::TakeOver { vote: Vote { epoch, zxid, candidate: ServerId(3) } }
        }
        Some(FromLeader::TakeOver { .. }) => {
            FromLeader::Inform(Entry { zxid, bytes: Bytes::from_static(b"a change") })
        }
        Some(FromLeader::Inform(_)) => FromLeader::Attached { behind: BEHIND, logged: zxid },
        Some(FromLeader::Attached { .. }) => {
            FromLeader::SyncedBehind { behind: BEHIND, conn: ConnId(300), request: 4 }
        }
        Some(FromLeader::SyncedBehind { .. }) => FromLeader::DiffersBehind { behind: BEHIND, zxid },
        Some(FromLeader::DiffersBehind { .. }) => FromLeader::Detached { behind: BEHIND },
        Some(FromLeader::Detached { .. }) => return None,
    })
}

fn after_standing(session_kind: Option<&SessionKind>) -> Option<SessionKind> {
    Some(match session_kind {
        None => SessionKind::Global,
        Some(SessionKind::Global) => SessionKind::Local,
        Some(SessionKind::Local) => SessionKind::Upgrading { timeout_ms: 4_000 },
        Some(SessionKind::Upgrading { .. }) => return None,
    })
}

fn after_request(request: Option<&Request>) -> Option<Request> {
    let path = String::from("/n");
    let (version, flags, watch, with_stat) = (-1, 3, true, true);
    Some(match request {
        None => Request::Create { path, data: data(), acl: acl(), flags, with_stat },
        Some(Request::Create { .. }) => Request::Delete { path, version },
        Some(Request::Delete { .. }) => Request::Exists { path, watch },
        Some(Request::Exists { .. }) => Request::GetData { path, watch },
        Some(Request::GetData { .. }) => Request::SetData { path, data: None, version },
        Some(Request::SetData { .. }) => Request::GetChildren { path, watch, with_stat },
        Some(Request::GetChildren { .. }) => Request::Sync { path },
        Some(Request::Sync { .. }) => Request::Check { path, version },
        Some(Request::Check { .. }) => Request::Multi(vec![Request::Ping]),
        Some(Request::Multi(_)) => Request::Ping,
        Some(Request::Ping) => Request::Watches { path, kind: WatcherType::Any, remove: true },
        Some(Request::Watches { .. }) => {
            Request::Auth { scheme: "digest".into(), auth: Secret::from("a:b") }
        }
        Some(Request::Auth { .. }) => Request::SetWatches(SetWatches {
            relative_zxid: Some(ZXID),
            data: vec!["/a".into()],
            exist: vec!["/b".into()],
            child: vec!["/c".into()],
            persistent: vec!["/d".into()],
            recursive: vec!["/e".into()],
        }),
        Some(Request::SetWatches(_)) => Request::CloseSession,
        Some(Request::CloseSession) => Request::Undecodable { op: OpCode::Multi },
        Some(Request::Undecodable { .. }) => Request::Unknown { op: -300 },
        Some(Request::Unknown { .. }) => Request::GetAcl { path },
        Some(Request::GetAcl { .. }) => Request::SetAcl { path, acl: acl(), version },
        Some(Request::SetAcl { .. }) => {
            Request::CreateContainer { path, data: None, acl: acl(), flags: 4 }
        }
        Some(Request::CreateContainer { .. }) => {
            Request::CreateTtl { path, data: data(), acl: acl(), flags: 6, ttl: 500 }
        }
        Some(Request::CreateTtl { .. }) => {
            Request::MultiRead(vec![Request::GetData { path, watch: false }])
        }
        Some(Request::MultiRead(_)) => Request::GetEphemerals { prefix: path },
        Some(Request::GetEphemerals { .. }) => Request::GetAllChildrenNumber { path },
        Some(Request::GetAllChildrenNumber { .. }) => {
            Request::AddWatch { path, mode: AddWatchMode::PersistentRecursive }
        }
        Some(Request::AddWatch { .. }) => Request::WhoAmI,
        Some(Request::WhoAmI) => Request::NoPath { op: OpCode::SetAcl, in_list: true },
        Some(Request::NoPath { .. }) => Request::Sasl { token: Secret::from("t") },
        Some(Request::Sasl { .. }) => Request::Reconfig,
        Some(Request::Reconfig) => Request::Throttled { op: 1 },
        Some(Request::Throttled { .. }) => Request::Reconfigure(crate::wire::ReconfigRequest {
            leaving: Some("3".into()),
            version: -1,
            ..crate::wire::ReconfigRequest::default()
        }),
        Some(Request::Reconfigure(_)) => return None,
    })
}

fn after_watcher_type(kind: Option<&WatcherType>) -> Option<WatcherType> {
    Some(match kind {
        None => WatcherType::Children,
        Some(WatcherType::Children) => WatcherType::Data,
        Some(WatcherType::Data) => WatcherType::Any,
        Some(WatcherType::Any) => WatcherType::Persistent,
        Some(WatcherType::Persistent) => WatcherType::PersistentRecursive,
        Some(WatcherType::PersistentRecursive) => return None,
    })
}

fn after_mode(mode: Option<&AddWatchMode>) -> Option<AddWatchMode> {
    Some(match mode {
        None => AddWatchMode::Persistent,
        Some(AddWatchMode::Persistent) => AddWatchMode::PersistentRecursive,
        Some(AddWatchMode::PersistentRecursive) => return None,
    })
}
