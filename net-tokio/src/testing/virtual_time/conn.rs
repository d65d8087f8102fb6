//! A connection of the network: two ends, and what has arrived at each.
//!
//! Owns the phase and the received bytes of each end. Must not know time, nor messages under way.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use zabkeeper_core::peer::greeting::Channel;

/// A machine: that of the client with this number, or that of the server with this id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Party {
    Client(u64),
    Server(u64),
}

/// The port of a server that a connection leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Port {
    Clients,
    Servers(Channel),
}

/// What an end has received.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Received {
    Bytes(Bytes),
    Nothing,
    /// The other end is closed, or the connection does not exist.
    End,
}

/// A pair of byte streams, as with TCP.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) port: Port,
    /// That at index [`DIALLER`], and that at index [`ACCEPTOR`].
    pub(super) ends: [End; 2],
}

pub(super) const DIALLER: usize = 0;
pub(super) const ACCEPTOR: usize = 1;

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) party: Party,
    pub(super) phase: Phase,
    pub(super) received: VecDeque<Bytes>,
    /// Has the end of the stream arrived?
    pub(super) is_last: bool,
    /// The task to be woken when something arrives.
    pub(super) waker: Option<Waker>,
}

/// The phase of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Opening,
    Open,
    Closed,
}

impl Conn {
    /// A connection that this party opens to a server.
    pub(super) fn new(port: Port, from: Party, to: u64) -> Conn {
        let end = |party| End {
            party,
            phase: Phase::Opening,
            received: VecDeque::new(),
            is_last: false,
            waker: None,
        };
        Conn { port, ends: [from, Party::Server(to)].map(end) }
    }

    /// The index of the end of this party, and that of the other end.
    pub(super) fn indices(&self, party: Party) -> (usize, usize) {
        match self.ends[DIALLER].party == party {
            true => (DIALLER, ACCEPTOR),
            false => (ACCEPTOR, DIALLER),
        }
    }

    /// The end of this party.
    pub(super) fn end(&mut self, party: Party) -> &mut End {
        let (index, _) = self.indices(party);
        &mut self.ends[index]
    }

    /// Has this server the connection open, or is it opening it? One that has not reached the
    /// server is not its own yet.
    pub(super) fn is_of(&self, server: u64) -> bool {
        let [dialler, acceptor] = &self.ends;
        let server = Party::Server(server);
        dialler.party == server && dialler.phase != Phase::Closed
            || acceptor.party == server && acceptor.phase == Phase::Open
    }
}

impl End {
    /// The next bytes that have arrived, at most `most`.
    pub(super) fn receive(&mut self, most: usize) -> Received {
        match self.received.front_mut() {
            Some(first) if first.len() > most => Received::Bytes(first.split_to(most)),
            Some(_) => self.received.pop_front().map_or(Received::Nothing, Received::Bytes),
            None if self.is_last => Received::End,
            None => Received::Nothing,
        }
    }
}
