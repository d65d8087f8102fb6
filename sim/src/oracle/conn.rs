//! One client connection as its client sees it: what was asked, what was answered.
//!
//! Owns the queue of unanswered requests and how far the server has executed the writes among them. Must not judge.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zabkeeper_core::wire::{ConnectRequest, Id, Request, WatchEvent};
use zabkeeper_core::{ConnId, ErrorCode, Instant, ServerId, SessionId, Zxid};

use super::watch::{ConnWatches, Held, Kept, Slot};
use crate::model::Rules;
use crate::observe::ClientId;

/// How far the conversation has come, in the eyes of the client.
///
/// ```text
/// Fresh -> Greeted -> Open -> Over        Fresh -> Opaque: no handshake that we can read
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing was sent.
    Fresh,
    /// The handshake was sent.
    Greeted,
    /// The handshake was answered with a session.
    Open,
    /// The server has said its last word.
    Over,
    /// What goes on here is not our protocol.
    Opaque,
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) xid: i32,
    pub(super) request: Request,
    /// Who its client had shown to be when it was sent (ACL-17).
    pub(super) ids: Arc<[Id]>,
    /// The highest zxid that anyone had seen when it was sent: a write must come after it (C1).
    pub(super) seen: Zxid,
    /// The highest acknowledged write when it was sent: a sync must reach it (C5).
    pub(super) acknowledged: Zxid,
    /// When it was sent.
    pub(super) at: Instant,
    /// The transaction that a write has become.
    pub(super) txn: Option<Zxid>,
}

/// What shows who a client is: a scheme, and what it takes.
pub(super) type Credential = (String, Option<Bytes>);

/// An auth packet without an answer. They are answered outside the queue, in order among themselves.
#[derive(Clone, Debug)]
pub(super) struct AuthAsked {
    /// The packet.
    pub(super) credential: Credential,
    /// What it must be answered with.
    pub(super) right: Result<(), ErrorCode>,
    /// Who the client is then.
    pub(super) ids: Arc<[Id]>,
}

/// Who a client has shown to be on a connection, as it is seen at three places. Identities only become more.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// With all that was sent.
    pub(super) sent: Arc<[Id]>,
    /// With all that was answered: exact for whatever is read next.
    pub(super) answered: Arc<[Id]>,
    /// With what was answered before the last frame that named a zxid: the least that the server knew at any later
    /// transaction.
    pub(super) settled: Arc<[Id]>,
}

/// The handshake of a client.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    pub(super) request: ConnectRequest,
    /// When it was sent.
    pub(super) at: Instant,
    /// The same: place among all observations.
    pub(super) order: u64,
    /// Was its session begun and not ended then?
    pub(super) alive: bool,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Conn {
    pub(super) client: ClientId,
    pub(super) server: ServerId,
    pub(super) phase: Phase,
    pub(super) hello: Option<Hello>,
    /// When the client read that it may go on: place among all observations.
    pub(super) welcomed: Option<u64>,
    /// The session that it speaks for: the one it asked for, or the one made for it; zero until that is known.
    pub(super) session: SessionId,
    /// Does its server keep new sessions to itself, in the life in which it took this connection?
    pub(super) begins_local: bool,
    /// Unanswered requests, in order.
    pub(super) asked: VecDeque<Asked>,
    /// How many of them the server is known to have passed: the next write stands behind.
    executed: usize,
    /// The server's own number of the last write that became a transaction.
    pub(super) last_origin: Option<u64>,
    pub(super) auths: VecDeque<AuthAsked>,
    pub(super) shown: Shown,
    /// A frame was sent that is no request: nothing after it is read.
    pub(super) garbled: bool,
    /// The highest zxid in replies and events read here.
    pub(super) floor: Zxid,
    /// The highest zxid that the client claimed to have seen in its handshake.
    pub(super) claimed: Zxid,
    /// The highest zxid of an acknowledged write of the session, here or before.
    pub(super) acknowledged: Zxid,
    pub(super) replies: u64,
    /// The watches that the server holds for it.
    pub(super) watches: ConnWatches,
    /// The watches that the client holds here. Mostly the same ones; it forgets all of a path when the node is deleted,
    /// and it is not told of a watch used up by a node that nobody may read.
    pub(super) kept: Held,
    /// Events without a zxid, which the next setWatches reply must explain.
    pub(super) untold: Vec<WatchEvent>,
    /// Watches of earlier connections of the session that this one has not set again.
    pub(super) held: Held,
    /// Watches that setWatches has named and no answer has settled.
    pub(super) resent: Held,
    /// What was believed on earlier connections of the session, and was not shown again on this one.
    pub(super) unshown: BTreeSet<Credential>,
    /// Is it a client of the library, and has nobody else gone on with its session? Then what it holds is known here.
    pub(super) knows: bool,
    /// Is the client's end gone?
    pub(super) closed: bool,
}

/// A connection as it stands in evidence.
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
            untold: Vec::new(),
            held: Held::default(),
            resent: Held::default(),
            unshown: BTreeSet::new(),
            knows: false,
            closed: false,
        }
    }

    /// The answer to setWatches, at `zxid`, says that this watch stands here, too; since when it has stood, if the client
    /// holds it.
    pub(super) fn stands_again(&mut self, slot: Slot, path: &str, zxid: Zxid) -> Option<Zxid> {
        let (path, kept) = self.resent.of_mut(slot).remove_entry(path)?;
        self.kept.keep(slot, path, Kept { since: zxid, ..kept });
        Some(kept.since)
    }

    /// Did it ask for a new session?
    pub(super) fn asks_for_new_session(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.request.session == SessionId(0))
    }

    /// The first write that has not become a transaction; it is about to.
    pub(super) fn execute_next(&mut self) -> Option<&mut Asked> {
        let is_write = |asked: &Asked| asked.request.is_write() && asked.txn.is_none();
        let next = (self.executed..self.asked.len()).find(|index| is_write(&self.asked[*index]))?;
        self.executed = next + 1;
        self.asked.get_mut(next)
    }

    /// The first unanswered request, which is being answered.
    pub(super) fn answer_next(&mut self) -> Option<Asked> {
        self.executed = self.executed.saturating_sub(1);
        self.asked.pop_front()
    }

    /// May the server still turn something that was sent here into a transaction?
    pub(super) fn may_execute(&self) -> bool {
        let greeting = self.asks_for_new_session() && self.session == SessionId(0);
        greeting || self.asked.range(self.executed..).any(|asked| asked.request.is_write())
    }
}
