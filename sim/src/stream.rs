//! Connections of clients and servers with servers: a FIFO stream of bytes in each direction that can stall and break.
//!
//! Owns what is under way. Must not read it: frames are the business of the ends.
//!
//! Invariants, as TCP has them: within a direction bytes are neither lost nor doubled nor reordered while the
//! connection stands; when it breaks, an unknown suffix of what was sent was never seen. Each end learns of the end
//! once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use zabkeeper_core::{ConnId, Instant, ServerId};

use crate::observe::ClientId;
use crate::seed::{Dice, Seeds};

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// Of whoever dialled.
    Dialler = 0,
    /// Of the server that accepted.
    Acceptor = 1,
}

/// Who is at an end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// A client, or an intruder.
    Client(ClientId),
    /// A server.
    Server(ServerId),
    /// Somebody who connects where only servers should.
    Stranger,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Client(client) => write!(f, "client {}", client.0),
            Party::Server(server) => write!(f, "s{server}"),
            Party::Stranger => f.write_str("somebody"),
        }
    }
}

/// An end is gone, and not even its kernel says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// When the other end learns at the latest.
    pub late: Instant,
    /// Is a write into the dead connection answered with a reset?
    pub on_write: bool,
}

/// How links behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPace {
    /// Least time that bytes take, ns.
    pub min: u64,
    /// Mean of the time on top, ns.
    pub mean: u64,
    /// One segment in so many takes a hundred times as long; zero: none.
    pub tail_one_in: u64,
    /// One sending in so many is cut into pieces that arrive apart; zero: none.
    pub cut_one_in: u64,
}

/// What a [`Network`] wants to be called back for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// On which connection.
    pub conn: ConnId,
    /// At which end.
    pub to: End,
}

/// What arrives at an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// Nothing any more: it was overtaken by a break.
    Nothing,
    /// The stream is stalled: ask again then.
    Later(Instant),
    /// Bytes.
    Bytes(Bytes),
    /// The other end has closed; all it had sent has arrived.
    Closed,
    /// The connection is broken; what was under way is lost.
    Reset,
}

/// How a connection breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// Both ends see a reset at once.
    Both,
    /// `first` sees a reset at once. The other end learns at `late`, or, where `on_write`, some time after it next
    /// writes.
    HalfOpen {
        /// Who learns at once.
        first: End,
        /// When the other end learns at the latest.
        late: Instant,
        /// Is a write into the dead connection answered with a reset?
        on_write: bool,
    },
}

/// All connections.
#[derive(Debug)]
pub struct Network {
    conns: BTreeMap<ConnId, Conn>,
    next: u64,
    /// Connections that were tried between two parties, the lesser one first.
    tried: BTreeMap<[Party; 2], u64>,
    arrivals: Vec<Arrival>,
    /// Sendings that were cut, and segments that took long.
    strained: (u64, u64),
}

/// A connection that is tried, and what it draws from: a stream for each direction, named by the two parties and the
/// number of the attempt between them. So whoever else connects meanwhile shifts none of it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Who dials, and whom.
    parties: [Party; 2],
    number: u64,
    /// By sending end.
    dice: [Dice; 2],
}

#[derive(Debug)]
struct Conn {
    attempt: Attempt,
    pace: LinkPace,
    /// By receiving end.
    ways: [Way; 2],
    /// Is a write into a half-open connection answered with a reset?
    reset_on_write: bool,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    segments: VecDeque<Segment>,
    last: Instant,
    stalled_until: Instant,
    /// Bytes under way.
    bytes: usize,
    /// Nothing that is sent arrives any more.
    dead: bool,
    /// The receiver has been told that the connection has ended, or has left it.
    over: bool,
}

#[derive(Debug)]
struct Segment {
    at: Instant,
    what: Delivery,
}

impl Network {
    /// No connections; the first gets the number after `start`.
    pub fn new(start: u64) -> Network {
        Network {
            conns: BTreeMap::new(),
            next: start,
            tried: BTreeMap::new(),
            arrivals: Vec::new(),
            strained: (0, 0),
        }
    }

    /// A number that no connection has had.
    pub fn deal(&mut self) -> ConnId {
        self.next += 1;
        ConnId(self.next)
    }

