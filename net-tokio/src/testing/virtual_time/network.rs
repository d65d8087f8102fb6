//! The network between the servers of a test, and between them and its clients.
//!
//! Owns the messages under way, and who is cut off from whom. Must not interpret the bytes, nor
//! read a clock.
//!
//! Everything arrives [`LATENCY`] after it was sent, in order. What a partition stops arrives when
//! the partition ends, as TCP would send it again; until then neither end of the connection notices
//! anything. Streams have no bound.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::{Instant, SessionId};

use super::conn::{ACCEPTOR, Conn, DIALLER, Party, Phase, Port, Received};

/// How long a message takes from one machine to another one.
pub(super) const LATENCY: Duration = Duration::from_millis(1);

/// What a server has to know of a message that has arrived.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) server: u64,
    pub(super) conn: u64,
    pub(super) port: Port,
    pub(super) arrival: Arrival,
}

/// What arrives at an end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// Somebody connects to this server, which calls [`Network::answer`].
    Open,
    /// The server has accepted the connection that this end has dialled.
    Opened,
    /// No server accepts it.
    Refused,
    /// The time to connect has passed.
    DialTimeout,
    /// Bytes, or the end of the stream, can be received.
    Readable,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Network {
    last_conn: u64,
    conns: BTreeMap<u64, Conn>,
    /// Messages under way by their arrival; the number keeps their order.
    messages: BTreeMap<(Instant, u64), Message>,
    last_message: u64,
    /// Messages that a partition has stopped, in their order.
    stopped: BTreeMap<u64, Message>,
    /// Clients that reach no server.
    isolated: BTreeSet<u64>,
    /// Servers that reach no other servers than these.
    group: BTreeSet<u64>,
    /// The client of each session.
    sessions: BTreeMap<SessionId, u64>,
    /// No connection is opened any more.
    ended: bool,
}

#[derive(Debug)]
struct Message {
    conn: u64,
    /// The index of the end.
    to: usize,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Open,
    Opened,
    Refused,
    /// A timer rather than a message: no partition stops it.
    DialTimeout,
    Bytes(Bytes),
    Close,
}

impl Network {
    /// An id for [`Network::dial`].
    pub(super) fn next_conn(&mut self) -> u64 {
        self.last_conn += 1;
        self.last_conn
    }

    /// Connects to a server; [`Arrival::DialTimeout`] comes at `limit`, if it is given.
    pub(super) fn dial(
        &mut self,
        conn: u64,
        (from, to): (Party, u64),
        port: Port,
        limit: Option<Instant>,
        now: Instant,
    ) {
        if self.ended {
            return;
        }
        self.conns.insert(conn, Conn::new(port, from, to));
        self.send_at(now.after(LATENCY), conn, ACCEPTOR, Content::Open);
        if let Some(at) = limit {
            self.send_at(at, conn, DIALLER, Content::DialTimeout);
        }
    }

    /// The server accepts the connection, or refuses it.
    pub(super) fn answer(&mut self, id: u64, accepts: bool, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.ends[ACCEPTOR].phase = if accepts { Phase::Open } else { Phase::Closed };
        if !accepts && conn.ends[DIALLER].phase == Phase::Closed {
            self.conns.remove(&id);
            return;
        }
        let content = if accepts { Content::Opened } else { Content::Refused };
        self.send_at(now.after(LATENCY), id, DIALLER, content);
    }

    /// Sends bytes to the other end of an open connection.
    pub(super) fn send(&mut self, id: u64, from: Party, bytes: Bytes, now: Instant) {
        let Some(conn) = self.conns.get(&id) else { return };
        let (_, other) = conn.indices(from);
        self.send_at(now.after(LATENCY), id, other, Content::Bytes(bytes));
    }

    /// The next bytes that have arrived, at most `most`.
    pub(super) fn receive(&mut self, id: u64, at: Party, most: usize) -> Received {
        self.conns.get_mut(&id).map_or(Received::End, |conn| conn.end(at).receive(most))
    }

    /// Is the connection open, or refused? The task of `cx` is woken when something arrives at this
    /// end.
    pub(super) fn poll_open(&mut self, id: u64, at: Party, cx: &Context<'_>) -> Poll<bool> {
        let Some(conn) = self.conns.get_mut(&id) else { return Poll::Ready(false) };
        let end = conn.end(at);
        end.waker = Some(cx.waker().clone());
        match end.phase {
            Phase::Opening => Poll::Pending,
            Phase::Open => Poll::Ready(true),
            Phase::Closed => Poll::Ready(false),
        }
    }

