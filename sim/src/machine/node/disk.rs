//! Content of a machine's disk: losses in a crash, damage, replacement, and the disk audit.
//!
//! Owns changes of the disk from outside, and their counters and trace. Must not decide when they
//! happen. `fs` has the behaviour of a disk, `disk_audit` its recovery.

use zabkeeper_core::{Epoch, Instant, Server, Zxid};

use super::disk_audit::{self, DiskAudit, Found};
use super::{BitRot, Node};
use crate::check::checker::Check;
use crate::check::observe::{Holder, Observation};
use crate::engine::seed::Rng;
use crate::machine::fs::{Disk, Luck};
use crate::record::event::RunEvent;
use crate::record::trace::Kind;
use crate::world::shared::Shared;

/// An audit, or why the disk cannot be recovered.
type Audited<T> = Result<DiskAudit<T>, String>;

/// Is this the name of a snapshot that is complete?
pub fn is_snapshot(name: &str) -> bool {
    name.strip_prefix("snapshot.").is_some_and(|zxid| !zxid.contains('.'))
}

impl Node {
    /// Replaces the disk by an empty one. The machine must be off.
    pub fn wipe(&mut self, shared: &mut Shared) {
        assert!(!self.is_running(), "the disk of a running server is not taken away");
        self.disk.borrow_mut().wipe();
        self.bit_rot = BitRot::No;
        self.damaged_files.clear();
        self.promised = Epoch(0);
        shared.record(&RunEvent::Wiped { server: self.id, incarnation: self.incarnation });
    }

    /// Damages durable content of a machine that is down. Returns whether there was any.
    pub fn damage(&mut self, rng: &mut Rng, shared: &mut Shared) -> bool {
        assert!(!self.is_running(), "damage shows when a server starts");
        let Some(damage) = self.disk.borrow_mut().bit_rot(self.log_end, rng) else {
            return false;
        };
        self.bit_rot = if damage.under_this_boot { BitRot::UnderThisBoot } else { BitRot::Perhaps };
        self.damaged_files.push(damage.file);
        let (id, what) = (self.id, damage.what);
        shared.note(Kind::Process, (id.0, self.incarnation), b"rot", || format!("s{id}: {what}"));
        true
    }

    /// Could the store recover from the undamaged files alone? Each slot of the state file is
    /// complete in itself, and an older snapshot suffices if the log continues from it.
    pub(super) fn could_recover(&self, now: Instant) -> bool {
        let is_log = |file: &String| file != disk_audit::STATE && !is_snapshot(file);
        !self.damaged_files.iter().any(is_log)
            && disk_audit::opens_without(&self.disk.borrow(), now, &self.damaged_files, self.store)
    }

    /// Audits the disk: the content that would survive a power failure now, at worst and at best.
    /// The commands so far must explain both; the best case is not always the longer log, because a
    /// truncation may be in progress. Returns the last zxid and the digest of the worst case.
    pub fn examine(&mut self, shared: &mut Shared) -> Option<(Zxid, u64)> {
        let process = self.process()?;
        if process.server().status().serving {
            process.show(shared.now, shared);
        }
        let faults = process.server().backlog().tail_faults;
        let evidence = || format!("s{}: {faults} of its rules are broken", self.id);
        shared.check(Check::TAIL, if faults == 0 { Ok(()) } else { Err(evidence()) });
        shared.recorder.counters.counts.disk_audits += 1;
        if let Some(known) = process.snapshots_at_rest() {
            let names = self.disk.borrow().names();
            let found = Vec::from_iter(names.iter().map(String::as_str).filter(|s| is_snapshot(s)));
            let right = found.len() == known;
            let evidence =
                || format!("s{} knows of {known} snapshots: {}", self.id, found.join(" "));
            shared.check(Check::FILES, if right { Ok(()) } else { Err(evidence()) });
        }
        let disk = self.disk.borrow();
        let (now, alone, store) = (shared.now, &self.alone, self.store);
        let (worst, best) = self.worst_and_best(&disk, now);
        // A power failure may undo any part of a purge.
        let number = shared.recorder.counters.counts.disk_audits;
        let drawn = (disk.unsynced_removals() > 1)
            .then(|| shared.seeds.stream("truth", number).word())
            .map(|seed| self.left_by(Luck::Drawn(seed), shared));
        let cut_off = match &worst {
            Ok(whole) if whole.mended => {
                let rng = shared.seeds.stream("truth/cut-off", number);
                disk_audit::examine_cut_off(&disk, now, (alone, store), whole, rng)
            }
            Ok(_) | Err(_) => Ok(()),
        };
        drop(disk);
        if let (Some(Err(why)), _) | (_, Err(why)) = (drawn, cut_off) {
            shared.check(Check::RECOVERS, Err(format!("s{}: {why}", self.id)));
            return None;
        }
        let (worst, best) = match (worst, best) {
            (Ok(worst), Ok(best)) => (worst, best),
            (Err(why), _) | (_, Err(why)) => {
                shared.check(Check::RECOVERS, Err(format!("s{}: {why}", self.id)));
                return None;
            }
        };
        shared.check(Check::RECOVERS, Ok(()));
        let server = self.id;
        let (found, digest) = (worst.last, worst.seen.digest());
        let (state, holder) = (worst.state, Holder(Some(&worst.seen)));
        shared.observe(Observation::DurableAudit { server, state, last: found, digest, holder });
        let DiskAudit { state, last, .. } = best;
        shared.observe(Observation::CachedAudit { server, state, last });
        Some((found, digest))
    }

