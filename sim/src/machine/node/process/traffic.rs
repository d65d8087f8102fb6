//! Counts of the traffic on the sockets of clients, for the comparison with a server's answers.
//!
//! Owns the counts, made from the bytes that the driver reads, from the inputs of the core and from
//! its commands. A count has two bounds, because only the driver knows whether it has read a frame.
//! Must not ask the driver for its counters.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use zabkeeper_core::io::{ClientCommand, ClientEvent};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::wire::{ConnectRequest, ConnectResponse, FourLetterCommand};
use zabkeeper_core::{ConnId, Instant, SessionId, WallMs};

use crate::check::answers::{Between, ConnFacts, Counters};
use crate::clients::client::whole_frame;

/// The traffic of one server since its process began.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    conns: BTreeMap<ConnId, Conn>,
    received: Count,
    sent: Count,
    bytes: Count,
    handshakes: Count,
    latency: Longest,
    proposals: Vec<usize>,
    resets: u64,
}

/// A growing number, with its lower and upper bound, and both at the last reset.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    least: u64,
    most: u64,
    base: [u64; 2],
}

/// The longest of some times, with its lower and upper bound.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    least: Duration,
    most: Duration,
}

/// The first message of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opening {
    Nothing,
    Handshake,
    /// No request can follow, or the message is invalid.
    Other,
}

/// A connection of a client.
#[derive(Debug)]
struct Conn {
    peer: SocketAddr,
    since: WallMs,
    buffer: BytesMut,
    opening: Opening,
    received: Count,
    sent: Count,
    /// The unanswered handshake: when it arrived, when the core received it, and whether it asks
    /// for a new session.
    handshake: Option<(Instant, Option<Instant>, bool)>,
    /// The same times for unanswered requests, oldest first.
    requests: VecDeque<(Instant, Option<Instant>)>,
    /// How many of `requests` the core has received.
    under_way: usize,
    processed: u64,
    served: Option<(SessionId, i32)>,
    latency: Longest,
    last_xid: Option<i32>,
    last_zxid: Option<i64>,
}

impl Count {
    fn add(&mut self, least: u64, most: u64) {
        self.least += least;
        self.most += most;
    }

    fn reset(&mut self) {
        self.base = [self.least, self.most];
    }

    fn between(self) -> Between {
        let [least, most] = self.base;
        Between(self.least.saturating_sub(most), self.most - least)
    }
}

impl Longest {
    fn add(&mut self, (arrived, got): (Instant, Option<Instant>), now: Instant) {
        self.least = self.least.max(got.map_or(Duration::ZERO, |got| now.since(got)));
        self.most = self.most.max(now.since(arrived));
    }

    fn between(self) -> Between {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Between(ms(self.least), ms(self.most))
    }
}

impl Traffic {
    pub(super) fn accepted(&mut self, id: ConnId, peer: SocketAddr, since: WallMs) {
        let conn = Conn {
            peer,
            since,
            buffer: BytesMut::new(),
            opening: Opening::Nothing,
            received: Count::default(),
            sent: Count::default(),
            handshake: None,
            requests: VecDeque::new(),
            under_way: 0,
            processed: 0,
            served: None,
            latency: Longest::default(),
            last_xid: None,
            last_zxid: None,
        };
        self.conns.insert(id, conn);
    }

    pub(super) fn closed(&mut self, id: ConnId) {
        self.conns.remove(&id);
    }

    /// Reads bytes just before the driver does. Returns the four-letter command in them, if there
    /// is one.
    pub(super) fn read(
        &mut self,
        id: ConnId,
        bytes: &[u8],
        now: Instant,
    ) -> Option<FourLetterCommand> {
        let conn = self.conns.get_mut(&id)?;
        self.bytes.add(bytes.len() as u64, bytes.len() as u64);
        conn.buffer.extend_from_slice(bytes);
        if conn.opening == Opening::Nothing
            && let Some(command) = conn.buffer.first_chunk().and_then(FourLetterCommand::recognise)
        {
            conn.opening = Opening::Other;
            conn.received.add(1, 1);
            self.received.add(1, 1);
            return Some(command);
        }
        while conn.opening != Opening::Other
            && let Some(frame) = whole_frame(&mut conn.buffer)
        {
            if conn.opening == Opening::Handshake {
                conn.received.add(0, 1);
                self.received.add(0, 1);
                conn.requests.push_back((now, None));
                continue;
            }
            conn.opening = Opening::Other;
            if let Ok(request) = ConnectRequest::decode(frame) {
                conn.received.add(1, 1);
                self.received.add(1, 1);
                conn.opening = Opening::Handshake;
                conn.handshake = Some((now, None, request.session == SessionId(0)));
                self.handshakes.add(0, 1);
            }
        }
        None
    }

    /// Notes an input of the core.
    pub(super) fn stepped(&mut self, id: ConnId, event: &ClientEvent, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match event {
            ClientEvent::Opened(..) => {
                if let Some((_, got, _)) = &mut conn.handshake {
                    *got = Some(now);
                }
                self.handshakes.add(1, 0);
            }
            ClientEvent::Request(_) => {
                if let Some((_, got)) = conn.requests.get_mut(conn.under_way) {
                    *got = Some(now);
                }
                conn.under_way += 1;
                conn.processed += 1;
                conn.received.add(1, 0);
                self.received.add(1, 0);
            }
            ClientEvent::Heartbeat | ClientEvent::Closed => {}
        }
    }

