//! The clients and links that the core knows.
//!
//! Owns these sets, made from the inputs of the core. Must not ask the core.

use std::collections::BTreeSet;

use zabkeeper_core::io::{ClientEvent, PeerEvent};
use zabkeeper_core::{ConnId, Input, LinkId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) clients: BTreeSet<ConnId>,
    pub(super) links: BTreeSet<LinkId>,
}

impl Known {
    /// The core is about to handle this input.
    pub(super) fn stepped(&mut self, input: &Input) {
        match input {
            Input::Client(conn, ClientEvent::Opened(..)) => drop(self.clients.insert(*conn)),
            Input::Client(conn, ClientEvent::Closed) => drop(self.clients.remove(conn)),
            Input::Peer(link, PeerEvent::Up { .. }) => drop(self.links.insert(*link)),
            Input::Peer(link, PeerEvent::Down) => drop(self.links.remove(link)),
            Input::Client(_, ClientEvent::Request(_) | ClientEvent::Heartbeat)
            | Input::Timeout
            | Input::Stop
            | Input::Oracle(_)
            | Input::Election(..)
            | Input::EnsembleConfig(..)
            | Input::Peer(..)
            | Input::Disk(_) => {}
        }
    }
}
