//! Connections between clients and servers: a FIFO stream of bytes in each direction that can stall and break.
//!
//! Owns what is under way. Must not read it: frames are the business of the ends.
//!
//! Invariants, as TCP has them: within a direction bytes are neither lost nor doubled nor reordered while the
//! connection stands; when it breaks, an unknown suffix of what was sent was never seen. Each end learns of the end
//! once.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zabkeeper_core::{ConnId, Instant, ServerId};

use crate::observe::ClientId;
use crate::seed::Dice;

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// The client's.
    Client = 0,
    /// The server's.
    Server = 1,
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
    arrivals: Vec<Arrival>,
    /// Sendings that were cut, and segments that took long.
    strained: (u64, u64),
}

#[derive(Debug)]
struct Conn {
    client: ClientId,
    server: ServerId,
    pace: LinkPace,
    dice: Dice,
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
        Network { conns: BTreeMap::new(), next: start, arrivals: Vec::new(), strained: (0, 0) }
    }

    /// A number that no connection has had.
    pub fn deal(&mut self) -> ConnId {
        self.next += 1;
        ConnId(self.next)
    }

    /// A connection stands. `dice` is its own stream.
    pub fn open(
        &mut self,
        conn: ConnId,
        client: ClientId,
        server: ServerId,
        pace: LinkPace,
        dice: Dice,
    ) {
        let ways = [Way::default(), Way::default()];
        let reset_on_write = false;
        let state = Conn { client, server, pace, dice, ways, reset_on_write };
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
                let at = Instant(now.0 + state.pace.draw(&mut state.dice));
                state.enqueue_reset(at, from, &mut self.arrivals, conn);
            }
            return;
        }
        let pieces = state.cut(bytes);
        self.strained.0 += u64::from(pieces.len() > 1);
        for piece in pieces {
            let took = state.pace.draw(&mut state.dice);
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
            let at = Instant(now.0 + state.pace.draw(&mut state.dice));
            state.enqueue(at, from.other(), Delivery::Closed, &mut self.arrivals, conn);
            state.ways[from.other() as usize].dead = true;
        }
        self.forget_if_over(conn);
    }

    /// The process at `from` is gone without a word of its own. Its kernel resets the connection (`silent`: not even
    /// that; the other end learns at `late`, or a while after it next writes).
    pub fn abandon(&mut self, now: Instant, conn: ConnId, from: End, silent: Option<Instant>) {
        let how = match silent {
            None => Break::Both,
            Some(late) => Break::HalfOpen { first: from, late, on_write: true },
        };
        self.break_off(now, conn, how);
        if let Some(state) = self.conns.get_mut(&conn) {
            state.ways[from as usize].over = true;
            state.ways[from as usize].clear();
        }
        self.forget_if_over(conn);
    }

    /// Breaks a connection at an arbitrary byte: of what is under way, a part of arbitrary length still arrives.
    pub fn break_off(&mut self, now: Instant, conn: ConnId, how: Break) {
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        for to in [End::Client, End::Server] {
            if state.ways[to as usize].over {
                continue;
            }
            let keep = state.dice.upto(state.ways[to as usize].bytes);
            state.ways[to as usize].keep(keep);
            state.ways[to as usize].dead = true;
            // What was stalled has either got through or is lost.
            state.ways[to as usize].stalled_until = Instant(0);
            let at = match how {
                Break::Both => Instant(now.0 + 1),
                Break::HalfOpen { first, .. } if first == to => Instant(now.0 + 1),
                Break::HalfOpen { late, on_write, .. } => {
                    state.reset_on_write = on_write;
                    late.max(Instant(now.0 + 1))
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
    pub fn ends(&self, conn: ConnId) -> Option<(ClientId, ServerId)> {
        self.conns.get(&conn).map(|state| (state.client, state.server))
    }

    /// All connections, oldest first, with their ends.
    pub fn list(&self) -> impl Iterator<Item = (ConnId, ClientId, ServerId)> + '_ {
        self.conns.iter().map(|(conn, state)| (*conn, state.client, state.server))
    }

    /// Connections that stand: neither end has left or learnt of a break.
    pub fn standing(&self) -> Vec<ConnId> {
        let stands = |state: &Conn| state.ways.iter().all(|way| !way.dead && !way.over);
        self.conns.iter().filter(|(_, state)| stands(state)).map(|(conn, _)| *conn).collect()
    }

    /// Makes links behave from now on; stalls end, and half-open connections are learnt of at `now`.
    pub fn heal(&mut self, now: Instant, pace: LinkPace) {
        for (conn, state) in &mut self.conns {
            state.pace = pace;
            for to in [End::Client, End::Server] {
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
            End::Client => End::Server,
            End::Server => End::Client,
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

    /// Mostly whole, sometimes in up to four pieces.
    fn cut(&mut self, mut bytes: Bytes) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(1);
        if self.pace.cut_one_in > 0 && self.dice.chance(1, self.pace.cut_one_in) {
            for _ in 0..self.dice.range(1, 3) {
                let piece = bytes.split_to(self.dice.upto(bytes.len()));
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
mod tests {
    use super::*;
    use crate::seed::Seeds;

    const CONN: ConnId = ConnId(1);
    const PACE: LinkPace = LinkPace { min: 10, mean: 100, tail_one_in: 50, cut_one_in: 2 };

    struct Rig {
        net: Network,
        arrivals: Vec<Arrival>,
    }

    fn rig(seed: u64) -> Rig {
        let mut net = Network::new(0);
        let conn = net.deal();
        let dice = Seeds::new(seed).stream("net", conn.0);
        net.open(conn, ClientId(0), ServerId(1), PACE, dice);
        Rig { net, arrivals: Vec::new() }
    }

    impl Rig {
        fn send(&mut self, now: u64, from: End, text: &'static str) {
            self.net.send(Instant(now), CONN, from, Bytes::from_static(text.as_bytes()));
        }

        /// What reaches `to` up to `until`, and how it ended.
        fn received(&mut self, to: End, until: u64) -> (String, Option<Delivery>) {
            let (mut text, mut end) = (String::new(), None);
            loop {
                self.arrivals.extend(self.net.take_arrivals());
                self.arrivals.sort_by_key(|arrival| arrival.at);
                let due = |a: &Arrival| a.to == to && a.at.0 <= until;
                let Some(next) = self.arrivals.iter().position(due) else {
                    return (text, end);
                };
                let arrival = self.arrivals.remove(next);
                match self.net.arrive(arrival.at, CONN, to) {
                    Delivery::Nothing => {}
                    Delivery::Later(at) => self.arrivals.push(Arrival { at, ..arrival }),
                    Delivery::Bytes(bytes) => {
                        text.push_str(std::str::from_utf8(&bytes).expect("ASCII"));
                    }
                    Delivery::Closed => end = Some(Delivery::Closed),
                    Delivery::Reset => end = Some(Delivery::Reset),
                }
            }
        }
    }

    #[test]
    fn bytes_arrive_in_order_however_they_are_cut() {
        for seed in 0..50 {
            let mut rig = rig(seed);
            for text in ["alpha", "beta", "gamma"] {
                rig.send(0, End::Client, text);
            }
            assert_eq!(rig.received(End::Server, u64::MAX).0, "alphabetagamma");
        }
    }

    #[test]
    fn a_close_comes_after_the_bytes_and_the_closer_hears_nothing() {
        let mut rig = rig(1);
        rig.send(0, End::Server, "last words");
        rig.send(0, End::Client, "unheard");
        rig.net.close(Instant(1), CONN, End::Server);
        assert_eq!(rig.received(End::Server, u64::MAX), (String::new(), None));
        let heard = rig.received(End::Client, u64::MAX);
        assert_eq!(heard, ("last words".into(), Some(Delivery::Closed)));
        assert_eq!(rig.net.list().count(), 0);
    }

    #[test]
    fn a_reset_cuts_at_any_byte() {
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut rig = rig(seed);
            rig.send(0, End::Client, "abcdef");
            rig.net.break_off(Instant(1), CONN, Break::Both);
            let (text, end) = rig.received(End::Server, u64::MAX);
            assert!("abcdef".starts_with(&text));
            assert_eq!(end, Some(Delivery::Reset));
            assert_eq!(rig.received(End::Client, u64::MAX).1, Some(Delivery::Reset));
            lengths.insert(text.len());
        }
        assert_eq!(lengths.len(), 7);
    }

    #[test]
    fn a_half_open_connection_swallows_writes_until_it_is_learnt_of() {
        let mut rig = rig(2);
        let late = Instant(1_000_000);
        let how = Break::HalfOpen { first: End::Server, late, on_write: false };
        rig.net.break_off(Instant(1), CONN, how);
        rig.send(5, End::Client, "swallowed");
        assert_eq!(rig.received(End::Server, 100), (String::new(), Some(Delivery::Reset)));
        assert_eq!(rig.received(End::Client, 999_999), (String::new(), None));
        assert_eq!(rig.received(End::Client, 1_000_000).1, Some(Delivery::Reset));
    }

    #[test]
    fn a_write_into_a_dead_connection_may_be_answered_with_a_reset() {
        let mut rig = rig(3);
        rig.net.abandon(Instant(1), CONN, End::Server, Some(Instant(1 << 40)));
        rig.send(5, End::Client, "hello?");
        // The reset must not wait behind the late notice.
        let (_, end) = rig.received(End::Client, 1 << 39);
        assert_eq!(end, Some(Delivery::Reset));
    }

    #[test]
    fn a_stall_holds_everything_and_then_delivers_in_order() {
        let mut rig = rig(4);
        rig.net.stall(CONN, End::Server, Instant(1_000_000));
        rig.send(0, End::Client, "one");
        rig.send(10, End::Client, "two");
        assert_eq!(rig.received(End::Server, 999_999).0, "");
        assert_eq!(rig.received(End::Server, 1_000_000).0, "onetwo");
    }

    #[test]
    fn healing_ends_stalls_and_tells_of_breaks() {
        let mut rig = rig(5);
        rig.net.stall(CONN, End::Server, Instant(1 << 40));
        rig.send(0, End::Client, "stuck");
        assert_eq!(rig.received(End::Server, 10_000).0, "");
        rig.net.heal(Instant(20_000), LinkPace::CALM);
        assert_eq!(rig.received(End::Server, 20_000).0, "stuck");
        let how = Break::HalfOpen { first: End::Server, late: Instant(1 << 41), on_write: false };
        rig.net.break_off(Instant(30_000), CONN, how);
        rig.net.heal(Instant(40_000), LinkPace::CALM);
        assert_eq!(rig.received(End::Client, 40_000).1, Some(Delivery::Reset));
    }
}
