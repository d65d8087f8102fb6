//! When the process runs next: when something arrives and at its deadline, but not while it
//! computes or is paused.
//!
//! Owns these times. Must not run the process, nor know what is due.

use zabkeeper_core::{Instant, ServerId};

use crate::world::shared::{Event, Shared};

/// A server that is woken this many times in a row at a due deadline does not act on it.
pub(super) const SPINS_MAX: u32 = 1_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Turns {
    server: ServerId,
    incarnation: u64,
    /// When the process runs next, if that is planned.
    wake_at: Option<Instant>,
    deadline_at: Option<Instant>,
    /// The process does not run before this time: it computes, or is paused.
    busy_until: Instant,
    /// It was paused, and has not taken its deliveries since.
    stood_still: bool,
    spins: u32,
}

impl Turns {
    pub(super) fn new(server: ServerId, incarnation: u64) -> Turns {
        Turns {
            server,
            incarnation,
            wake_at: None,
            deadline_at: None,
            busy_until: Instant(0),
            stood_still: false,
            spins: 0,
        }
    }

    /// Pauses the process. Returns when it continues: another pause may last longer.
    pub(super) fn pause(&mut self, until: Instant) -> Instant {
        self.stood_still = true;
        self.busy_until = self.busy_until.max(until);
        self.busy_until
    }

    /// Ends a pause.
    pub(super) fn end_pause(&mut self, now: Instant) {
        self.busy_until = self.busy_until.min(now);
    }

    /// Plans a turn as soon as the process can run.
    pub(super) fn ask(&mut self, shared: &mut Shared) {
        let at = self.busy_until.max(shared.now);
        if self.wake_at.is_none_or(|planned| at < planned) {
            self.wake_at = Some(at);
            let (server, incarnation) = (self.server, self.incarnation);
            shared.at(at, Event::Wake { server, incarnation });
        }
    }

    /// Begins the planned turn. Returns whether it is due and the process can run.
    pub(super) fn begin(&mut self, shared: &mut Shared) -> bool {
        if self.wake_at.is_none_or(|planned| shared.now < planned) {
            return false;
        }
        self.wake_at = None;
        if shared.now < self.busy_until {
            // The process was paused after this turn was planned.
            self.ask(shared);
            return false;
        }
        true
    }

    /// Is this the first turn after a pause?
    pub(super) fn stood_still(&mut self) -> bool {
        std::mem::take(&mut self.stood_still)
    }

    /// Ends a turn that has taken this long, ns.
    pub(super) fn end(&mut self, took: u64, now: Instant) {
        self.busy_until = Instant(now.0 + took);
    }

    /// Neither computes nor is paused.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.busy_until <= now
    }

    /// The timer of a deadline fires. Returns whether it is the planned one.
    pub(super) fn fires(&mut self, now: Instant) -> bool {
        self.deadline_at.take_if(|planned| *planned <= now).is_some()
    }

    /// Is a deadline planned that is not earlier?
    pub(super) fn covers(&self, at: Instant) -> bool {
        self.deadline_at.is_some_and(|planned| at <= planned)
    }

    /// The deadline is due already. Returns whether that has not been so too often in a row.
    pub(super) fn spin(&mut self) -> bool {
        self.spins += 1;
        self.spins < SPINS_MAX
    }

    /// Plans a turn at a deadline to come.
    pub(super) fn plan(&mut self, at: Instant, shared: &mut Shared) {
        self.spins = 0;
        if self.deadline_at.is_none_or(|planned| at < planned) {
            self.deadline_at = Some(at);
            let (server, incarnation) = (self.server, self.incarnation);
            shared.at(at, Event::Deadline { server, incarnation });
        }
    }
}