    /// Somebody dials a server.
    pub fn attempt(&mut self, seeds: Seeds, parties: [Party; 2]) -> Attempt {
        let mut pair = parties;
        pair.sort_unstable();
        let number = self.tried.entry(pair).or_default();
        *number += 1;
        Attempt { parties, number: *number, dice: streams(seeds, parties, *number) }
    }

    /// From now on every connection has streams of this tree.
    pub fn draw_anew(&mut self, seeds: Seeds) {
        for Conn { attempt, .. } in self.conns.values_mut() {
            attempt.dice = streams(seeds, attempt.parties, attempt.number);
        }
    }

    /// A connection stands between who dialled and who accepted.
    pub fn open(&mut self, conn: ConnId, attempt: Attempt, pace: LinkPace) {
        let ways = [Way::default(), Way::default()];
        let reset_on_write = false;
        let state = Conn { attempt, pace, ways, reset_on_write };
        let replaced = self.conns.insert(conn, state);
        assert!(replaced.is_none(), "{conn} is dealt once");
    }

    /// Puts bytes on the connection; into one that is gone they vanish.
    pub fn send(&mut self, now: Instant, conn: ConnId, from: End, bytes: Bytes) {
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        if bytes.is_empty() {
            return;
        }
        if state.ways[from.other() as usize].dead {
            if state.reset_on_write && !state.ways[from as usize].over {
                // The other end's kernel says so.
                let at = Instant(now.0 + state.pace.draw(state.dice(from.other())));
                state.enqueue_reset(at, from, &mut self.arrivals, conn);
            }
            return;
        }
        let pieces = state.pace.cut(bytes, state.dice(from));
        self.strained.0 += u64::from(pieces.len() > 1);
        for piece in pieces {
            let took = state.pace.draw(state.dice(from));
            self.strained.1 += u64::from(took > state.pace.min + 10 * state.pace.mean);
            let at = Instant(now.0 + took);
            state.ways[from.other() as usize].bytes += piece.len();
            state.enqueue(at, from.other(), Delivery::Bytes(piece), &mut self.arrivals, conn);
        }
    }

    /// `from` closes, after all it has sent. It hears nothing any more.
    pub fn close(&mut self, now: Instant, conn: ConnId, from: End) {
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        let receiving = &mut state.ways[from as usize];
        receiving.over = true;
        receiving.dead = true;
        receiving.clear();
        if !state.ways[from.other() as usize].dead {
            let at = Instant(now.0 + state.pace.draw(state.dice(from)));
            state.enqueue(at, from.other(), Delivery::Closed, &mut self.arrivals, conn);
            state.ways[from.other() as usize].dead = true;
        }
        self.forget_if_over(conn);
    }

    /// The process at `from` is gone without a word of its own. Its kernel resets the connection, unless it is silent.
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

    /// The dice of what this end sends.
    pub fn dice(&mut self, conn: ConnId, sender: End) -> Option<&mut Dice> {
        self.conns.get_mut(&conn).map(|state| state.dice(sender))
    }

    /// Breaks a connection at an arbitrary byte: of what is under way, a part of arbitrary length still arrives. Where one end
    /// does not learn of it, that may take as long: who has closed a connection goes on to repeat what was lost.
    pub fn break_off(&mut self, now: Instant, conn: ConnId, how: Break) {
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        for to in [End::Dialler, End::Acceptor] {
            if state.ways[to as usize].over {
                continue;
            }
            let under_way = state.ways[to as usize].bytes;
            let keep = state.dice(to.other()).upto(under_way);
            state.ways[to as usize].keep(keep);
            state.ways[to as usize].dead = true;
            // What was stalled has either got through or is lost.
            state.ways[to as usize].stalled_until = Instant(0);
            let at = match how {
                Break::Both => Instant(now.0 + 1),
                Break::HalfOpen { first, .. } if first == to => Instant(now.0 + 1),
                Break::HalfOpen { late, on_write, .. } => {
                    state.reset_on_write = on_write;
                    let late = late.max(Instant(now.0 + 1));
                    let dice = state.dice(to.other());
                    if keep > 0 && !on_write && dice.chance(1, 2) {
                        let until = dice.range(now.0, late.0);
                        state.ways[to as usize].stalled_until = Instant(until);
                    }
                    late
                }
            };
            state.enqueue_reset(at, to, &mut self.arrivals, conn);
        }
    }

