//! A schedule with the results of its run.
//!
//! Owns what a schedule takes over from a run. Must not run anything.

use crate::replay::schedule::Schedule;
use crate::world::Outcome;

impl Schedule {
    /// Adds the results of its run: the effects of each step, and the violated promise.
    pub fn with_outcome(&self, outcome: &Outcome) -> Schedule {
        let mut schedule = self.clone();
        if let Some(steps) = &outcome.steps {
            schedule.steps.clone_from(steps);
        }
        schedule.options.rules.clone_from(&outcome.rules);
        schedule.violates = outcome.failure.as_ref().map(|failure| failure.id.to_owned());
        if schedule.violates != self.violates {
            (schedule.found, schedule.mended) = (None, None);
        }
        schedule
    }
}
