//! Connections of clients and servers with servers: a FIFO byte stream per direction that can stall
//! and break.
//!
//! Owns the bytes in flight. Must not parse them: frames are up to the ends.
//!
//! Invariants, as with TCP: within a direction bytes are neither lost, duplicated nor reordered
//! while the connection is open; when it breaks, an arbitrary suffix of the sent bytes is lost.
//! Each end sees the end of the connection once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use zabkeeper_core::{ConnId, Instant, ServerId};

use crate::check::observe::ClientId;
use crate::engine::seed::{Rng, Seeds};
use crate::network::slow::SlowReader;

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// The end that connected.
    Dialler = 0,
    /// The end of the server that accepted.
    Acceptor = 1,
}

/// The party at an end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// A client, or a bad client.
    Client(ClientId),
    /// A server.
    Server(ServerId),
    /// A bad peer: a party that connects to the quorum port without being a server.
    BadPeer,
}

impl Party {
    /// Is it neither a client nor a bad peer?
    pub fn is_server(&self) -> bool {
        matches!(self, Party::Server(_))
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Client(client) => write!(f, "client {}", client.0),
            Party::Server(server) => write!(f, "s{server}"),
            Party::BadPeer => f.write_str("somebody"),
        }
    }
}

/// An end has vanished, and its kernel does not send a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// When the other end sees the reset at the latest.
    pub late: Instant,
    /// Whether a write into the dead connection triggers a reset.
    pub on_write: bool,
}

/// Latencies of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPace {
    /// Minimum latency, ns.
    pub min: u64,
    /// Mean of the additional latency, ns.
    pub mean: u64,
    /// One segment in this many has a hundred times the additional latency; zero: none.
    pub tail_one_in: u64,
    /// One write in this many is split into pieces that arrive separately; zero: none.
    pub cut_one_in: u64,
}

/// A call of [`Network::arrive`] that is to be scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// The connection.
    pub conn: ConnId,
    /// The receiving end.
    pub to: End,
}

/// What arrives at an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// Nothing: a break has discarded the segment.
    Nothing,
    /// The stream is stalled until then.
    Later(Instant),
    /// Bytes.
    Bytes(Bytes),
    /// The other end has closed; all its bytes have arrived.
    Closed,
    /// The connection is broken; bytes in flight are lost.
    Reset,
}

/// How a connection breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// Both ends see a reset at once.
    Both,
    /// `first` sees a reset at once. The other end sees it at `late`, or with `on_write` already
    /// after its next write.
    HalfOpen {
        /// The end that sees the reset at once.
        first: End,
        /// When the other end sees it at the latest.
        late: Instant,
        /// Whether a write into the dead connection triggers a reset.
        on_write: bool,
    },
}

/// All connections.
#[derive(Debug)]
pub struct Network {
    conns: BTreeMap<ConnId, Conn>,
    next: u64,
    /// Number of connection attempts between two parties, the lesser one first.
    tried: BTreeMap<[Party; 2], u64>,
    arrivals: Vec<Arrival>,
    /// Number of split writes, and of slow segments.
    strained: (u64, u64),
}

/// A connection attempt with its random streams, one per direction. Their names contain the two
/// parties and the number of the attempt between them, so attempts of other parties do not shift
/// them.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Dialler and acceptor.
    parties: [Party; 2],
    number: u64,
    /// By sending end.
    rng: [Rng; 2],
}

#[derive(Debug)]
struct Conn {
    attempt: Attempt,
    pace: LinkPace,
    /// By receiving end.
    ways: [Way; 2],
    /// Whether a write into a half-open connection triggers a reset.
    reset_on_write: bool,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    segments: VecDeque<Segment>,
    last: Instant,
    stalled_until: Instant,
    /// Bytes in flight.
    bytes: usize,
    /// Bytes sent from now on are discarded.
    dead: bool,
    /// The receiver has seen the end of the connection, or has closed it.
    over: bool,
    /// The receiver reads slowly.
    slow: Option<SlowReader>,
}

#[derive(Debug)]
struct Segment {
    at: Instant,
    what: Delivery,
}

impl Network {
    /// A network without connections; the first gets the number after `start`.
    pub fn new(start: u64) -> Network {
        Network {
            conns: BTreeMap::new(),
            next: start,
            tried: BTreeMap::new(),
            arrivals: Vec::new(),
            strained: (0, 0),
        }
    }

    /// A connection number that was not used before.
    pub fn allocate(&mut self) -> ConnId {
        self.next += 1;
        ConnId(self.next)
    }

    /// The connection that was allocated last.
    pub fn newest(&self) -> ConnId {
        ConnId(self.next)
    }