    /// Nothing arrives at `to` until then; afterwards everything does, in order.
    pub fn stall(&mut self, conn: ConnId, to: End, until: Instant) {
        if let Some(state) = self.conns.get_mut(&conn) {
            let way = &mut state.ways[to as usize];
            way.stalled_until = way.stalled_until.max(until);
        }
    }

    /// What arrives at an end now.
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
        let segment = way.segments.pop_front().expect("looked at above");
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

    /// Arrivals to be scheduled, each once.
    pub fn take_arrivals(&mut self) -> std::vec::Drain<'_, Arrival> {
        self.arrivals.drain(..)
    }

    /// Sendings that were cut into pieces, and segments that took more than ten times the usual.
    pub fn strained(&self) -> (u64, u64) {
        self.strained
    }

    /// Bytes under way to an end.
    pub fn under_way(&self, conn: ConnId, to: End) -> usize {
        self.conns.get(&conn).map_or(0, |state| state.ways[to as usize].bytes)
    }

    /// Who is at the ends of a connection.
    pub fn parties(&self, conn: ConnId) -> Option<[Party; 2]> {
        self.conns.get(&conn).map(|state| state.attempt.parties)
    }

    /// All connections, oldest first, with who is at their ends.
    pub fn list(&self) -> impl Iterator<Item = (ConnId, [Party; 2])> + '_ {
        self.conns.iter().map(|(conn, state)| (*conn, state.attempt.parties))
    }

    /// Connections that stand: neither end has left or learnt of a break.
    pub fn session_kind(&self) -> Vec<ConnId> {
        let stands = |state: &Conn| state.ways.iter().all(|way| !way.dead && !way.over);
        self.conns.iter().filter(|(_, state)| stands(state)).map(|(conn, _)| *conn).collect()
    }

    /// Makes links behave from now on; stalls end, and half-open connections are learnt of at `now`.
    pub fn heal(&mut self, now: Instant, pace: LinkPace) {
        for (conn, state) in &mut self.conns {
            state.pace = pace;
            for to in [End::Dialler, End::Acceptor] {
                let way = &mut state.ways[to as usize];
                way.stalled_until = Instant(0);
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
    /// The end across.
    pub fn other(self) -> End {
        match self {
            End::Dialler => End::Acceptor,
            End::Acceptor => End::Dialler,
        }
    }
}

impl LinkPace {
    /// A link of a quiet local network.
    pub const CALM: LinkPace =
        LinkPace { min: 50_000, mean: 100_000, tail_one_in: 0, cut_one_in: 0 };

    /// How long a segment takes, ns.
    pub fn draw(self, dice: &mut Dice) -> u64 {
        let slow = self.tail_one_in > 0 && dice.chance(1, self.tail_one_in);
        let factor = if slow { 100 } else { 1 };
        self.min + dice.exponential(self.mean) * factor
    }

    /// What is sent at once, mostly whole, sometimes in up to four pieces.
    fn cut(self, mut bytes: Bytes, dice: &mut Dice) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(1);
        if self.cut_one_in > 0 && dice.chance(1, self.cut_one_in) {
            for _ in 0..dice.range(1, 3) {
                let piece = bytes.split_to(dice.upto(bytes.len()));
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
    /// How long it takes until the server has heard of it, or whoever dials of the answer, ns.
    pub fn takes(&mut self, pace: LinkPace) -> u64 {
        pace.draw(&mut self.dice[End::Dialler as usize])
    }
}

/// The streams of a connection between these, by sending end.
fn streams(seeds: Seeds, [dialler, acceptor]: [Party; 2], number: u64) -> [Dice; 2] {
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

    /// A reset comes when it comes, not behind what is under way; but behind the bytes that still arrive.
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

    /// What an end's sendings draw from.
    fn dice(&mut self, sender: End) -> &mut Dice {
        &mut self.attempt.dice[sender as usize]
    }
}

impl Way {
    fn clear(&mut self) {
        self.segments.clear();
        self.bytes = 0;
    }

    /// Keeps the first `keep` bytes that are under way.
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
