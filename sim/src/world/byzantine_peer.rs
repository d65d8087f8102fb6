//! Byzantine peers: peers that imitate a server in the quorum protocol and send messages that they
//! may not send.
//!
//! Owns those messages. A real server must refuse them or drop the link; the ensemble must not
//! suffer more than from a broken link.
//!
//! Servers trust the id in a peer's greeting, so a byzantine peer sends only what cannot break a
//! safety promise. As a learner it declares its history `Lost`, which counts in no quorum, and it
//! never sends a message that a leader might count: no `AckEpoch` for the epoch being established,
//! no answer to a ping that was sent, no write. As a leader it names only epochs that the other
//! server has accepted already or must refuse, and then sends only illegal orders: to truncate
//! committed transactions, or to log ones that do not follow. Epochs far ahead of all others are
//! claimed in the name of one server in a run: those of a quorum are believed, and bind their
//! leader for good (seed 0xf583b79746af of the swarm at f583b79).

use bytes::Bytes;
use zabkeeper_core::peer::frame::Writer;
use zabkeeper_core::peer::greeting::Channel;
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage, SessionKind};
use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::wire::Request;
use zabkeeper_core::{
    ConnId, Epoch, HistoryInfo, HistoryStatus, Instant, Seed, ServerId, SessionId, Status, WallMs,
    Zxid,
};

use super::World;
use super::bad_peer::greeting;
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;
use crate::machine::node::Node;
use crate::network::port::Port;
use crate::network::stream::{Break, End, Party};
use crate::record::trace::Kind;
use crate::world::shared::Event;

const MS: u64 = 1_000_000;
/// Beyond any zxid of a run.
const FAR: Zxid = Zxid(u64::MAX >> 1);

/// A byzantine peer.
#[derive(Debug)]
pub(super) struct ByzantinePeer {
    /// The server that it talks to.
    server: ServerId,
    /// The server id in its greeting.
    mask: ServerId,
    leads: bool,
    /// It may claim an epoch far ahead of all others.
    claims_far: bool,
    /// Messages sent, and messages to send in total.
    sent: u64,
    words: u64,
    rng: Rng,
}

/// Dials to this server reach a byzantine peer.
#[derive(Debug)]
pub(super) struct Usurped {
    server: ServerId,
    until: Instant,
    rng: Rng,
}

impl World {
    /// A byzantine peer connects to a server, often to a leader, or receives the dials to a server
    /// for a while. Returns whether it could.
    pub(super) fn send_byzantine_peer(&mut self, server: ServerId) -> bool {
        let others: Vec<ServerId> = self.nodes.keys().copied().filter(|id| *id != server).collect();
        let leader = self.leaders().first().copied();
        let rng = &mut self.fault_rng[Fault::NetByzantine as usize];
        if others.is_empty() {
            return false;
        }
        let mask = *rng.pick(&others);
        if rng.chance(1, 2) {
            let ms = rng.magnitude(100, 8_000);
            let until = Instant(self.shared.now.0 + ms * MS);
            self.usurped = Some(Usurped { server, until, rng: rng.fork() });
            self.shared.describe(|| format!("in the place of s{server} for {ms} ms"));
            return true;
        }
        let mut rng = rng.fork();
        let server = leader.filter(|_| rng.chance(1, 2)).unwrap_or(server);
        let mask = self.free_place(server, mask, &mut rng);
        let conn = self.shared.net.allocate();
        let (node, shared) = self.node(server);
        if node.accept(conn, Party::BadPeer, Port::Servers(Channel::Quorum), shared) != Some(true) {
            return false;
        }
        let claims_far = *self.claims_far.get_or_insert(mask) == mask;
        let peer = ByzantinePeer { server, mask, leads: false, claims_far, sent: 0, words: 0, rng };
        self.begin_byzantine_peer(conn, [Party::BadPeer, Party::Server(server)], peer);
        self.send_as_byzantine_peer(conn, End::Dialler, greeting(Channel::Quorum, mask, server));
        true
    }

    /// The server that a byzantine peer claims to be. A server with an established link would make
    /// it wait and be refused, so it claims to be one without a link, or breaks a link first, or
    /// waits.
    fn free_place(&mut self, server: ServerId, mask: ServerId, rng: &mut Rng) -> ServerId {
        let linked = self.nodes.get(&server).map(Node::linked_by).unwrap_or_default();
        let others = self.nodes.keys().copied().filter(|id| *id != server);
        let (linked, free): (Vec<ServerId>, Vec<ServerId>) =
            others.partition(|id| linked.contains(id));
        if !linked.is_empty() && rng.chance(1, 2) {
            let mask = *rng.pick(&linked);
            self.break_links_from(mask, server);
            return mask;
        }
        if free.is_empty() || rng.chance(1, 4) { mask } else { *rng.pick(&free) }
    }