    /// Begins a connection attempt.
    pub fn attempt(&mut self, seeds: Seeds, parties: [Party; 2]) -> Attempt {
        let mut pair = parties;
        pair.sort_unstable();
        let number = self.tried.entry(pair).or_default();
        *number += 1;
        Attempt { parties, number: *number, rng: streams(seeds, parties, *number) }
    }

    /// All connections draw from streams of this tree from now on.
    pub fn draw_anew(&mut self, seeds: Seeds) {
        for Conn { attempt, .. } in self.conns.values_mut() {
            attempt.rng = streams(seeds, attempt.parties, attempt.number);
        }
    }

    /// Opens a connection.
    pub fn open(&mut self, conn: ConnId, attempt: Attempt, pace: LinkPace) {
        let ways = [Way::default(), Way::default()];
        let reset_on_write = false;
        let state = Conn { attempt, pace, ways, reset_on_write };
        let replaced = self.conns.insert(conn, state);
        assert!(replaced.is_none(), "{conn} is dealt once");
    }

    /// Sends bytes; on a dead connection they are discarded.
    pub fn send(&mut self, now: Instant, conn: ConnId, from: End, bytes: Bytes) {
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        if bytes.is_empty() {
            return;
        }
        if state.ways[from.other() as usize].dead {
            if state.reset_on_write && !state.ways[from as usize].over {
                // The other end's kernel answers with a reset.
                let at = Instant(now.0 + state.pace.draw(state.rng(from.other())));
                state.enqueue_reset(at, from, &mut self.arrivals, conn);
            }
            return;
        }
        let pieces = state.pace.cut(bytes, state.rng(from));
        self.strained.0 += u64::from(pieces.len() > 1);
        for piece in pieces {
            let took = state.pace.draw(state.rng(from));
            self.strained.1 += u64::from(took > state.pace.min + 10 * state.pace.mean);
            let at = Instant(now.0 + took);
            state.ways[from.other() as usize].bytes += piece.len();
            state.enqueue(at, from.other(), Delivery::Bytes(piece), &mut self.arrivals, conn);
        }
    }

    /// `from` closes its end, after all bytes it has sent. It receives nothing more.
    pub fn close(&mut self, now: Instant, conn: ConnId, from: End) {
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        let receiving = &mut state.ways[from as usize];
        receiving.over = true;
        receiving.dead = true;
        receiving.clear();
        if !state.ways[from.other() as usize].dead {
            let at = Instant(now.0 + state.pace.draw(state.rng(from)));
            state.enqueue(at, from.other(), Delivery::Closed, &mut self.arrivals, conn);
            state.ways[from.other() as usize].dead = true;
        }
        self.forget_if_over(conn);
    }

    /// The process at `from` has vanished. Its kernel resets the connection, unless it is silent.
    pub fn abandon(&mut self, now: Instant, conn: ConnId, from: End, silent: Option<Silence>) {
        let how = match silent {
            None => Break::Both,
            Some(Silence { late, on_write }) => Break::HalfOpen { first: from, late, on_write },
        };
        self.break_off(now, conn, how);
        if let Some(state) = self.conns.get_mut(&conn) {
            state.ways[from as usize].over = true;
            state.ways[from as usize].clear();
        }
        self.forget_if_over(conn);
    }

    /// The machine of `party` runs again. Its kernel knows none of the connections that it has
    /// abandoned, so it answers writes with a reset if it `reaches` the other party.
    pub fn reboot(&mut self, party: Party, reaches: impl Fn(Party) -> bool) {
        for state in self.conns.values_mut() {
            let own = state.attempt.parties.iter().position(|end| *end == party);
            let Some(own) = own.filter(|own| state.ways[*own].over) else { continue };
            state.reset_on_write |= reaches(state.attempt.parties[1 - own]);
        }
    }

    /// The random stream for what this end sends.
    pub fn rng(&mut self, conn: ConnId, sender: End) -> Option<&mut Rng> {
        self.conns.get_mut(&conn).map(|state| state.rng(sender))
    }

