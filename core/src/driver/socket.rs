//! One view of all sockets: what the host does with a socket is the same for clients and for other
//! servers.
//!
//! Owns which connection a socket belongs to. Must not know what is done with the bytes.

use super::Driver;
use super::clients::Interest;
use super::close::ConnCloseReason;
use crate::ids::{ConnId, Instant, LinkId};

/// The connection that a socket belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SocketId {
    /// With a client.
    Client(ConnId),
    /// With another server.
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

    /// Bytes have come. What is whole among them reaches the core in the next turn.
    pub fn receive(&mut self, socket: SocketId, bytes: &[u8], now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.receive(id, bytes, now),
            SocketId::Server(id) => self.peers.receive(id, bytes, now),
        }
    }

    /// The other end has closed its side.
    pub fn receive_end(&mut self, socket: SocketId, now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.receive_end(id),
            SocketId::Server(id) => self.peers.receive_end(id, now),
        }
    }

    /// The network has failed, in the operating system's words.
    pub fn fail(&mut self, socket: SocketId, why: String, now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.fail(id, why),
            SocketId::Server(id) => self.peers.fail(id, why, now),
        }
    }

    /// A socket for which [`Driver::interest`] may say something else than before; some are named
    /// twice, or are gone.
    pub fn next_changed(&mut self) -> Option<SocketId> {
        let server = self.peers.next_changed().map(SocketId::Server);
        server.or_else(|| self.clients.next_changed().map(SocketId::Client))
    }

    /// A socket to which output is to be offered; none where that is all for this turn. Those of
    /// servers come first: clients wait for what is sent there.
    pub fn next_to_flush(&mut self) -> Option<SocketId> {
        let server = self.peers.next_to_flush().map(SocketId::Server);
        server.or_else(|| self.clients.next_to_flush().map(SocketId::Client))
    }

    /// What is to leave next, of what is queued; empty where that is nothing.
    pub fn output(&self, socket: SocketId) -> &[u8] {
        match socket {
            SocketId::Client(id) => self.clients.output(id),
            SocketId::Server(id) => self.peers.output(id),
        }
    }

    /// The socket has taken so many bytes of [`Driver::output`].
    pub fn sent(&mut self, socket: SocketId, bytes: usize, now: Instant) {
        match socket {
            SocketId::Client(id) => self.clients.sent(id, bytes, now),
            SocketId::Server(id) => self.peers.sent(id, bytes, now),
        }
    }

    /// The socket takes no more for now. Is that so since this call, so that the host has to begin
    /// to wait for it?
    pub fn block(&mut self, socket: SocketId) -> bool {
        match socket {
            SocketId::Client(id) => self.clients.block(id),
            SocketId::Server(id) => self.peers.block(id),
        }
    }

    /// The socket is closed. Why its connection has ended, where it was a client's that was known.
    pub fn forget(&mut self, socket: SocketId, now: Instant) -> Option<ConnCloseReason> {
        match socket {
            SocketId::Client(id) => {
                let peer = self.clients.peer(id);
                let why = self.clients.forget(id);
                if let (Some(peer), Some(why)) = (peer, &why) {
                    self.reports.on_client_closed(peer, why);
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
