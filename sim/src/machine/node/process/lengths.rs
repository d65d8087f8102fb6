//! How much a step has put out.
//!
//! Owns these counts, and cutting off what lies behind them. Must not know what the outputs say.

use zabkeeper_core::io::Outbox;

use crate::engine::seed::Rng;

/// How much there is in each sink.
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

    /// Of what came after these, a prefix of each sink stays.
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