    /// Breaks a connection: an arbitrary prefix of the bytes in flight still arrives. In a
    /// half-open connection without a reset on write these may arrive late, since the peer's kernel
    /// keeps retransmitting lost segments.
    pub fn break_off(&mut self, now: Instant, conn: ConnId, how: Break) {
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        for to in [End::Dialler, End::Acceptor] {
            if state.ways[to as usize].over {
                continue;
            }
            let under_way = state.ways[to as usize].bytes;
            let keep = state.rng(to.other()).upto(under_way);
            state.ways[to as usize].keep(keep);
            state.ways[to as usize].dead = true;
            // Stalled bytes have either arrived or are lost.
            state.ways[to as usize].stalled_until = Instant(0);
            state.ways[to as usize].slow = None;
            let at = match how {
                Break::Both => Instant(now.0 + 1),
                Break::HalfOpen { first, .. } if first == to => Instant(now.0 + 1),
                Break::HalfOpen { late, on_write, .. } => {
                    state.reset_on_write = on_write;
                    let late = late.max(Instant(now.0 + 1));
                    let rng = state.rng(to.other());
                    if keep > 0 && !on_write && rng.chance(1, 2) {
                        let until = rng.range(now.0, late.0);
                        state.ways[to as usize].stalled_until = Instant(until);
                    }
                    late
                }
            };
            state.enqueue_reset(at, to, &mut self.arrivals, conn);
        }
    }

    /// Holds everything that is sent to `to` until then; afterwards it arrives in order.
    pub fn stall(&mut self, conn: ConnId, to: End, until: Instant) {
        if let Some(state) = self.conns.get_mut(&conn) {
            let way = &mut state.ways[to as usize];
            way.stalled_until = way.stalled_until.max(until);
        }
    }

    /// The end reads slowly from now on.
    pub fn read_slowly(&mut self, conn: ConnId, to: End, slow: SlowReader) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.ways[to as usize].slow = Some(slow);
        }
    }

    /// Bytes that the kernel of an end takes before the end reads, if the end reads slowly.
    pub fn slow_room(&self, now: Instant, conn: ConnId, to: End) -> Option<usize> {
        let slow = self.conns.get(&conn)?.ways[to as usize].slow;
        slow.filter(|slow| now < slow.until).map(|slow| slow.part)
    }

    /// What arrives at an end now; the caller then schedules arrivals.
    pub fn arrive(&mut self, now: Instant, conn: ConnId, to: End) -> Delivery {
        let Some(state) = self.conns.get_mut(&conn) else {
            return Delivery::Nothing;
        };
        let way = &mut state.ways[to as usize];
        match way.segments.front() {
            Some(segment) if segment.at <= now => {}
            Some(_) | None => return Delivery::Nothing,
        }
        if way.over {
            return Delivery::Nothing;
        }
        if now < way.stalled_until {
            return Delivery::Later(way.stalled_until);
        }
        let mut segment = way.segments.pop_front().expect("looked at above");
        if let Some(slow) = way.slow.filter(|slow| now < slow.until)
            && let Delivery::Bytes(bytes) = &mut segment.what
        {
            way.stalled_until = way.stalled_until.max(Instant(now.0 + slow.pause));
            if bytes.len() > slow.part {
                let rest =
                    Segment { at: segment.at, what: Delivery::Bytes(bytes.split_off(slow.part)) };
                way.segments.push_front(rest);
                self.arrivals.push(Arrival { at: way.stalled_until, conn, to });
            }
        }
        match &segment.what {
            Delivery::Bytes(bytes) => way.bytes -= bytes.len(),
            Delivery::Closed | Delivery::Reset => {
                way.over = true;
                way.clear();
                self.forget_if_over(conn);
            }
            Delivery::Nothing | Delivery::Later(_) => {}
        }
        segment.what
    }

    /// Arrivals to be scheduled, each returned once.
    pub fn take_arrivals(&mut self) -> std::vec::Drain<'_, Arrival> {
        self.arrivals.drain(..)
    }

    /// Number of split writes, and of segments slower than the minimum plus ten times the mean.
    pub fn strained(&self) -> (u64, u64) {
        self.strained
    }

    /// Bytes in flight to an end.
    pub fn under_way(&self, conn: ConnId, to: End) -> usize {
        self.conns.get(&conn).map_or(0, |state| state.ways[to as usize].bytes)
    }

    /// The parties at the ends of a connection.
    pub fn parties(&self, conn: ConnId) -> Option<[Party; 2]> {
        self.conns.get(&conn).map(|state| state.attempt.parties)
    }

    /// All connections, oldest first, with their parties.
    pub fn list(&self) -> impl Iterator<Item = (ConnId, [Party; 2])> + '_ {
        self.conns.iter().map(|(conn, state)| (*conn, state.attempt.parties))
    }

    /// Open connections: neither end has closed or seen a break.
    pub fn session_kind(&self) -> Vec<ConnId> {
        let stands = |state: &Conn| state.ways.iter().all(|way| !way.dead && !way.over);
        self.conns.iter().filter(|(_, state)| stands(state)).map(|(conn, _)| *conn).collect()
    }

    /// Sets new latencies, ends stalls, and delivers pending resets of half-open connections at
    /// `now`.
    pub fn heal(&mut self, now: Instant, pace: LinkPace) {
        for (conn, state) in &mut self.conns {
            state.pace = pace;
            for to in [End::Dialler, End::Acceptor] {
                let way = &mut state.ways[to as usize];
                way.stalled_until = Instant(0);
                way.slow = None;
                if way.dead && !way.over {
                    for segment in &mut way.segments {
                        segment.at = segment.at.min(now);
                    }
                }
                for _ in 0..way.segments.len() {
                    self.arrivals.push(Arrival { at: now, conn: *conn, to });
                }
            }
        }
    }

    fn forget_if_over(&mut self, conn: ConnId) {
        if self.conns.get(&conn).is_some_and(|state| state.ways.iter().all(|way| way.over)) {
            self.conns.remove(&conn);
        }
    }
}

