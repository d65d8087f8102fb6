//! Which recorded connection each transaction came from. The log numbers connections as each
//! process counted them, and a process begins anew with each start.
//!
//! Owns the match of both numbers. Must not hide a transaction that no connection can have sent: it
//! gets a number that no connection has, which the oracles report.
//!
//! Transactions with the same session, server and number in the log form a group, which is one
//! connection. The evidence, from the best to the weakest:
//!
//! 1. The client read a reply to a write, at the zxid of a transaction of the group.
//! 2. The session was created for the group, and the client read its id.
//! 3. A transaction of the group has data that the client sent.
//! 4. The oldest connection to the server without a group that could have sent it: one without a
//!    connect response for a new session; one of the session with a write for anything else.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::{ConnectRequest, FromServer, Request, RequestFrame};
use zabkeeper_core::{ConnId, ServerId, SessionId, Zxid};

use super::{Record, Recorded, session_of};

/// Data from this length on belongs to one write only.
const UNIQUE_DATA_BYTES: usize = 8;

/// Session, server, and number of the connection there.
type Group = (SessionId, ServerId, ConnId);

/// A recorded connection.
struct Conn {
    server: ServerId,
    /// The session that the connect request names, once it was sent; zero for a new one.
    named: Option<SessionId>,
    /// Once the client has read a connect response, of which a refusal has none.
    session: Option<Option<SessionId>>,
    /// xids of its writes.
    writes: BTreeSet<i32>,
}

/// Gives the origin of each transaction the number of its recorded connection.
pub(super) fn rename(recorded: &[Recorded], txns: &mut [Txn]) {
    let mut found = Found::default();
    found.read(recorded, txns);
    found.match_creations(txns);
    found.match_data(txns);
    found.match_the_rest(txns);
    let mut unknown = BTreeMap::new();
    for txn in txns {
        let Some(group) = group_of(txn) else { continue };
        let next = ConnId(u64::MAX - unknown.len() as u64);
        let conn = found.groups.get(&group).copied();
        let conn = conn.unwrap_or_else(|| *unknown.entry(group).or_insert(next));
        txn.origin.as_mut().expect("has a group").conn = conn;
    }
}

fn group_of(txn: &Txn) -> Option<Group> {
    txn.origin.map(|origin| (txn.session, origin.server, origin.conn))
}

#[derive(Default)]
struct Found {
    /// Numbers rise with the time at which connections were opened.
    conns: BTreeMap<ConnId, Conn>,
    /// The connection on which each value was sent.
    sent: BTreeMap<Bytes, ConnId>,
    groups: BTreeMap<Group, ConnId>,
    /// The connections in `groups`.
    used: BTreeSet<ConnId>,
}

impl Found {
    /// Reads the recording, and matches groups by replies to writes.
    fn read(&mut self, recorded: &[Recorded], txns: &[Txn]) {
        let group_at: BTreeMap<Zxid, Group> =
            txns.iter().filter_map(|txn| Some((txn.zxid, group_of(txn)?))).collect();
        for Recorded { conn: id, what, .. } in recorded {
            if let Record::Opened { server, .. } = what {
                let writes = BTreeSet::new();
                let conn = Conn { server: *server, named: None, session: None, writes };
                self.conns.insert(*id, conn);
            }
            let Some(conn) = self.conns.get_mut(id) else { continue };
            match what {
                Record::Opened { .. } | Record::Closed => {}
                Record::Sent(frame) if conn.named.is_none() => {
                    conn.named = ConnectRequest::decode(frame.clone()).map(|r| r.session).ok();
                }
                Record::Sent(frame) => {
                    let Ok(frame) = RequestFrame::decode(frame.clone()) else { continue };
                    if frame.request.is_write() {
                        conn.writes.insert(frame.xid);
                    }
                    self.sent.extend(data_sent(&frame.request).into_iter().map(|data| (data, *id)));
                }
                Record::Received(frame) if conn.session.is_none() => {
                    conn.session = Some(session_of(frame));
                }
                Record::Received(frame) => {
                    let Ok(FromServer::Reply { xid, zxid, .. }) = FromServer::decode(frame.clone())
                    else {
                        continue;
                    };
                    let group = group_at.get(&Zxid(zxid.cast_unsigned()));
                    let own = |group: &&Group| conn.session == Some(Some(group.0));
                    if let Some(group) = group.filter(own)
                        && conn.writes.contains(&xid)
                    {
                        self.groups.entry(*group).or_insert(*id);
                        self.used.insert(*id);
                    }
                }
            }
        }
    }

    fn found(&mut self, group: Group, conn: ConnId) {
        self.groups.insert(group, conn);
        self.used.insert(conn);
    }

    fn match_creations(&mut self, txns: &[Txn]) {
        let creates = |txn: &&Txn| matches!(txn.op, TxnOp::CreateSession { .. });
        for txn in txns.iter().filter(creates) {
            let Some(group) = group_of(txn).filter(|group| !self.groups.contains_key(group)) else {
                continue;
            };
            // The first connection of a session is the one that created it.
            let of_session = |(_, conn): &(&ConnId, &Conn)| conn.session == Some(Some(group.0));
            let named = self.conns.iter().find(of_session).map(|(id, _)| *id);
            let could = |(id, conn): &(&ConnId, &Conn)| {
                let new = conn.named == Some(SessionId(0)) && conn.session.is_none();
                new && conn.server == group.1 && !self.used.contains(id)
            };
            let oldest = || self.conns.iter().find(could).map(|(id, _)| *id);
            if let Some(conn) = named.or_else(oldest) {
                self.found(group, conn);
            }
        }
    }

    fn match_data(&mut self, txns: &[Txn]) {
        for txn in txns {
            let Some(group) = group_of(txn).filter(|group| !self.groups.contains_key(group)) else {
                continue;
            };
            let conn = data_of(&txn.op).and_then(|data| self.sent.get(&data).copied());
            if let Some(conn) = conn.filter(|conn| !self.used.contains(conn)) {
                self.found(group, conn);
            }
        }
    }

    fn match_the_rest(&mut self, txns: &[Txn]) {
        let moves = |txn: &&Txn| matches!(txn.op, TxnOp::MoveSession { .. });
        for txn in txns.iter().filter(|txn| !moves(txn)) {
            let Some(group) = group_of(txn).filter(|group| !self.groups.contains_key(group)) else {
                continue;
            };
            let could = |(id, conn): &(&ConnId, &Conn)| {
                let own = conn.server == group.1 && conn.session == Some(Some(group.0));
                own && !conn.writes.is_empty() && !self.used.contains(id)
            };
            if let Some(conn) = self.conns.iter().find(could).map(|(id, _)| *id) {
                self.found(group, conn);
            }
        }
    }
}

/// The values in a request that no other request has.
fn data_sent(request: &Request) -> Vec<Bytes> {
    if let Request::Multi(parts) = request {
        return parts.iter().flat_map(data_sent).collect();
    }
    let (Request::Create { data, .. } | Request::SetData { data, .. }) = request else {
        return Vec::new();
    };
    data.iter().filter(|data| data.len() >= UNIQUE_DATA_BYTES).cloned().collect()
}

fn data_of(op: &TxnOp) -> Option<Bytes> {
    if let TxnOp::Multi(ops) = op {
        return ops.iter().find_map(data_of);
    }
    let (TxnOp::Create { data, .. } | TxnOp::SetData { data, .. }) = op else {
        return None;
    };
    data.clone().filter(|data| data.len() >= UNIQUE_DATA_BYTES)
}
