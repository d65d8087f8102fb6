//! One connection with another server: its greeting, what has come on it and what waits to leave.
//!
//! Owns the state of the connection. Must not look at other connections: `peers` does.

use core::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;

use super::super::unfinished::Unfinished;
use super::admission::TokenBucket;
use super::close::PeerCloseReason;
use crate::ids::{Instant, ServerId};
use crate::peer::Notification;
use crate::peer::frame::{BadFrame, Reader, Writer};
use crate::peer::greeting::{Accepting, Channel, Dialling, Greeting, Nonce};

/// Notifications of one connection that are handed over at once, and the time after which there may
/// be one more: only the newest counts, and an election has a few.
const NOTIFICATIONS: u32 = 50;
const NOTIFICATION_REFILL: Duration = Duration::from_millis(10);

/// Capacity that an empty buffer may keep.
const IDLE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct PeerConn {
    pub(super) channel: Channel,
    /// The server at the other end: the one that this server dials, or the one that the other end
    /// says it is.
    pub(super) peer: Option<ServerId>,
    /// The address of whoever has connected; none where this server dials.
    pub(super) from: Option<SocketAddr>,
    /// For this end's part of the greeting.
    pub(super) nonce: Nonce,
    pub(super) phase: Phase,
    /// When the phase ends at the latest, where it has to.
    pub(super) deadline: Option<Instant>,
    /// Bytes that have come and are no whole frame yet.
    pub(super) buffer: BytesMut,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) output: Output,
    /// The socket has not taken all that it was offered.
    pub(super) blocked: bool,
    /// It is on the list of those whose output is to be offered to their sockets.
    pub(super) due: bool,
    /// The message that is being read.
    pub(super) unfinished: Unfinished,
    /// Has a message come?
    pub(super) heard: bool,
    /// When the last message came, or when the connection was established.
    pub(super) heard_at: Instant,
    /// Has the core sent anything on it? Then the core takes the other end for a learner.
    pub(super) taken: bool,
    /// The notification that is queued and has not left.
    pub(super) sending: Option<Notification>,
    /// How many notifications are handed over, and until when none is.
    pub(super) rate: TokenBucket,
    pub(super) paused_until: Option<Instant>,
}

/// How far a connection has come.
#[derive(Debug)]
pub(super) enum Phase {
    /// This server dials: the host connects.
    Dialling,
    /// This server has greeted and waits for the answer.
    Answer(Box<Dialling>),
    /// Somebody has connected and has not greeted.
    Accepted,
    /// It has greeted, and waits until the link that its server has is silent or gone; since then.
    Queued(Box<Greeting>, Instant),
    /// It is answered, and may have to prove that it knows the secret.
    Proof(Box<Accepting>),
    /// Both ends know each other.
    Open,
    /// Nothing is read any more. May queued output still leave?
    Closed { graceful: bool },
}

/// What waits to leave. Each byte is moved about once, however slowly it leaves.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// How many of them have left.
    sent: usize,
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
            heard: false,
            heard_at: now,
            taken: false,
            sending: None,
            rate: TokenBucket::new(NOTIFICATIONS, NOTIFICATION_REFILL, now),
            paused_until: None,
        }
    }

    /// Is it this server that has dialled?
    pub(super) fn is_dialled(&self) -> bool {
        self.from.is_none()
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Is it for notifications of this server to the other one?
    pub(super) fn sends_notifications(&self) -> bool {
        self.channel == Channel::Election && self.is_dialled()
    }

    /// Is it an established link?
    pub(super) fn is_link(&self) -> bool {
        self.is_open() && self.channel == Channel::Quorum
    }

    /// When something is to be done with it if no bytes come.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let read = self.paused_until.or(self.unfinished.due()).filter(|_| self.is_open());
        read.into_iter().chain(self.deadline).min()
    }

    /// The last whole notification that has come; earlier ones do not count any more. Where too
    /// many have come lately, the next is taken after a pause.
    pub(super) fn take_newest(&mut self, now: Instant) -> Result<Option<Notification>, BadFrame> {
        let mut newest = None;
        while let Some(notification) = self.reader.decode(&mut self.buffer)? {
            newest = Some(notification);
        }
        if newest.is_some() {
            self.heard = true;
            self.unfinished.ended();
            self.paused_until = self.rate.take(now).err();
        }
        Ok(newest)
    }

    /// Whole messages have been taken off the buffer, which had so many bytes before.
    pub(super) fn note_read(&mut self, before: usize, now: Instant) {
        if self.buffer.len() < before {
            self.heard_at = now;
        }
        if self.buffer.is_empty() && before > IDLE_BYTES {
            self.buffer = BytesMut::new();
        }
        self.unfinished.note(self.buffer.len(), now);
    }

    /// Why it ends where the other end closes it now.
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

    /// So many bytes have left.
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
