//! One connection with another server: its greeting, received bytes, and queued output.
//!
//! Owns the state of the connection. Must not look at other connections: `peers` does.

use core::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;

use super::super::unfinished::Unfinished;
use super::admission::TokenBucket;
use super::close::PeerCloseReason;
use crate::ids::{Instant, LinkId, ServerId};
use crate::peer::frame::{BadFrame, Reader, Writer};
use crate::peer::greeting::{Accepting, Channel, Dialling, Greeting, Nonce};
use crate::peer::{NotedConfigs, Notification};

/// Notifications of one connection that reach the core at once, and the time after which one more
/// may: only the newest counts, and an election needs few.
const NOTIFICATIONS: u32 = 50;
const NOTIFICATION_REFILL: Duration = Duration::from_millis(10);

/// Largest capacity that an empty buffer keeps, bytes.
const IDLE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct PeerConn {
    pub(super) channel: Channel,
    /// The server at the other end: the one that this server dials, or the one whose id the other
    /// end claims.
    pub(super) peer: Option<ServerId>,
    /// Address of the other end if it has dialled; `None` if this server has.
    pub(super) from: Option<SocketAddr>,
    /// This end's nonce of the greeting.
    pub(super) nonce: Nonce,
    pub(super) phase: Phase,
    /// When the phase ends at the latest, if it has a limit.
    pub(super) deadline: Option<Instant>,
    /// Received bytes that are no complete frame yet.
    pub(super) buffer: BytesMut,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) output: Output,
    /// The socket did not take all of the offered output.
    pub(super) blocked: bool,
    /// It is in the queue of connections whose output is to be offered to their sockets.
    pub(super) due: bool,
    /// The message that is being read.
    pub(super) unfinished: Unfinished,
    /// When the connection was established.
    pub(super) up_since: Instant,
    /// Has a message arrived?
    pub(super) heard: bool,
    /// When the last message arrived, or when the connection was established.
    pub(super) heard_at: Instant,
    /// Has the core sent anything on it? On an accepted link, the other end is then its learner.
    pub(super) taken: bool,
    /// The notification that is queued and has not left.
    pub(super) sending: Option<Notification>,
    /// Rate limit of notifications, and the end of a pause that it demands.
    pub(super) rate: TokenBucket,
    pub(super) paused_until: Option<Instant>,
}

/// Phases of a connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// The host opens the connection for this server.
    Dialling,
    /// This server has sent its greeting and waits for the answer.
    Answer(Box<Dialling>),
    /// The other end has connected; its greeting is incomplete.
    Accepted,
    /// The other end has sent its greeting, and waits, since this time, until the link of the same
    /// server is silent or closed.
    Queued(Box<Greeting>, Instant),
    /// This server has answered, and may wait for a proof of the secret.
    Proof(Box<Accepting>),
    /// The connection is established.
    Open,
    /// Nothing is read any more. `graceful`: may queued output still leave?
    Closed { graceful: bool },
}

/// Queued output. Each byte is moved about once, however slowly it leaves.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// How many of `bytes` have left.
    sent: usize,
}

/// A connection that the host is to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerDial {
    /// Its id.
    pub link: LinkId,
    /// The server to connect to.
    pub to: ServerId,
    /// The port to connect to.
    pub channel: Channel,
    /// Is it the port for observers, in place of that of the channel?
    pub for_observers: bool,
    /// The number of the address, counted on beyond the last one, with which the host begins. The
    /// others follow: each at once when one has failed, or after a short time without an answer.
    pub first: u32,
}

impl PeerConn {
    pub(super) fn new(
        channel: Channel,
        phase: Phase,
        unfinished: Unfinished,
        now: Instant,
    ) -> PeerConn {
        PeerConn {
            channel,
            peer: None,
            from: None,
            nonce: Nonce::default(),
            phase,
            deadline: None,
            buffer: BytesMut::new(),
            reader: Reader::default(),
            writer: Writer::default(),
            output: Output::default(),
            blocked: false,
            due: false,
            unfinished,
            up_since: now,
            heard: false,
            heard_at: now,
            taken: false,
            sending: None,
            rate: TokenBucket::new(NOTIFICATIONS, NOTIFICATION_REFILL, now),
            paused_until: None,
        }
    }

    /// Has this server dialled the connection?
    pub(super) fn is_dialled(&self) -> bool {
        self.from.is_none()
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Is it an established link?
    pub(super) fn is_link(&self) -> bool {
        self.is_open() && self.channel == Channel::Quorum
    }

    /// When the connection next needs attention if no bytes arrive.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let read = self.paused_until.or(self.unfinished.due()).filter(|_| self.is_open());
        read.into_iter().chain(self.deadline).min()
    }

    /// The newest complete notification that has arrived, with the configuration that came with it;
    /// the older ones are dropped. If too many have arrived recently, reading pauses.
    pub(super) fn take_newest(
        &mut self,
        now: Instant,
    ) -> Result<Option<(Notification, NotedConfigs)>, BadFrame> {
        let mut newest = None;
        while let Some(received) = self.reader.decode_notification(&mut self.buffer)? {
            newest = Some(received);
        }
        if newest.is_some() {
            self.heard = true;
            self.unfinished.ended();
            self.paused_until = self.rate.take(now).err();
        }
        Ok(newest)
    }

    /// Notes that complete messages have been taken off the buffer, which had `before` bytes
    /// before.
    pub(super) fn note_read(&mut self, before: usize, now: Instant) {
        if self.buffer.len() < before {
            self.heard_at = now;
        }
        if self.buffer.is_empty() && before > IDLE_BYTES {
            self.buffer = BytesMut::new();
        }
        self.unfinished.note(self.buffer.len(), now);
    }

    /// Why the connection ends if the other end closes it now.
    pub(super) fn end(&self) -> PeerCloseReason {
        match &self.phase {
            Phase::Answer(_) => PeerCloseReason::ClosedUnanswered,
            Phase::Proof(accepting) => PeerCloseReason::Unproven(accepting.peer()),
            Phase::Dialling
            | Phase::Accepted
            | Phase::Queued(..)
            | Phase::Open
            | Phase::Closed { .. } => {
                let is_whole = self.buffer.is_empty();
                if is_whole { PeerCloseReason::ByPeer } else { PeerCloseReason::WithinFrame }
            }
        }
    }
}

impl Output {
    pub(super) fn next(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the next `bytes` bytes, which have left.
    pub(super) fn leave(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.is_empty() {
            self.clear();
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        self.sent = 0;
        if self.bytes.capacity() > IDLE_BYTES {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }
}