    /// Breaks the links that one server has dialled to another.
    fn break_links_from(&mut self, from: ServerId, to: ServerId) {
        let parties = [Party::Server(from), Party::Server(to)];
        let shared = &mut self.shared;
        let links: Vec<ConnId> =
            shared.net.list().filter(|(_, ends)| *ends == parties).map(|(conn, _)| conn).collect();
        for conn in links {
            shared.net.break_off(shared.now, conn, Break::Both);
        }
        shared.schedule_arrivals();
    }

    /// If a byzantine peer acts as `to`, connects `from`, which dials `to`, with that peer. Returns
    /// whether it has.
    pub(super) fn is_usurped(&mut self, from: ServerId, to: ServerId, conn: ConnId) -> bool {
        let now = self.shared.now;
        let Some(usurped) = self.usurped.as_mut().filter(|usurped| now < usurped.until) else {
            return false;
        };
        if usurped.server != to
            || !self.shared.is_faulty()
            || !self.shared.reach.connects(now, from, to)
        {
            return false;
        }
        let rng = usurped.rng.fork();
        let claims_far = false;
        let (server, mask, leads) = (from, to, true);
        let peer = ByzantinePeer { server, mask, leads, claims_far, sent: 0, words: 0, rng };
        self.begin_byzantine_peer(conn, [Party::Server(from), Party::BadPeer], peer);
        // The answer to the greeting, sent without waiting for that greeting.
        self.send_as_byzantine_peer(conn, End::Acceptor, greeting(Channel::Quorum, to, from));
        true
    }

    fn begin_byzantine_peer(&mut self, conn: ConnId, parties: [Party; 2], mut peer: ByzantinePeer) {
        let shared = &mut self.shared;
        let (server, mask) = (peer.server, peer.mask);
        let attempt = shared.net.attempt(shared.seeds, parties);
        shared.net.open(conn, attempt, shared.options.peers.link);
        shared.note(Kind::Conn, (server.0, conn.0), &[u8::from(peer.leads)], || {
            format!("a byzantine peer sends as s{mask} to s{server} by {conn}")
        });
        peer.words = peer.rng.range(1, 4);
        shared.after(peer.rng.range(0, 30) * MS, Event::ByzantinePeerSends { conn });
        self.byzantine_peers.insert(conn, peer);
    }

    /// A byzantine peer sends its next message, or disconnects.
    pub(super) fn byzantine_peer_turn(&mut self, conn: ConnId) {
        let Some(mut peer) = self.byzantine_peers.remove(&conn) else {
            return;
        };
        let status = self.nodes.get(&peer.server).and_then(|node| node.status());
        let (true, Some(status)) = (peer.sent < peer.words, status) else {
            return self.end_bad_peer(conn);
        };
        let message = peer.message(&status);
        let (server, mask) = (peer.server, peer.mask);
        self.shared.describe(|| format!("as s{mask} to s{server}: {message}"));
        let mut bytes = Vec::new();
        Writer::default().encode_message(&message, &mut bytes);
        let end = if peer.leads { End::Acceptor } else { End::Dialler };
        peer.sent += 1;
        let last = peer.sent == peer.words;
        let pause = peer.rng.magnitude(1, if last { 8_000 } else { 400 }) * MS;
        self.byzantine_peers.insert(conn, peer);
        self.send_as_byzantine_peer(conn, end, Bytes::from(bytes));
        self.shared.after(pause, Event::ByzantinePeerSends { conn });
    }

    fn send_as_byzantine_peer(&mut self, conn: ConnId, end: End, bytes: Bytes) {
        let shared = &mut self.shared;
        shared.note(Kind::Send, (0, conn.0), &bytes, || {
            format!("a byzantine peer -> {conn} {}B", bytes.len())
        });
        shared.net.send(shared.now, conn, end, bytes);
        shared.schedule_arrivals();
    }

    /// Disconnects all byzantine_peers.
    pub(super) fn end_byzantine_peers(&mut self) {
        self.usurped = None;
        for conn in std::mem::take(&mut self.byzantine_peers).into_keys() {
            self.end_bad_peer(conn);
        }
    }
}

impl ByzantinePeer {
    /// The direction of the link fixes the message type; the other type's bytes would be misread.
    fn message(&mut self, status: &Status) -> PeerMessage {
        match (self.leads, self.sent) {
            (true, 0) => self.first_of_leader(status).into(),
            (true, _) => self.of_leader(status).into(),
            // One in four omits `FollowerInfo`.
            (false, 0) if self.rng.chance(3, 4) => self.promise(status).into(),
            (false, _) => self.of_learner().into(),
        }
    }

