//! The operations on sockets that are the same for clients and for other servers.
//!
//! Owns the mapping from sockets to connections. Must not interpret bytes.

use super::Driver;
use super::clients::Interest;
use super::close::ConnCloseReason;
use crate::ids::{ConnId, Instant, LinkId};

/// The connection that a socket belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SocketId {
    /// A connection with a client.
    Client(ConnId),
    /// A connection with another server.
    Server(LinkId),
}

impl Driver {
    /// What the host has to do with the socket.
    pub fn interest(&self, socket: SocketId) -> Interest {
        match socket {
            SocketId::Client(id) => self.clients.interest(id),
            SocketId::Server(id) => self.peers.interest(id),
        }
    }

    /// Takes bytes that have arrived. The complete messages among them reach the core in the next
    /// turn.
    pub fn receive(&mut self, socket: SocketId, bytes: &[u8], now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.receive(id, bytes, now),
            SocketId::Server(id) => self.peers.receive(id, bytes, now),
        }
    }

    /// The remote end has closed its side.
    pub fn receive_end(&mut self, socket: SocketId, now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.receive_end(id),
            SocketId::Server(id) => self.peers.receive_end(id, now),
        }
    }

    /// The connection has failed; `why` is the operating system's error text.
    pub fn fail(&mut self, socket: SocketId, why: String, now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.fail(id, why),
            SocketId::Server(id) => self.peers.fail(id, why, now),
        }
    }

    /// A socket whose [`Driver::interest`] may have changed. It may be returned twice, or be
    /// forgotten already.
    pub fn next_changed(&mut self) -> Option<SocketId> {
        let server = self.peers.next_changed().map(SocketId::Server);
        server.or_else(|| self.clients.next_changed().map(SocketId::Client))
    }

    /// The next socket that has output to be offered; `None` when there is none left in this turn.
    /// Sockets of servers come first, because clients wait for the answers of servers.
    pub fn next_to_flush(&mut self) -> Option<SocketId> {
        let server = self.peers.next_to_flush().map(SocketId::Server);
        server.or_else(|| self.clients.next_to_flush().map(SocketId::Client))
    }

    /// The first part of the queued output; empty if none is queued.
    pub fn output(&self, socket: SocketId) -> &[u8] {
        match socket {
            SocketId::Client(id) => self.clients.output(id),
            SocketId::Server(id) => self.peers.output(id),
        }
    }

    /// The socket has taken `bytes` bytes of [`Driver::output`].
    pub fn sent(&mut self, socket: SocketId, bytes: usize, now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.sent(id, bytes, now),
            SocketId::Server(id) => self.peers.sent(id, bytes, now),
        }
    }

    /// The socket takes no more output for now. Returns whether it took output until this call; the
    /// host then begins to wait for the socket.
    pub fn block(&mut self, socket: SocketId) -> bool {
        match socket {
            SocketId::Client(id) => self.clients.block(id),
            SocketId::Server(id) => self.peers.block(id),
        }
    }

    /// The socket is closed. Returns why its connection has ended, if it was a known connection of
    /// a client.
    pub fn forget(&mut self, socket: SocketId, now: Instant) -> Option<ConnCloseReason> {
        match socket {
            SocketId::Client(id) => {
                let (peer, session) = (self.clients.peer(id), self.clients.session(id));
                let why = self.clients.forget(id);
                if let (Some(peer), Some(why)) = (peer, &why) {
                    self.reports.on_client_closed(peer, session, why);
                }
                why
            }
            SocketId::Server(id) => {
                self.peers.forget(id, now);
                None
            }
        }
    }
}
