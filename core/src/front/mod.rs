//! What a server keeps for its clients (Java `ZooKeeperServer`, `ServerCnxn`, `CommitProcessor`,
//! `FinalRequestProcessor`).
//!
//! ```text
//! connection ─► requests ─► queue ──read──────────────────────────► read ──► reply
//!                             │                                      ▲
//!                             └─write─► prep ─► log ─► commit ─► apply ─► reply to the write
//!                         (PrepRequestProcessor) (SyncRequestProcessor) (FinalRequestProcessor)
//! ```
//!
//! * `handshake`: from the connect request to an open session.
//! * `requests`: decides which way a request takes; authentication; delivers replies and events.
//! * `queue`: keeps the replies of each connection in the order of its requests (CommitProcessor).
//! * `read`: answers from the local tree.
//! * `reply`: builds the reply to a request from its applied transaction.
//! * `local`: the sessions that only this server knows.
//! * `read_only`: service while no leader is found.
//!
//! Owns connections, the sessions that are connected here, and the order of requests and replies.
//! Must not know the role of the server: whatever the leader has to decide, methods return as a
//! [`FrontEffect`], and whether clients are served is a parameter.

mod handshake;
mod local;
mod queue;
mod read;
mod read_only;
mod reply;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use crate::auth::Identities;
use crate::config::Config;
use crate::cx::Cx;
use crate::ids::{ConnId, Instant, SessionId};
use crate::io::{ClientCommand, Mark};
use crate::measure::Measure;
use crate::notice::Notice;
use crate::peer::SessionKind;
use crate::replica::Replica;
use crate::status::SessionInfo;
use crate::txn::Origin;
use crate::wire::ConnectRequest;
use local::LocalSessions;
use queue::Queue;
pub(crate) use queue::{PendingRequest, Resubmit, Resumed};

/// See the module.
#[derive(Debug)]
pub(crate) struct Front {
    conns: BTreeMap<ConnId, Conn>,
    /// The connection of each session that is connected to this server.
    by_session: BTreeMap<SessionId, ConnId>,
    local: LocalSessions,
    /// Connections with reads to answer, in the order in which they are served.
    ready: VecDeque<ConnId>,
    /// Does the server serve read-only clients, and no others, because it finds no leader?
    read_only: bool,
    /// The time at which connections have waited too long for a leader, while they wait.
    await_leader_until: Option<Instant>,
    /// The time at which the server stopped reading clients, while it does not read them.
    paused_since: Option<Instant>,
}

/// What the server has to do for a connection.
#[must_use]
#[derive(Debug)]
pub(crate) enum FrontEffect {
    /// Nothing.
    None,
    /// Have the leader create a session. The connection waits for the session from
    /// [`Front::await_session`] on.
    CreateSession(ConnId, ConnectRequest),
    /// Ask the leader whether the session is alive, and have it moved to this server. The
    /// connection waits for the answer from [`Front::revalidate`] on.
    ResumeSession(ConnId, ConnectRequest),
    /// Have the leader confirm that it has received all earlier messages of the session; then the
    /// local session is resumed.
    ResumeLocalSession(ConnId, ConnectRequest),
    /// The connection serves a session, whose timeout begins now, and continues with the requests
    /// that it has queued.
    Open { conn: ConnId, session: SessionId, timeout_ms: u32 },
    /// Have the leader decide this write.
    Propose {
        session: SessionId,
        session_kind: SessionKind,
        origin: Origin,
        pending: PendingRequest,
    },
    /// Have a quorum confirm the leader for this sync.
    Sync(ConnId, u64),
}

/// A client connection.
///
/// ```text
/// AwaitLeader ─ new session ─► Creating ─── created ────► Created ─ service begins ─► Open
///  │ │ ▲                          │                           ▲                        ▲
///  │ │ └────── leader lost ───────┤                           │                        │
///  │ │                            │                           │                        │
///  │ └── known session ──────► Revalidating ── moved ─────────┘                        │
///  │                              └── session is alive and belongs to this server ─────┤
///  └── new local session, or a local session resumed on the leader ────────────────────┘
/// ```
///
/// `AwaitLeader` is the first phase of every connection; it ends at once if a leader is serving.
/// `Created` is skipped if clients are served when the transaction is applied.
#[derive(Debug)]
struct Conn {
    phase: ConnPhase,
    queue: Queue,
    /// The identities of the client; they belong to the connection and are only added to (ACL-17).
    known: Identities,
    /// Is the connection in [`Front::ready`]?
    is_ready: bool,
}

#[derive(Debug)]
enum ConnPhase {
    /// The handshake waits for a leader.
    AwaitLeader(ConnectRequest),
    /// The transaction that creates the session is under way; requests wait for it (HS-07).
    Creating(ConnectRequest),
    /// The session exists; the connection opens once this server serves clients.
    Created { session: SessionId, timeout_ms: u32, read_only: Option<bool> },
    /// The leader checks whether the session is alive. If the session belongs to another server, a
    /// transaction moves it to this one first.
    Revalidating(ConnectRequest),
    /// The connection serves this session, with the negotiated timeout.
    Open { session: SessionId, timeout_ms: u32 },
}