impl End {
    /// The opposite end.
    pub fn other(self) -> End {
        match self {
            End::Dialler => End::Acceptor,
            End::Acceptor => End::Dialler,
        }
    }
}

impl LinkPace {
    /// A link of an idle local network.
    pub const CALM: LinkPace =
        LinkPace { min: 50_000, mean: 100_000, tail_one_in: 0, cut_one_in: 0 };

    /// Latency of a segment, ns.
    pub fn draw(self, rng: &mut Rng) -> u64 {
        let slow = self.tail_one_in > 0 && rng.chance(1, self.tail_one_in);
        let factor = if slow { 100 } else { 1 };
        self.min + rng.exponential(self.mean) * factor
    }

    /// The pieces of one write: mostly one, sometimes up to four.
    fn cut(self, mut bytes: Bytes, rng: &mut Rng) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(1);
        if self.cut_one_in > 0 && rng.chance(1, self.cut_one_in) {
            for _ in 0..rng.range(1, 3) {
                let piece = bytes.split_to(rng.upto(bytes.len()));
                if !piece.is_empty() {
                    pieces.push(piece);
                }
            }
        }
        if !bytes.is_empty() {
            pieces.push(bytes);
        }
        pieces
    }
}

impl Attempt {
    /// Time until the server receives the attempt, or the dialler its answer, ns.
    pub fn takes(&mut self, pace: LinkPace) -> u64 {
        pace.draw(&mut self.rng[End::Dialler as usize])
    }
}

/// The random streams of a connection, by sending end.
fn streams(seeds: Seeds, [dialler, acceptor]: [Party; 2], number: u64) -> [Rng; 2] {
    [(dialler, acceptor), (acceptor, dialler)]
        .map(|(from, to)| seeds.stream(&format!("net/{from}/{to}"), number))
}

impl Conn {
    fn enqueue(
        &mut self,
        at: Instant,
        to: End,
        what: Delivery,
        arrivals: &mut Vec<Arrival>,
        conn: ConnId,
    ) {
        let way = &mut self.ways[to as usize];
        way.last = way.last.max(at);
        let at = way.last;
        way.segments.push_back(Segment { at, what });
        arrivals.push(Arrival { at, conn, to });
    }

    /// A reset overtakes bytes in flight; those that still arrive are moved up to its time.
    fn enqueue_reset(&mut self, at: Instant, to: End, arrivals: &mut Vec<Arrival>, conn: ConnId) {
        let way = &mut self.ways[to as usize];
        for segment in &mut way.segments {
            segment.at = segment.at.min(at);
            arrivals.push(Arrival { at: segment.at, conn, to });
        }
        way.last = at;
        way.segments.push_back(Segment { at, what: Delivery::Reset });
        arrivals.push(Arrival { at, conn, to });
    }

    /// The random stream for what an end sends.
    fn rng(&mut self, sender: End) -> &mut Rng {
        &mut self.attempt.rng[sender as usize]
    }
}

impl Way {
    fn clear(&mut self) {
        self.segments.clear();
        self.bytes = 0;
    }

    /// Keeps the first `keep` bytes in flight.
    fn keep(&mut self, mut keep: usize) {
        let mut kept = VecDeque::new();
        self.bytes = keep;
        for segment in std::mem::take(&mut self.segments) {
            if let Delivery::Bytes(bytes) = segment.what {
                let length = bytes.len().min(keep);
                keep -= length;
                if length > 0 {
                    let what = Delivery::Bytes(bytes.slice(..length));
                    kept.push_back(Segment { at: segment.at, what });
                }
            }
        }
        self.segments = kept;
    }
}

#[cfg(test)]
mod tests;
