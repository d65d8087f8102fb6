//! The injected faults of a run.
//!
//! Owns the record. Every run keeps it, since faults are few.

use zabkeeper_core::{Instant, ServerId};

use crate::faults::catalog::Fault;
use crate::record::event::RunEvent;
use crate::record::injection::{Hit, Injection};

/// The record of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Injections {
    list: Vec<Injection>,
}

impl Injections {
    /// Reads an event of the run.
    pub fn record(&mut self, at: Instant, event: &RunEvent<'_>) {
        match *event {
            RunEvent::FaultHit(ref injection) => self.list.push(injection.clone()),
            RunEvent::LateFault { fault, server } => {
                self.list.push(Injection { at, until: None, fault, hit: Hit::Server(server) });
            }
            RunEvent::Ended { server, .. } => self.process_ended(at, server),
            RunEvent::Healed { .. } => self.end_all(at, |_| true),
            RunEvent::Started { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::RoleChanged { .. }
            | RunEvent::Wiped { .. }
            | RunEvent::Input { .. }
            | RunEvent::MarksHit { .. }
            | RunEvent::Client(..) => {}
        }
    }

    /// Ends faults that affect the process of a server.
    fn process_ended(&mut self, at: Instant, server: ServerId) {
        self.end_all(at, |injection| {
            let of_process = matches!(injection.fault, Fault::NodePause | Fault::NodeSlow);
            of_process && injection.hit == Hit::Server(server)
        });
    }

    /// Ends these faults, if they last.
    fn end_all(&mut self, at: Instant, ends: impl Fn(&Injection) -> bool) {
        for injection in self.list.iter_mut().filter(|injection| ends(injection)) {
            injection.until = injection.until.map(|until| until.min(at));
        }
    }

    /// All injected faults, in order.
    pub fn list(&self) -> &[Injection] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_ends_with_its_process() {
        let mut injections = Injections::default();
        for (fault, server) in [(Fault::NodePause, 1), (Fault::DiskSlow, 1), (Fault::NodePause, 2)]
        {
            let (hit, until) = (Hit::Server(ServerId(server)), Some(Instant(9)));
            let event = RunEvent::FaultHit(Injection { at: Instant(3), until, fault, hit });
            injections.record(Instant(3), &event);
        }
        injections.process_ended(Instant(5), ServerId(1));
        let until: Vec<u64> =
            injections.list().iter().filter_map(|s| s.until).map(|t| t.0).collect();
        assert_eq!(until, [5, 9, 9]);
    }
}