impl Front {
    /// The connection of a session, if its client is connected to this server.
    pub(crate) fn conn_of(&self, session: SessionId) -> Option<ConnId> {
        self.by_session.get(&session).copied()
    }

    pub(crate) fn new(config: &Config) -> Front {
        Front {
            conns: BTreeMap::new(),
            by_session: BTreeMap::new(),
            local: LocalSessions::new(config.tick()),
            ready: VecDeque::new(),
            read_only: false,
            await_leader_until: None,
            paused_since: None,
        }
    }

    /// All connections.
    pub(crate) fn conns(&self) -> Vec<ConnId> {
        self.conns.keys().copied().collect()
    }

    /// The session that this connection serves, with its timeout in ms.
    pub(crate) fn session_of(&self, conn: ConnId) -> Option<(SessionId, u32)> {
        match self.conns.get(&conn)?.phase {
            ConnPhase::Open { session, timeout_ms } => Some((session, timeout_ms)),
            ConnPhase::AwaitLeader(_)
            | ConnPhase::Creating(_)
            | ConnPhase::Created { .. }
            | ConnPhase::Revalidating(_) => None,
        }
    }

    /// The sessions that are connected to this server, with their timeouts in ms.
    pub(crate) fn sessions(&self, config: &Config) -> Vec<(SessionId, u32)> {
        let timeout_ms = |conn: &ConnId| match &self.conns.get(conn)?.phase {
            ConnPhase::Created { timeout_ms, .. } | ConnPhase::Open { timeout_ms, .. } => {
                Some(*timeout_ms)
            }
            ConnPhase::AwaitLeader(request)
            | ConnPhase::Creating(request)
            | ConnPhase::Revalidating(request) => Some(config.negotiate(request.timeout_ms)),
        };
        self.by_session.iter().filter_map(|(id, conn)| Some((*id, timeout_ms(conn)?))).collect()
    }

    /// Renews a local session; `false` if the session is not local, or is being upgraded.
    pub(crate) fn touch_local(&mut self, session: SessionId, now: Instant) -> bool {
        self.local.touch(session, now)
    }

    /// Is the session local, and not being upgraded?
    pub(crate) fn is_local(&self, session: SessionId) -> bool {
        self.local.is_own(session)
    }

    /// Connections wait for a leader from now on, unless they wait already.
    pub(crate) fn await_leader(&mut self, cx: &Cx<'_>) {
        let deadline = cx.now.mono.after(cx.config.limits.hold);
        self.await_leader_until.get_or_insert(deadline);
    }

    /// The same, if there is any connection.
    pub(crate) fn on_leader_lost(&mut self, cx: &Cx<'_>) {
        if !self.conns.is_empty() {
            self.await_leader(cx);
        }
    }

    /// The time of the next [`Front::close_waiting`].
    pub(crate) fn await_leader_deadline(&self) -> Option<Instant> {
        self.await_leader_until
    }

    /// The wait for a leader is over. If clients are not served by now, closes all connections, so
    /// that clients try other servers (WIRE-16).
    pub(crate) fn close_waiting(&mut self, serves: bool, replica: &mut Replica, cx: &mut Cx<'_>) {
        self.await_leader_until = None;
        if serves {
            return;
        }
        if !self.conns.is_empty() {
            cx.mark(Mark::ConnHeldTooLong);
            cx.out.measures.push(Measure::ClosedWithoutLeader(self.conns.len()));
        }
        self.close_all(replica, cx);
    }

    /// Service begins: renews local sessions. Connections then continue one by one: see
    /// [`Front::resume_handshake`].
    pub(crate) fn begin_service(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        self.await_leader_until = None;
        if self.local.resume(&replica.unapplied_upgrades(), cx.now.mono) {
            cx.mark(Mark::UpgradeLost);
        }
    }

    /// While clients are not read, their heartbeats do not arrive: no session expires. Returns
    /// whether a long pause has ended, which renews all sessions, because clients could not
    /// reconnect either.
    pub(crate) fn note_pause(&mut self, paused: bool, cx: &mut Cx<'_>) -> bool {
        let now = cx.now.mono;
        if paused {
            cx.mark(Mark::PressurePaused);
            self.paused_since.get_or_insert(now);
            return false;
        }
        let long = self.had_long_pause(cx);
        self.paused_since = None;
        if long {
            cx.mark(Mark::SessionsSpared);
            self.local.touch_all(now);
        }
        long
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused_since.is_some()
    }

    /// Have clients not been read for longer than the interval between two pings, half a tick?
    /// Shorter pauses do not count: they are no worse than a slow network, and are so frequent
    /// under load that the session of a dead client would never expire.
    pub(crate) fn had_long_pause(&self, cx: &Cx<'_>) -> bool {
        let now = cx.now.mono;
        self.paused_since.is_some_and(|since| now.since(since) > cx.config.tick() / 2)
    }