    /// What a power failure now would leave at worst and at best. If the store recovers the same
    /// from both, that is replayed once: the result depends on nothing else. If everything is
    /// durable, luck makes no difference.
    fn worst_and_best(&self, disk: &Disk, now: Instant) -> (Audited<Box<Server>>, Audited<()>) {
        let recover = |luck| disk_audit::recover(disk, now, luck, self.store);
        let worst = recover(Luck::Worst);
        let best = disk.is_in_doubt(now).then(|| recover(Luck::Best));
        let is_other = |best: &Result<Found, String>| match (&worst, best) {
            (Ok(worst), Ok(best)) => worst.recovered != best.recovered,
            (Ok(_) | Err(_), _) => true,
        };
        let other = best.filter(is_other);
        let worst = worst.and_then(|found| disk_audit::replayed(found, &self.alone, Box::new));
        let best = match (&worst, other) {
            (_, Some(best)) => {
                best.and_then(|found| disk_audit::replayed(found, &self.alone, |_| ()))
            }
            (Ok(DiskAudit { state, last, mended, .. }), None) => {
                Ok(DiskAudit { state: state.clone(), last: *last, seen: (), mended: *mended })
            }
            (Err(why), None) => Err(why.clone()),
        };
        (worst, best)
    }

    /// Does its disk hold a history, with all that the server ever acknowledged?
    pub fn knows_its_history(&self, shared: &Shared) -> bool {
        let audit = self.left_by(Luck::Worst, shared);
        let known =
            |audit: DiskAudit<()>| !audit.state.damaged && audit.state.current_epoch > Epoch(0);
        self.bit_rot == BitRot::No && audit.is_ok_and(known)
    }

    /// Can its disk hold a promise? Then the ensemble's first epoch may have begun.
    pub fn may_have_promised(&self, shared: &Shared) -> bool {
        self.left_by(Luck::Best, shared).is_ok_and(|audit| audit.state.accepted_epoch > Epoch(0))
    }

    /// What a power failure now would leave, with this luck.
    fn left_by(&self, luck: Luck, shared: &Shared) -> Result<DiskAudit<()>, String> {
        disk_audit::examine(&self.disk.borrow(), shared.now, luck, &self.alone, self.store, |_| ())
    }

    /// Audits the disk of a server that never starts again: there is no server to compare with, but
    /// the disk must be recoverable.
    pub fn examine_left(&self, shared: &mut Shared) {
        if self.bit_rot != BitRot::No {
            return;
        }
        for luck in [Luck::Worst, Luck::Best] {
            let found = self.left_by(luck, shared);
            let evidence = |why| format!("s{}, which is gone for good: {why}", self.id);
            shared.check(Check::RECOVERS, found.map(|_| ()).map_err(evidence));
        }
    }

    /// Audits the disk between the operations of a worker.
    pub fn look(&mut self, incarnation: u64, shared: &mut Shared) {
        if incarnation == self.incarnation {
            self.examine(shared);
        }
    }
}
