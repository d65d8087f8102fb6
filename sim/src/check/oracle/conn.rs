//! One client connection as its client sees it: requests and replies.
//!
//! Owns the queue of unanswered requests and how many of them the server has executed. Must not
//! check anything.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zabkeeper_core::wire::{ConnectRequest, Id, Request, WatchEvent};
use zabkeeper_core::{ConnId, ErrorCode, Instant, ServerId, SessionId, Zxid};

use super::read_only::Period;
use super::text::maybe;
use super::watch::{ConnWatches, Held, Kept, Slot};
use crate::check::model::Rules;
use crate::check::observe::ClientId;

/// The state of the connection, as its client sees it.
///
/// ```text
/// Fresh -> Greeted -> Open -> Over        Fresh -> Opaque: no valid connect request
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The client has sent nothing.
    Fresh,
    /// The client has sent the connect request.
    Greeted,
    /// The connect response has a session.
    Open,
    /// The server has sent its last reply.
    Over,
    /// The first frame was no connect request: nothing here is checked.
    Opaque,
}

/// An unanswered request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) xid: i32,
    pub(super) request: Request,
    /// The identities of its client when it was sent (ACL-17).
    pub(super) ids: Arc<[Id]>,
    /// The highest zxid that any client had seen when it was sent: a write must get a higher one
    /// (C1).
    pub(super) seen: Zxid,
    /// The highest acknowledged write when it was sent: a sync must reach it (C5).
    pub(super) acknowledged: Zxid,
    /// When it was sent.
    pub(super) at: Instant,
    /// The transaction that a write has become.
    pub(super) txn: Option<Zxid>,
}

/// Scheme and data of an auth packet.
pub(super) type Credential = (String, Option<Bytes>);

/// An unanswered auth packet. Auth packets are answered outside the queue, in order among
/// themselves.
#[derive(Clone, Debug)]
pub(super) struct AuthAsked {
    /// The packet.
    pub(super) credential: Credential,
    /// The right answer.
    pub(super) right: Result<(), ErrorCode>,
    /// The client's identities after it.
    pub(super) ids: Arc<[Id]>,
}

/// The identities of a client on a connection, at three points. Identities are only added.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// After all auth packets that were sent.
    pub(super) sent: Arc<[Id]>,
    /// After all auth packets that were answered: exact for the next frame that is read.
    pub(super) answered: Arc<[Id]>,
    /// After the auth packets that were answered before the last frame with a zxid: a lower bound
    /// for what the server knew at any later transaction.
    pub(super) settled: Arc<[Id]>,
}

/// The connect request of a client.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    pub(super) request: ConnectRequest,
    /// When it was sent.
    pub(super) at: Instant,
    /// Observation number of its sending.
    pub(super) order: u64,
    /// Whether its session was alive then, by the model.
    pub(super) alive: bool,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Conn {
    pub(super) client: ClientId,
    pub(super) server: ServerId,
    pub(super) phase: Phase,
    pub(super) hello: Option<Hello>,
    /// Observation number at which the client read a response with a session.
    pub(super) welcomed: Option<u64>,
    /// The session that it asked for, or that was created for it; zero until that is known.
    pub(super) session: SessionId,
    /// Whether the server creates local sessions, by the options of the start in which it accepted
    /// this connection.
    pub(super) begins_local: bool,
    /// The client was told that its server is read-only, in one of these periods.
    pub(super) read_only: Option<Vec<Period>>,
    /// Unanswered requests in order.
    pub(super) asked: VecDeque<Asked>,
    /// How many requests at the front of `asked` the server is known to have passed; the next write
    /// is behind them.
    executed: usize,
    /// The origin's request number in the last transaction of this connection.
    pub(super) last_origin: Option<u64>,
    pub(super) auths: VecDeque<AuthAsked>,
    pub(super) shown: Shown,
    /// The client has sent a frame that is no valid request: the server reads nothing after it.
    pub(super) garbled: bool,
    /// The highest zxid in replies and events that were read here.
    pub(super) floor: Zxid,
    /// The highest zxid seen, as the connect request claims.
    pub(super) claimed: Zxid,
    /// The highest zxid of an acknowledged write of the session, here or on earlier connections.
    pub(super) acknowledged: Zxid,
    pub(super) replies: u64,
    /// The watches that the server holds for the connection.
    pub(super) watches: ConnWatches,
    /// The watches that the client holds. They differ in two cases: a client drops all watches of a
    /// path when the node is deleted, and gets no event of a watch that was used up by a node that
    /// it may not read.
    pub(super) kept: Held,
    /// Events without a zxid, which the next setWatches reply must account for.
    pub(super) unaccounted: Vec<WatchEvent>,
    /// Watches of earlier connections of the session that setWatches has not named here.
    pub(super) held: Held,
    /// Watches that setWatches has named and that no reply has confirmed yet.
    pub(super) resent: Held,
    /// Credentials that succeeded on earlier connections of the session and were not sent on this
    /// one.
    pub(super) unshown: BTreeSet<Credential>,
    /// The client is one of the client library and the only one that has used the session, so the
    /// watches that it holds are known.
    pub(super) knows: bool,
    /// The client's end is closed.
    pub(super) closed: bool,
}