    /// Notes commands of the core just before the driver takes them; `is_open` tests whether a
    /// connection is not closing.
    pub(super) fn commanded(
        &mut self,
        commands: &[(ConnId, ClientCommand)],
        is_open: impl Fn(ConnId) -> bool,
        now: Instant,
    ) {
        let mut closing: Vec<ConnId> = Vec::new();
        for (id, command) in commands {
            let Some(conn) = self.conns.get_mut(id) else { continue };
            if closing.contains(id) || !is_open(*id) {
                continue;
            }
            let latency = match command {
                ClientCommand::Close => {
                    closing.push(*id);
                    continue;
                }
                ClientCommand::Complaint(_) => continue,
                ClientCommand::Event(_) => None,
                ClientCommand::Connected(response) => conn.connected(response),
                ClientCommand::Reply(reply) => {
                    if reply.xid >= 0 {
                        conn.last_xid = Some(reply.xid);
                    }
                    conn.last_zxid = Some(reply.zxid);
                    conn.under_way = conn.under_way.saturating_sub(1);
                    conn.requests.pop_front()
                }
            };
            conn.sent.add(1, 1);
            self.sent.add(1, 1);
            if let Some(times) = latency {
                conn.latency.add(times, now);
                self.latency.add(times, now);
            }
        }
    }

    /// Notes a leader's proposals, which are its appends.
    pub(super) fn proposed(&mut self, commands: &[DiskCommand]) {
        for command in commands {
            if let DiskCommand::Append { entry, .. } = command {
                self.proposals.push(entry.bytes.len());
            }
        }
    }

    /// Notes that `count` answers to operators were made in a turn, and whether `srst` or `crst` is
    /// among them.
    pub(super) fn answered(&mut self, count: u64, [srst, crst]: [bool; 2]) {
        if srst {
            for counter in
                [&mut self.received, &mut self.sent, &mut self.bytes, &mut self.handshakes]
            {
                counter.reset();
            }
            self.latency = Longest::default();
            self.proposals.clear();
            self.resets += 1;
        }
        if crst {
            for conn in self.conns.values_mut() {
                conn.received.reset();
                conn.sent.reset();
                conn.latency = Longest::default();
                (conn.last_xid, conn.last_zxid) = (None, None);
            }
        }
        // The order of the other answers and the reset is unknown; the reset precedes its own
        // answer.
        self.sent.add(if srst { 1 } else { count }, count);
    }

    /// The counters at the end of a turn with this many answers; `is_open` tests whether a
    /// connection is not closing.
    pub(super) fn counters(
        &self,
        answers: u64,
        mixed: bool,
        is_open: impl Fn(ConnId) -> bool,
    ) -> Counters {
        let open = self.conns.iter().filter(|(id, _)| is_open(**id));
        let outstanding = open.map(|(_, conn)| conn.unanswered());
        let sizes = match self.proposals.last() {
            None => [-1; 3],
            Some(last) => {
                let least = self.proposals.iter().min().expect("there is one");
                let most = self.proposals.iter().max().expect("there is one");
                [last, least, most].map(|size| i64::try_from(*size).unwrap_or(i64::MAX))
            }
        };
        Counters {
            resets: self.resets,
            mixed,
            received: self.received.between(),
            sent: self.sent.between().and(0, answers),
            bytes: self.bytes.between(),
            handshakes: self.handshakes.between(),
            outstanding: outstanding.fold(Between(0, 0), |all, one| all.and(one.0, one.1)),
            latency_max_ms: self.latency.between(),
            proposals: (self.proposals.len() as u64, sizes),
        }
    }

    /// All connections; `is_open` tests whether a connection is not closing.
    pub(super) fn conns(&self, is_open: impl Fn(ConnId) -> bool) -> Vec<ConnFacts> {
        let facts = |(id, conn): (&ConnId, &Conn)| ConnFacts {
            conn: *id,
            peer: conn.peer,
            since: conn.since,
            served: conn.served,
            received: conn.received.between(),
            sent: conn.sent.between(),
            unanswered: if is_open(*id) { conn.unanswered() } else { Between(0, 0) },
            latency_max_ms: conn.latency.between(),
            last: (conn.last_xid, conn.last_zxid),
            processed: conn.processed,
        };
        self.conns.iter().map(facts).collect()
    }
}

impl Conn {
    /// Notes the answer to the handshake. Returns its times if it asked for a new session.
    fn connected(&mut self, response: &ConnectResponse) -> Option<(Instant, Option<Instant>)> {
        if response.session == SessionId(0) {
            self.served = None;
            return None;
        }
        self.served = Some((response.session, response.timeout_ms));
        let (arrived, got, new) = self.handshake.take()?;
        if !new {
            return None;
        }
        self.last_xid = Some(0);
        Some((arrived, got))
    }

    fn unanswered(&self) -> Between {
        Between(self.under_way as u64, self.requests.len() as u64)
    }
}
