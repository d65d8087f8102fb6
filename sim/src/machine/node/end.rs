//! The end of a process or its machine.
//!
//! Owns the consequences: connections, losses of the disk, knowledge about the end of the log. Must
//! not decide when it happens.

use zabkeeper_core::{ConnId, Instant};

use super::{BitRot, Node, Phase};
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;
use crate::machine::fs::{Crash, LogEnd};
use crate::network::stream::{End, Party, Silence};
use crate::record::event::RunEvent;
use crate::world::options::Options;
use crate::world::shared::Shared;

impl Node {
    /// Draws how the process ends next: after a disk error only by a power failure, which loses the
    /// page cache.
    pub(super) fn draw_crash(&mut self, shared: &Shared) -> Crash {
        let killed = self.rng.chance(1, 2);
        self.end_by(killed, shared)
    }

    /// The end of the process alone if `killed` and the disk has no error, otherwise a power
    /// failure.
    pub fn end_by(&self, killed: bool, shared: &Shared) -> Crash {
        let well = self.disk.borrow().failed().is_none();
        if killed && well { Crash::Kill } else { self.power(shared) }
    }

    /// A power failure with the disk faults of the fault plan.
    pub fn power(&self, shared: &Shared) -> Crash {
        power(&shared.options)
    }

    /// The machine's own random stream, for choices that nothing else decides.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Stops the process in an orderly way: for all others at once, and for its disk when the log
    /// worker has executed its commands.
    pub fn stop(&mut self, fate: Rng, shared: &mut Shared) {
        let Phase::Up(process) = &mut self.phase else {
            return;
        };
        let end = process.stop(&self.disk, shared);
        self.end_at(end, Crash::Kill, fate, shared);
    }

    /// Tells the process to stop; it ends by itself, at `latest`. Returns whether it is up and was
    /// not told before.
    pub fn begin_stop(&mut self, latest: Instant, shared: &mut Shared) -> bool {
        match &mut self.phase {
            Phase::Up(process) => process.begin_stop(latest, shared),
            Phase::Down | Phase::Recovering(_) => false,
        }
    }

    /// Ends the process now, by a kill or a power failure; `fate` decides what its disk keeps.
    pub fn crash(&mut self, how: Crash, fate: Rng, shared: &mut Shared) {
        self.end_at(shared.now, how, fate, shared);
    }

    /// Does the same, while the disk continues until `at`.
    fn end_at(&mut self, at: Instant, how: Crash, fate: Rng, shared: &mut Shared) {
        if !self.is_running() {
            return;
        }
        self.examine(shared);
        let planned = how;
        self.log_end = LogEnd::Unknown;
        let (mut recorded, mut uncommitted) = (false, false);
        if let Phase::Up(process) = &self.phase {
            recorded = process.has_recorded_end();
            self.promised = process.server().status().accepted_epoch;
            uncommitted = process.leads_uncommitted();
        }
        // File handles are dropped before the disk invalidates them.
        self.phase = Phase::Down;
        let how = if self.disk.borrow().failed().is_some() { self.power(shared) } else { how };
        self.log_end = match how {
            _ if recorded => LogEnd::Recorded,
            Crash::Kill => LogEnd::Written,
            Crash::Power { .. } => LogEnd::Unknown,
        };
        if self.bit_rot == BitRot::UnderThisBoot && matches!(how, Crash::Power { .. }) {
            // The damage looks like a torn write from now on, so no start can detect it; the next
            // start replaces the disk.
            self.bit_rot = BitRot::Found;
        }
        let losses = self.disk.borrow_mut().crash(at, how, fate);
        if self.disk.borrow().failed().is_some() {
            self.disk.borrow_mut().mend();
        }
        self.slowness = 1;
        self.powered_off = matches!(how, Crash::Power { .. });
        self.abandon_connections(shared);
        let (server, incarnation, losses) = (self.id, self.incarnation, &losses);
        shared.record(&RunEvent::Ended { server, incarnation, planned, how, uncommitted, losses });
    }

    /// The kernel of a killed process resets its connections; a machine without power sends
    /// nothing, and a partition keeps the resets from arriving.
    fn abandon_connections(&mut self, shared: &mut Shared) {
        let me = Party::Server(self.id);
        let mine: Vec<(ConnId, End, Party)> = shared
            .net
            .list()
            .filter_map(|(conn, [dialler, acceptor])| {
                let ends = [(End::Dialler, dialler, acceptor), (End::Acceptor, acceptor, dialler)];
                let (end, _, other) = ends.into_iter().find(|(_, party, _)| *party == me)?;
                Some((conn, end, other))
            })
            .collect();
        for (conn, end, other) in mine {
            let silent = self.silence((conn, end), other, shared);
            shared.net.abandon(shared.now, conn, end, silent);
        }
        shared.schedule_arrivals();
    }

    /// The machine runs again, and answers what arrives on connections of its former processes,
    /// except from servers that a partition separates from it.
    pub(super) fn reset_old_connections(&self, shared: &mut Shared) {
        let Shared { net, reach, now, .. } = shared;
        net.reboot(Party::Server(self.id), |other| match other {
            Party::Server(peer) => reach.connects(*now, self.id, peer),
            Party::Client(_) | Party::BadPeer => true,
        });
    }

    fn silence(
        &self,
        (conn, end): (ConnId, End),
        other: Party,
        shared: &mut Shared,
    ) -> Option<Silence> {
        let cut = match other {
            Party::Client(_) | Party::BadPeer => None,
            Party::Server(peer) => shared.reach.cut_until(shared.now, self.id, peer),
        };
        if !self.powered_off && cut.is_none() {
            return None;
        }
        let rng = shared.net.rng(conn, end)?;
        let late = Instant(shared.now.0 + rng.range(1, 60) * 1_000_000_000);
        let late = if self.powered_off { late } else { cut.unwrap_or(late) };
        let on_write = match other {
            Party::Client(_) | Party::BadPeer => true,
            // Nothing answers while the power is off.
            Party::Server(_) => cut.is_none() && rng.chance(1, 2),
        };
        Some(Silence { late, on_write })
    }
}

/// A power failure with the disk faults of the fault plan.
pub(super) fn power(options: &Options) -> Crash {
    let has = |fault| options.faults.has(fault);
    Crash::Power {
        torn: has(Fault::DiskTorn),
        garbage: has(Fault::DiskGarbage),
        names: has(Fault::DiskNames),
    }
}