/// A connection as evidence shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) id: ConnId,
    pub(super) ends: Option<(ClientId, ServerId, SessionId)>,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Who { id, ends } = self;
        match ends {
            None => write!(f, "{id}"),
            Some((ClientId(client), server, session)) => {
                write!(f, "client {client} on {id} to server {server} for session {session}")
            }
        }
    }
}

impl Conn {
    pub(super) fn new(
        client: ClientId,
        server: ServerId,
        begins_local: bool,
        rules: &Rules,
    ) -> Conn {
        let ids: Arc<[Id]> = Arc::from(rules.opened(&client.address(), client.subject()));
        let shown = Shown { sent: ids.clone(), answered: ids.clone(), settled: ids };
        Conn {
            client,
            server,
            phase: Phase::Fresh,
            hello: None,
            welcomed: None,
            session: SessionId(0),
            begins_local,
            read_only: None,
            asked: VecDeque::new(),
            executed: 0,
            last_origin: None,
            auths: VecDeque::new(),
            shown,
            garbled: false,
            floor: Zxid::ZERO,
            claimed: Zxid::ZERO,
            acknowledged: Zxid::ZERO,
            replies: 0,
            watches: ConnWatches::default(),
            kept: Held::default(),
            unaccounted: Vec::new(),
            held: Held::default(),
            resent: Held::default(),
            unshown: BTreeSet::new(),
            knows: false,
            closed: false,
        }
    }

    /// The setWatches reply at `zxid` confirms this watch. Returns since when the watch had been
    /// held, if the client holds it.
    pub(super) fn stands_again(&mut self, slot: Slot, path: &str, zxid: Zxid) -> Option<Zxid> {
        let (path, kept) = self.resent.of_mut(slot).remove_entry(path)?;
        self.kept.keep(slot, path, Kept { since: zxid, ..kept });
        Some(kept.since)
    }

    /// Whether it asked for a new session.
    pub(super) fn asks_for_new_session(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.request.session == SessionId(0))
    }

    /// Marks the first write that has no transaction as executed, and returns it.
    pub(super) fn execute_next(&mut self) -> Option<&mut Asked> {
        let is_write = |asked: &Asked| asked.request.is_write() && asked.txn.is_none();
        let next = (self.executed..self.asked.len()).find(|index| is_write(&self.asked[*index]))?;
        self.executed = next + 1;
        self.asked.get_mut(next)
    }

    /// Removes the first unanswered request, whose reply is being read.
    pub(super) fn answer_next(&mut self) -> Option<Asked> {
        self.executed = self.executed.saturating_sub(1);
        self.asked.pop_front()
    }

    /// Whether the server may still turn something that was sent here into a transaction.
    pub(super) fn may_execute(&self) -> bool {
        let greeting = self.asks_for_new_session() && self.session == SessionId(0);
        greeting || self.asked.range(self.executed..).any(|asked| asked.request.is_write())
    }
}

/// A connection on which a client has read that its session is resumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attached {
    pub(super) conn: ConnId,
    pub(super) client: ClientId,
    /// Observation numbers of the connect request (`asked`) and of the reading of its response
    /// (`order`).
    pub(super) asked: u64,
    pub(super) order: u64,
    /// When the client read the response.
    pub(super) at: Instant,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} on {}", self.client.0, self.conn)
    }
}

/// A client got a session that was created for another connection.
pub(super) fn made_for_another(who: Who, session: SessionId, attached: Option<Attached>) -> String {
    let on = maybe(attached);
    format!("{who}: got the session {session}, made for another; it goes on with {on}")
}
