//! The oracles of clients for real servers: what clients have recorded is compared with the log
//! that the servers keep.
//!
//! Owns the order in which the oracles see both. Must not check anything itself.
//!
//! Clients record frames, in one list for all of them: a frame to a server before it is written, a
//! frame of a server after it is read. So the list orders two records of different clients only in
//! a way in which they may have happened. The servers' log is read when the servers have ended. A
//! transaction counts as committed when the first client reads a frame that shows it, because its
//! request is recorded by then.
//!
//! A client that resumes a session does so at another server than before, because only then the log
//! shows where its requests on the earlier connection end. It drops its watches, and its first
//! write has data of its own (see `origins`).

mod origins;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use zabkeeper_core::store::Entry;
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::{ConnectRequest, ConnectResponse, FromServer};
use zabkeeper_core::{ConnId, Corrupt, Instant, ServerId, SessionId, Zxid};

use crate::check::model::Rules;
use crate::check::observe::{ClientId, Observation, Observed};
use crate::check::oracle::{Oracles, Violation};

/// What a client recorded, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The time of the test.
    pub at: Instant,
    /// The connection, unique in the recording.
    pub conn: ConnId,
    /// What happened on it.
    pub what: Record,
}

/// What happened on a connection. Frames are without their lengths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A client is connected to a server.
    Opened {
        /// The client.
        client: ClientId,
        /// The server.
        server: ServerId,
    },
    /// The client is about to write this frame: the connect request first, then requests.
    Sent(Bytes),
    /// The client has read this frame.
    Received(Bytes),
    /// The client has closed the connection, or found it closed.
    Closed,
}

/// A recording, and the transactions that the servers have committed.
#[derive(Clone, Debug)]
pub struct History {
    recorded: Vec<Recorded>,
    txns: Vec<Txn>,
}

impl History {
    /// A history of these records and of this log, which begins with the first epoch.
    ///
    /// # Errors
    /// An entry of the log that is no transaction.
    pub fn new(recorded: Vec<Recorded>, log: &[Entry]) -> Result<History, Corrupt> {
        let txns: Result<Vec<Txn>, Corrupt> = log.iter().map(Txn::decode).collect();
        let mut txns = txns?;
        origins::rename(&recorded, &mut txns);
        Ok(History { recorded, txns })
    }

    /// Checks the history against the promises to clients, for servers with these settings. Returns
    /// how often each promise was checked, by its id.
    ///
    /// # Errors
    /// The first violated promise.
    pub fn check(&self, rules: Rules) -> Result<Vec<(&'static str, u64)>, Violation> {
        let mut oracles = Oracles::new(&[], rules);
        let mut handshakes = Handshakes::new(&self.txns);
        let mut txns = self.txns.iter().peekable();
        let mut now = Instant::default();
        for Recorded { at, conn, what } in &self.recorded {
            now = *at;
            let shown = match what {
                Record::Opened { server, .. } => handshakes.opened(*conn, *server),
                Record::Sent(frame) => {
                    if let Some(session) = handshakes.resumes(*conn, frame) {
                        let what = Observation::Forgotten { session };
                        oracles.observe(&Observed { at: now, what })?;
                    }
                    None
                }
                Record::Received(frame) if handshakes.await_response(*conn) => {
                    handshakes.answered(*conn, frame)
                }
                Record::Received(frame) => shown(frame),
                Record::Closed => None,
            };
            while let Some(txn) = txns.next_if(|txn| Some(txn.zxid) <= shown) {
                oracles.commit_unobserved(now, txn)?;
            }
            oracles.observe(&Observed { at: now, what: observation(*conn, what) })?;
        }
        txns.try_for_each(|txn| oracles.commit_unobserved(now, txn))?;
        Ok(oracles.checks())
    }
}

/// The zxid that a frame of a server names.
fn shown(frame: &Bytes) -> Option<Zxid> {
    match FromServer::decode(frame.clone()).ok()? {
        FromServer::Reply { zxid, .. } => u64::try_from(zxid).ok().map(Zxid),
        FromServer::Event(event) => event.zxid,
    }
}

fn observation(conn: ConnId, what: &Record) -> Observation<'static> {
    match what {
        Record::Opened { client, server } => {
            Observation::ConnOpened { client: *client, conn, server: *server }
        }
        Record::Sent(frame) => Observation::ToServer { conn, frame: frame.clone() },
        Record::Received(frame) => Observation::ToClient { conn, frame: frame.clone() },
        Record::Closed => Observation::ConnClosed { conn },
    }
}

/// The transactions that connect responses show: they name no zxid.
struct Handshakes {
    /// Of each session, in order.
    steps: BTreeMap<SessionId, Vec<(Zxid, Step)>>,
    /// Connections without a response, and the session that their request names, which is zero for
    /// a new one; `None` before the request.
    waiting: BTreeMap<ConnId, (ServerId, Option<SessionId>)>,
    /// The last step of each session that a response has shown.
    shown: BTreeMap<SessionId, Zxid>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Created,
    MovedTo(ServerId),
    Closed,
}

impl Handshakes {
    fn new(txns: &[Txn]) -> Handshakes {
        let mut steps: BTreeMap<SessionId, Vec<(Zxid, Step)>> = BTreeMap::new();
        for txn in txns {
            let step = if let TxnOp::MoveSession { server } = txn.op {
                Step::MovedTo(server)
            } else if matches!(txn.op, TxnOp::CreateSession { .. }) {
                Step::Created
            } else if matches!(txn.op, TxnOp::CloseSession) {
                Step::Closed
            } else {
                continue;
            };
            steps.entry(txn.session).or_default().push((txn.zxid, step));
        }
        Handshakes { steps, waiting: BTreeMap::new(), shown: BTreeMap::new() }
    }

    fn opened(&mut self, conn: ConnId, server: ServerId) -> Option<Zxid> {
        self.waiting.insert(conn, (server, None));
        None
    }

    /// The session that this frame, if it is a connect request, asks to resume.
    fn resumes(&mut self, conn: ConnId, frame: &Bytes) -> Option<SessionId> {
        let (_, named) = self.waiting.get_mut(&conn).filter(|(_, named)| named.is_none())?;
        let request = ConnectRequest::decode(frame.clone()).ok()?;
        *named = Some(request.session);
        Some(request.session).filter(|session| *session != SessionId(0))
    }

    fn await_response(&self, conn: ConnId) -> bool {
        self.waiting.contains_key(&conn)
    }

    /// The step of its session that a connect response shows.
    fn answered(&mut self, conn: ConnId, frame: &Bytes) -> Option<Zxid> {
        let (server, named) = self.waiting.remove(&conn)?;
        let named = named.filter(|session| *session != SessionId(0));
        let (session, step) = match (named, session_of(frame)) {
            (None, session) => (session?, Step::Created),
            (Some(named), Some(_)) => (named, Step::MovedTo(server)),
            (Some(named), None) => (named, Step::Closed),
        };
        let after = self.shown.get(&session).copied().unwrap_or_default();
        let steps = self.steps.get(&session)?;
        let (zxid, _) = steps.iter().find(|(zxid, is)| *zxid > after && *is == step)?;
        self.shown.insert(session, *zxid);
        Some(*zxid)
    }
}

/// The session of a connect response; `None` if it refuses the client.
fn session_of(frame: &Bytes) -> Option<SessionId> {
    let response = ConnectResponse::decode(frame.clone()).ok()?;
    Some(response.session).filter(|session| *session != SessionId(0))
}