    /// Closes an end: what it has sent arrives, and then the end of the stream.
    pub(super) fn close(&mut self, id: u64, at: Party, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let (end, other) = conn.indices(at);
        conn.ends[end].phase = Phase::Closed;
        conn.ends[end].received.clear();
        if conn.ends[other].phase == Phase::Closed {
            self.conns.remove(&id);
        } else {
            self.send_at(now.after(LATENCY), id, other, Content::Close);
        }
    }

    /// Closes all connections of a server. Those that have not reached it yet will reach the next
    /// process of its machine.
    pub(super) fn close_all(&mut self, server: u64, now: Instant) {
        let its = self.conns.iter().filter(|(_, conn)| conn.is_of(server)).map(|(id, _)| *id);
        for id in its.collect::<Vec<_>>() {
            self.close(id, Party::Server(server), now);
        }
    }

    /// The next message for a server that has arrived by now. Those for clients are delivered here.
    pub(super) fn next_delivery(&mut self, now: Instant) -> Option<Delivery> {
        while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, number), message) = entry.remove_entry();
            if self.is_stopped(&message) {
                self.stopped.insert(number, message);
            } else if let Some(delivery) = self.deliver(message, now) {
                return Some(delivery);
            }
        }
        None
    }

    /// When the next message arrives.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.messages.first_key_value().map(|((at, _), _)| *at)
    }

    /// A server has accepted this session on a connection.
    pub(super) fn note_session(&mut self, id: u64, session: SessionId) {
        if let Some(Party::Client(client)) = self.conns.get(&id).map(|c| c.ends[DIALLER].party) {
            self.sessions.insert(session, client);
        }
    }

    /// The client with this session, if a server has accepted the session.
    pub(super) fn client_of(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session).copied()
    }

    /// Cuts a client off from all servers, or no longer.
    pub(super) fn isolate(&mut self, client: u64, is_isolated: bool) {
        if is_isolated {
            self.isolated.insert(client);
        } else {
            self.isolated.remove(&client);
        }
        self.send_stopped();
    }

    /// Cuts these servers off from the others. An empty group ends the partition.
    pub(super) fn partition(&mut self, group: BTreeSet<u64>) {
        self.group = group;
        self.send_stopped();
    }

    /// Ends all connections at once.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.messages.clear();
        self.stopped.clear();
        for conn in std::mem::take(&mut self.conns).into_values() {
            conn.ends.into_iter().filter_map(|end| end.waker).for_each(Waker::wake);
        }
    }

    fn send_at(&mut self, at: Instant, conn: u64, to: usize, content: Content) {
        self.last_message += 1;
        self.messages.insert((at, self.last_message), Message { conn, to, content });
    }

    /// Lets stopped messages arrive at once, before all others. A partition that goes on stops them
    /// again.
    fn send_stopped(&mut self) {
        for (number, message) in std::mem::take(&mut self.stopped) {
            self.messages.insert((Instant::default(), number), message);
        }
    }

    fn is_stopped(&self, message: &Message) -> bool {
        let Some(conn) = self.conns.get(&message.conn) else { return false };
        if matches!(message.content, Content::DialTimeout) {
            return false;
        }
        match [conn.ends[DIALLER].party, conn.ends[ACCEPTOR].party] {
            [Party::Server(one), Party::Server(other)] => {
                self.group.contains(&one) != self.group.contains(&other)
            }
            [Party::Client(client), _] | [_, Party::Client(client)] => {
                self.isolated.contains(&client)
            }
        }
    }

    /// Delivers a message; returns what a server has to know of it.
    fn deliver(&mut self, message: Message, now: Instant) -> Option<Delivery> {
        let Message { conn: id, to, content } = message;
        let conn = self.conns.get_mut(&id)?;
        let (port, end) = (conn.port, &mut conn.ends[to]);
        if end.phase == Phase::Closed {
            return None;
        }
        let (party, waker) = (end.party, end.waker.take());
        let arrival = match content {
            Content::Open => Arrival::Open,
            Content::Opened => {
                end.phase = Phase::Open;
                Arrival::Opened
            }
            Content::Refused => {
                self.conns.remove(&id);
                Arrival::Refused
            }
            Content::DialTimeout if end.phase == Phase::Opening => {
                self.close(id, party, now);
                Arrival::DialTimeout
            }
            Content::DialTimeout => return None,
            Content::Bytes(bytes) => {
                end.received.push_back(bytes);
                Arrival::Readable
            }
            Content::Close => {
                end.is_last = true;
                Arrival::Readable
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        match party {
            Party::Server(server) => Some(Delivery { server, conn: id, port, arrival }),
            Party::Client(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