    /// As a learner: the epoch that it claims to have accepted.
    fn promise(&mut self, status: &Status) -> FromLearner {
        let Epoch(known) = status.accepted_epoch;
        let accepted = match self.rng.below(10) {
            0 => Epoch::END,
            1 => Epoch(0),
            2 => Epoch(known.saturating_add(1)),
            // Just below the end of epochs, and too far ahead for one peer's claim to count.
            3 if self.claims_far => Epoch(Epoch::END.0 - 2),
            4 if self.claims_far => Epoch(known.saturating_add(2 * Epoch::LEAD_MAX)),
            _ => Epoch(known),
        };
        let history = HistoryInfo::new(HistoryStatus::Lost, Epoch(0));
        FromLearner::FollowerInfo { accepted, history, ensemble: 0 }
    }

    /// As a learner: messages that are refused, or have no effect with a `Lost` history.
    fn of_learner(&mut self) -> FromLearner {
        let elsewhere = Origin { server: ServerId(99), conn: ConnId(1), request: 1 };
        match self.rng.below(10) {
            0..2 => {
                let last = *self.rng.pick(&[Zxid::ZERO, FAR]);
                FromLearner::AckEpoch { fresh: false, current: Epoch(0), last, nonce: 0 }
            }
            2 => FromLearner::SyncAt { last: Zxid::ZERO, nonce: 0 },
            3 => FromLearner::AckNewLeader { epoch: Epoch::END },
            4 => FromLearner::Ack { zxid: FAR },
            5 => FromLearner::Pong {
                round: u64::MAX,
                sent: Instant(u64::MAX),
                echo: Instant(u64::MAX),
                touched: Vec::new(),
                digests: vec![(FAR, 1)],
            },
            6 => FromLearner::CreateSession { timeout_ms: 1_000, origin: elsewhere },
            7 => FromLearner::Request {
                session: SessionId(0),
                origin: elsewhere,
                ids: [].into(),
                request: Request::Delete { path: "/n0".to_owned(), version: -1 },
                session_kind: SessionKind::Global,
            },
            8 => {
                let history = HistoryInfo::new(HistoryStatus::Lost, Epoch(0));
                FromLearner::FollowerInfo { accepted: Epoch(0), history, ensemble: 0 }
            }
            _ => FromLearner::Sync { conn: ConnId(1), request: 1 },
        }
    }

    /// As a leader: mostly an epoch that the other server has accepted, so that it processes what
    /// follows.
    fn first_of_leader(&mut self, status: &Status) -> FromLeader {
        let Epoch(known) = status.accepted_epoch;
        let epoch = match self.rng.below(9) {
            0 => return self.of_leader(status),
            1 => Epoch::END,
            3 => Epoch(Epoch::END.0 - 2),
            2 => Epoch(known.saturating_sub(1)),
            _ => Epoch(known),
        };
        FromLeader::LeaderInfo { epoch, empty: true, ensemble: 0, blank: false }
    }

    /// As a leader: illegal orders.
    fn of_leader(&mut self, status: &Status) -> FromLeader {
        match self.rng.below(7) {
            // Legal while nothing is known to be committed, so only sent afterwards.
            0 if status.committed > Zxid::ZERO => FromLeader::Trunc { to: Zxid::ZERO },
            1 => self.snapshot(),
            2..5 => self.proposal(status),
            5 => FromLeader::UpToDate { committed: FAR },
            _ => self.out_of_place(),
        }
    }

    /// An old snapshot, or one that lacks its first part.
    fn snapshot(&mut self) -> FromLeader {
        let (zxid, index) = *self.rng.pick(&[(Zxid::ZERO, 0), (FAR, 7)]);
        FromLeader::Snap { zxid, index, bytes: Bytes::from_static(b"nothing"), last: false }
    }

    /// A transaction out of order, one that does not decode, or one with a different zxid inside.
    fn proposal(&mut self, status: &Status) -> FromLeader {
        let zxid = status.appended.next().unwrap_or(FAR);
        let op = TxnOp::CloseSession;
        let txn = Txn { zxid: FAR, session: SessionId(0), time: WallMs(0), origin: None, op };
        let mut entry = txn.encode();
        match self.rng.below(3) {
            0 => entry.zxid = Zxid::ZERO,
            1 => entry.zxid = zxid,
            _ => (entry.zxid, entry.bytes) = (zxid, Bytes::new()),
        }
        FromLeader::Proposal(entry)
    }

    /// As a leader: messages of the wrong phase.
    fn out_of_place(&mut self) -> FromLeader {
        match self.rng.below(5) {
            0 => FromLeader::NewLeader {
                epoch: Epoch::END,
                voters: [ServerId(9)].into(),
                established: [ServerId(9)].into(),
                identity: Seed::from(0).identity(Epoch::END),
                nonces: Vec::new(),
            },
            1 => FromLeader::Commit { zxid: FAR },
            2 => FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) },
            3 => FromLeader::Synced { conn: ConnId(1), request: 1 },
            _ => FromLeader::LeaderInfo {
                epoch: Epoch::END,
                empty: false,
                ensemble: 0,
                blank: false,
            },
        }
    }
}
