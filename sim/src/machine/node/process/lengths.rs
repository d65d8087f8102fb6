//! Numbers of outputs.
//!
//! Owns these counts, and dropping outputs beyond them. Must not interpret outputs.

use zabkeeper_core::io::Outbox;

use crate::engine::seed::Rng;

/// Number of outputs in each sink.
#[derive(Clone, Copy, Default)]
pub(super) struct Lengths {
    pub(super) disk: usize,
    pub(super) clients: usize,
    pub(super) election: usize,
    pub(super) peers: usize,
}

impl Lengths {
    pub(super) fn of(out: &Outbox) -> Lengths {
        Lengths {
            disk: out.disk.len(),
            clients: out.clients.len(),
            election: out.election.len(),
            peers: out.peers.len(),
        }
    }

    /// Keeps a random prefix of the outputs beyond these, in each sink.
    pub(super) fn cut(self, out: &mut Outbox, rng: &mut Rng) {
        let mut keep = |before: usize, all: usize| before + rng.upto(all - before);
        out.disk.truncate(keep(self.disk, out.disk.len()));
        out.clients.truncate(keep(self.clients, out.clients.len()));
        out.election.truncate(keep(self.election, out.election.len()));
        out.peers.truncate(keep(self.peers, out.peers.len()));
    }

    pub(super) fn sum(self) -> usize {
        self.disk + self.clients + self.election + self.peers
    }
}
