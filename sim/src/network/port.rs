//! The ports of a server.
//!
//! Owns their names. Must not know connections.

use zabkeeper_core::peer::greeting::Channel;

/// A port that a server listens on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// The port for clients.
    Clients,
    /// The port for this channel between servers.
    Servers(Channel),
}
