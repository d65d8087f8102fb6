//! The settings of runs with a user's workload.
//!
//! Owns which settings such a workload has to cope with. Must not draw anything.

use zabkeeper_core::wire::MAX_FRAME_DEFAULT;

use super::{CALLS_MAX, Options};
use crate::check::model::LocalRules;

impl Options {
    /// Replaces settings that no user expects of a server in production, if the run has a user's
    /// workload: sessions without ephemeral nodes, and bounds that are shorter than usual requests
    /// and replies. All others stay as drawn.
    pub(super) fn suit_workload(&mut self) {
        let Some(custom) = &self.custom else { return };
        self.workload.programs = custom.programs().min(self.clients).into();
        self.workload.recipe = 0;
        self.workload.calls_max = CALLS_MAX;
        self.workload.request_bytes = MAX_FRAME_DEFAULT;
        self.workload.read_only_one_in = 0;
        self.server.read_only_mode = false;
        self.server.frame_bytes = MAX_FRAME_DEFAULT;
        self.server.limits.record_bytes = super::usual_limits(self.server.tick_ms).record_bytes;
        self.local = LocalRules::default();
        self.config_change_one_in = 0;
    }
}
