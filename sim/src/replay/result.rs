//! A schedule with the results of its run.
//!
//! Owns what a schedule takes over from a run. Must not run anything.

use crate::replay::schedule::Schedule;
use crate::world::Outcome;

impl Schedule {
    /// Adds the results of its run: the effects of each step, and the violated promise.
    pub fn told(&self, outcome: &Outcome) -> Schedule {
        let mut told = self.clone();
        if let Some(steps) = &outcome.steps {
            told.steps.clone_from(steps);
        }
        told.options.rules.clone_from(&outcome.rules);
        told.violates = outcome.failure.as_ref().map(|failure| failure.id.to_owned());
        if told.violates != self.violates {
            (told.found, told.mended) = (None, None);
        }
        told
    }
}