    /// The time at which the next local sessions expire unless they are renewed.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.local.next_expiry()
    }

    /// Ends local sessions whose deadline has passed, without a transaction: they own no nodes.
    pub(crate) fn expire_local_sessions(
        &mut self,
        deadline: Instant,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let now = cx.now.mono;
        if now.since(deadline) > cx.config.tick() {
            return self.local.touch_all(now);
        }
        for (session, mut notice) in self.local.expire(now) {
            cx.mark(Mark::SessionExpired);
            if let Notice::ExpiryProposed { server, .. } = &mut notice {
                *server = Some(cx.config.id());
            }
            cx.out.notices.push(notice);
            self.note_expired(session, cx);
            self.end_session(session, replica, cx);
        }
    }

    /// If the client of an expired session is connected here, reports the connection: the
    /// operator's log then has the client's address.
    fn note_expired(&self, session: SessionId, cx: &mut Cx<'_>) {
        if let Some(conn) = self.by_session.get(&session).copied() {
            cx.out.notices.push(Notice::ExpiredConnClosed { session, conn });
        }
    }

    /// A leader's snapshot has replaced the history: the outcome of the clients' pending writes is
    /// unknown, and their watches were set on another tree.
    pub(crate) fn on_installed(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        self.close_all(replica, cx);
        self.local.on_installed();
    }

    /// Closes a connection; later requests of the client are ignored.
    fn close(&mut self, conn: ConnId, replica: &mut Replica, cx: &mut Cx<'_>) {
        cx.send(conn, ClientCommand::Close);
        self.remove(conn, replica);
    }

    /// Closes all connections: the clients are to find another server.
    pub(crate) fn close_all(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        for conn in self.conns() {
            self.close(conn, replica, cx);
        }
    }

    /// Removes a connection. Its session lives on.
    pub(crate) fn remove(&mut self, conn: ConnId, replica: &mut Replica) {
        let Some(Conn { phase, .. }) = self.conns.remove(&conn) else {
            return;
        };
        replica.watches.drop_conn(conn);
        if let ConnPhase::Created { session, .. }
        | ConnPhase::Revalidating(ConnectRequest { session, .. })
        | ConnPhase::Open { session, .. } = phase
            && self.by_session.get(&session) == Some(&conn)
        {
            self.by_session.remove(&session);
        }
    }

    /// The server halts: closes all connections, and forgets them.
    pub(crate) fn halt(&mut self, cx: &mut Cx<'_>) {
        for conn in mem::take(&mut self.conns).into_keys() {
            cx.send(conn, ClientCommand::Close);
        }
        self.by_session.clear();
    }

    fn set_phase(&mut self, conn: ConnId, phase: ConnPhase) {
        self.conns.get_mut(&conn).expect("a connection that is being served").phase = phase;
    }

    fn queue(&mut self, conn: ConnId) -> &mut Queue {
        &mut self.conns.get_mut(&conn).expect("a connection that is being served").queue
    }
}

/// For operators and checkers. All of these visit every connection or session.
impl Front {
    /// The number of local sessions, with those that are being upgraded.
    pub(crate) fn local_sessions_len(&self) -> usize {
        self.local.len()
    }

    /// Live local sessions, by id. A session that is being upgraded does not expire here.
    pub(crate) fn local_sessions(&self) -> Vec<SessionInfo> {
        self.local.infos()
    }

    /// The number of local sessions that are being upgraded.
    pub(crate) fn upgrading(&self) -> usize {
        self.local.upgrading()
    }

    /// The number of queued requests.
    pub(crate) fn requests(&self) -> usize {
        self.conns.values().map(|conn| conn.queue.len()).sum()
    }

    /// The number of syncs that wait for the leader's answer.
    pub(crate) fn waiting_syncs(&self) -> usize {
        self.conns.values().map(|conn| conn.queue.unconfirmed().count()).sum()
    }

    /// The number of handshakes that wait for service to begin.
    pub(crate) fn waiting_handshakes(&self) -> usize {
        let waits = |conn: &&Conn| matches!(conn.phase, ConnPhase::AwaitLeader(_));
        self.conns.values().filter(waits).count()
    }

    /// Counts the contradictions between the phases of connections and `by_session`. Always zero.
    pub(crate) fn strays(&self) -> usize {
        let session = |conn: &Conn| match &conn.phase {
            ConnPhase::AwaitLeader(_) | ConnPhase::Creating(_) => None,
            ConnPhase::Revalidating(request) => Some(request.session),
            ConnPhase::Created { session, .. } | ConnPhase::Open { session, .. } => Some(*session),
        };
        let nameless = self.conns.iter().filter(|(id, conn)| {
            session(conn).is_some_and(|session| self.by_session.get(&session) != Some(id))
        });
        let names = self.by_session.iter();
        let empty = names.filter(|(id, conn)| self.conns.get(conn).and_then(session) != Some(**id));
        nameless.count() + empty.count()
    }
}
