//! A process that is told to stop: its driver reads no clients any more, and the process ends when
//! the core needs it no longer and its clients have their answers.
//!
//! Owns when it ends, as `net-tokio/src/event_loop.rs` does for the real one. Must not end the
//! machine.

use std::cell::RefCell;

use zabkeeper_core::{Instant, Now};

use super::Process;
use crate::check::checker::Check;
use crate::machine::fs::Disk;
use crate::world::shared::{Event, Shared};

/// A process that is to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    /// When its core was told, by its own clock.
    told: Option<Instant>,
    /// Its end is planned.
    ends: bool,
}

impl Process {
    /// Stops the process in an orderly way. Returns when the log worker has executed its commands.
    pub(in crate::machine::node) fn stop(
        &mut self,
        disk: &RefCell<Disk>,
        shared: &mut Shared,
    ) -> Instant {
        self.ending = true;
        self.lanes.close(disk, shared)
    }

    /// SIGTERM. The process ends at `latest`. Returns `false` if it is stopping already, or runs
    /// the last release, which hands over to nobody.
    pub(in crate::machine::node) fn begin_stop(
        &mut self,
        latest: Instant,
        shared: &mut Shared,
    ) -> bool {
        if self.ending || self.halted || self.stopping.is_some() || self.runs_last_release() {
            return false;
        }
        self.stopping = Some(Stopping { told: None, ends: false });
        self.driver.stop();
        shared.at(latest, Event::Exits { server: self.id, incarnation: self.incarnation });
        self.ask_to_run(shared);
        true
    }

    /// After a turn: a tick after the core was told, it needs the process no longer, because each
    /// turn lets it act on its deadlines.
    pub(super) fn check_stop(&mut self, now: Now, shared: &mut Shared) {
        let Some(Stopping { told, ends: false }) = self.stopping else { return };
        let told = told.unwrap_or(now.mono);
        let tick = shared.options.server.tick();
        let may_exit = self.server.may_exit();
        let in_time = may_exit || now.mono < told.after(tick) || self.ending || self.halted;
        shared.check(Check::EXITS, if in_time { Ok(()) } else { Err(format!("s{}", self.id)) });
        let ends = may_exit && self.driver.clients.unanswered() == 0;
        self.stopping = Some(Stopping { told: Some(told), ends });
        if ends {
            shared.after(0, Event::Exits { server: self.id, incarnation: self.incarnation });
        }
    }
}
