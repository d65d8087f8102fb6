//! Which server to try next (CLIENT-04; Java: `StaticHostProvider`).
//!
//! Owns the order and the rounds. Must not connect.

use super::rng::Rng;

/// The servers of a connect string, shuffled once, so that clients spread over the ensemble.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    order: Vec<usize>,
    next: usize,
    /// Number of servers not yet tried in this round. A round begins with the session, after each
    /// accepted handshake, and after a complete round.
    untried: usize,
}

impl Servers {
    pub(crate) fn new(count: usize, rng: &mut Rng) -> Servers {
        assert!(count > 0, "a connect string names a server");
        let mut order: Vec<usize> = (0..count).collect();
        rng.shuffle(&mut order);
        Servers { order, next: 0, untried: count }
    }

    pub(crate) fn count(&self) -> usize {
        self.order.len()
    }

    /// Has every server been tried? The next one begins a new round.
    pub(crate) fn round_is_over(&self) -> bool {
        self.untried == 0
    }

    /// Takes the server to try now.
    pub(crate) fn take(&mut self) -> usize {
        if self.round_is_over() {
            self.untried = self.order.len();
        }
        self.untried -= 1;
        let server = self.order[self.next];
        self.next = (self.next + 1) % self.order.len();
        server
    }

    /// Records that the server taken last has accepted the session: the others come first after its
    /// loss.
    pub(crate) fn accepted(&mut self) {
        self.untried = self.order.len() - 1;
    }
}
