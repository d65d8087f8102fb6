//! The oracle of a run with two voters.
//!
//! Owns which of them it may permit to go on alone. Must not decide when it does: the world does.

use zabkeeper_core::ServerId;

use super::{Options, Profile};
use crate::engine::seed::Rng;

impl Options {
    /// Draws an oracle for half of the ensembles of two voters.
    pub(super) fn draw_oracle(&mut self, rng: &mut Rng) {
        let measures = self.profile == Some(Profile::Perf);
        if rng.chance(1, 2) && !measures {
            self.oracle = rng.range_u32(1, 2);
        }
        if self.permitted().is_none() {
            self.oracle = 0;
        }
    }

    /// The voter that the oracle may permit to go on without the other one: one of exactly two
    /// without groups, whose list never changes.
    pub fn permitted(&self) -> Option<ServerId> {
        let changes = self.first_voters().is_some() || self.reconfigured().is_some();
        let applies = self.voters().count() == 2 && self.weights().is_none() && !changes;
        self.voters().find(|id| applies && id.0 == u64::from(self.oracle))
    }
}
