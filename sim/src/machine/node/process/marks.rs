//! Faults that are injected when a step hits a mark.
//!
//! Owns crashes between the outputs of that step, and disk faults before the disk gets its
//! commands. The world injects all other faults of rules.

use std::cell::RefCell;

use zabkeeper_core::Instant;
use zabkeeper_core::io::Mark;

use super::{Lengths, Process};
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;
use crate::faults::targets::Met;
use crate::machine::fs::{self, Crash, Disk};
use crate::machine::node::power;
use crate::record::event::RunEvent;
use crate::record::injection::Hit;
use crate::record::role::Role;
use crate::record::trace::Kind;
use crate::world::shared::Shared;

impl Process {
    /// Counts the marks that a step has hit, and collects the faults of the rules that they meet.
    /// `before`: number of outputs before the step.
    pub(super) fn meet(&mut self, before: Lengths, roles: [Role; 2], shared: &mut Shared) {
        let marks = std::mem::take(&mut self.out.marks);
        if marks.is_empty() {
            return;
        }
        if marks.contains(Mark::SnapshotDone) {
            let status = self.server.status();
            self.audits.snapshot_done(status.applied > status.snapshot);
        }
        shared.record(&RunEvent::MarksHit { server: self.id, marks });
        for met in shared.targets.hit(self.id, roles, marks) {
            let ends = matches!(met.fault, Fault::NodeKill | Fault::NodePower);
            if ends && self.cut.is_none() {
                self.cut = Some((met, before));
                self.ending = true;
            } else if !ends {
                self.disk_faults.push(met);
            }
        }
    }

    /// Injects disk faults before the outputs are executed, as far as the disk can; the world
    /// injects the others.
    pub(super) fn inject_disk_faults(&mut self, disk: &RefCell<Disk>, shared: &mut Shared) {
        for met in std::mem::take(&mut self.disk_faults) {
            let mut rng = shared.targets.rng(met.rule);
            if fs::inject(&mut disk.borrow_mut(), met.fault, &mut rng, shared.now) {
                let until = disk.borrow().faults.until(met.fault);
                self.note_injection(met, until, shared);
                let text = format!("s{}", self.id);
                shared.targets.injected(met, rng.recorded(), text);
            }
            shared.targets.met.push(met);
        }
    }

    /// How the process crashes, the random stream that decides how many outputs leave, and the
    /// number of outputs before the step.
    pub(super) fn end_at_mark(
        &mut self,
        (met, before): (Met, Lengths),
        shared: &mut Shared,
    ) -> (Rng, Crash, Lengths) {
        self.note_injection(met, None, shared);
        let mut rng = shared.targets.rng(met.rule);
        let fate = rng.fork();
        // `Node::crash` turns a kill into a power failure if the disk has an error by then.
        let how = if met.fault == Fault::NodeKill { Crash::Kill } else { power(&shared.options) };
        let text = format!("s{} ends amid the outputs of that step: {how:?}", self.id);
        shared.targets.injected(met, rng.recorded(), text);
        shared.targets.met.push(met);
        (fate, how, before)
    }

    fn note_injection(&self, met: Met, until: Option<Instant>, shared: &mut Shared) {
        shared.recorder.counters.fault(met.fault);
        shared.hit(met.fault, Hit::Server(self.id), until);
        shared.note(Kind::Fault, (met.fault as u64, self.id.0), b"mark", || {
            format!("{} of s{} at a mark", met.fault, self.id)
        });
    }
}
