//! The three disk workers of one server: batches of commands run by the real store, laid out in virtual time.
//!
//! Owns what waits for a worker and what it is doing. Must not know what the commands are for.

use std::cell::RefCell;

use storage_fs::{LogLane, Opened, ReaderLane, SnapshotLane, StoreError};
use zabkeeper_core::io::{DiskCommand, DiskEvent, Lane};
use zabkeeper_core::{Instant, ServerId};

use crate::fs::{Disk, SimFs};
use crate::guard;
use crate::observe::Observation;
use crate::seed::Dice;
use crate::shared::{Event, Shared};
use crate::trace::Kind;

/// All of them.
pub(super) struct Lanes {
    server: ServerId,
    life: u64,
    log: LogLane<SimFs>,
    snapshots: SnapshotLane<SimFs>,
    reader: ReaderLane<SimFs>,
    waiting: [Vec<DiskCommand>; 3],
    /// What a busy worker will say when it has finished.
    outcome: [Option<Option<DiskEvent>>; 3],
    stopped: bool,
    /// When somebody looks at the disk amid what a worker does.
    looks: Dice,
    /// How long workers pause where the run has that.
    pauses: Dice,
}

impl Lanes {
    /// The workers of a store that has just been opened.
    pub(super) fn new(
        server: ServerId,
        life: u64,
        opened: Opened<SimFs>,
        [looks, pauses]: [Dice; 2],
    ) -> Lanes {
        let Opened { log, snapshots, reader, .. } = opened;
        Lanes {
            server,
            life,
            log,
            snapshots,
            reader,
            waiting: [const { Vec::new() }; 3],
            outcome: [const { None }; 3],
            stopped: false,
            pauses,
            looks,
        }
    }

    /// Commands that wait or run.
    pub(super) fn load(&self) -> usize {
        let busy = self.outcome.iter().filter(|outcome| outcome.is_some()).count();
        busy + self.waiting.iter().map(Vec::len).sum::<usize>()
    }

    pub(super) fn push(&mut self, command: DiskCommand) {
        self.waiting[command.lane() as usize].push(command);
    }

    /// Lets idle workers begin. Gives the time at which the last of them will have finished.
    pub(super) fn start(&mut self, disk: &RefCell<Disk>, shared: &mut Shared) -> Instant {
        let mut ends = shared.now;
        for lane in [Lane::Log, Lane::Snapshot, Lane::Reader] {
            let index = lane as usize;
            if self.outcome[index].is_some() || self.waiting[index].is_empty() || self.stopped {
                continue;
            }
            let most = match lane {
                Lane::Log => shared.options.server.batch_commands,
                Lane::Snapshot | Lane::Reader => 1,
            };
            let count = most.min(self.waiting[index].len());
            let batch: Vec<DiskCommand> = self.waiting[index].drain(..count).collect();
            disk.borrow_mut().begin(shared.now);
            let result = guard::catch(|| self.run(&batch));
            let done = disk.borrow().cursor().max(Instant(shared.now.0 + 1));
            let end = Instant(done.0 + self.pause(lane, shared));
            if shared.now < disk.borrow().trouble.slow_until {
                // What begins on a slow disk may end long after that is over (seed 0x6001003a, L8).
                shared.observe(Observation::Struck { servers: &[self.server], until: end });
            }
            self.plan_looks(&batch, disk, shared);
            record(disk, self.server, shared);
            match lane {
                Lane::Log => shared.tally.counts.batches += 1,
                Lane::Snapshot => {}
                Lane::Reader => shared.tally.counts.log_reads += 1,
            }
            self.outcome[index] = Some(match result {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => Some(DiskEvent::Failed(error.to_string())),
                Err(panic) => {
                    self.stopped = true;
                    shared.panicked("the store", &panic);
                    None
                }
            });
            shared.at(end, Event::LaneDone { server: self.server, life: self.life, lane });
            ends = ends.max(end);
        }
        ends
    }

    /// How long a worker that has done its work takes to say so, ns. The one that writes snapshots has no time for that where
    /// more waits already: pieces of a leader's snapshot come faster than a server's own, which come one by one.
    fn pause(&mut self, lane: Lane, shared: &Shared) -> u64 {
        let server = &shared.options.server;
        let longest_us = match lane {
            Lane::Log => server.log_pause_us,
            Lane::Snapshot if self.waiting[lane as usize].is_empty() => server.snapshot_pause_us,
            Lane::Snapshot | Lane::Reader => 0,
        };
        if longest_us > 0 { self.pauses.range(0, longest_us * 1_000) } else { 0 }
    }

    /// What is done rarely leaves disks that one would hardly see otherwise: they are looked at between its operations.
    fn plan_looks(&mut self, batch: &[DiskCommand], disk: &RefCell<Disk>, shared: &mut Shared) {
        let looks: u64 = batch.iter().map(|command| self.looks_at(command)).sum();
        let spans = if looks > 0 { disk.borrow().spans() } else { Vec::new() };
        if spans.is_empty() {
            return;
        }
        for _ in 0..looks {
            let span = *self.looks.pick(&spans);
            let at = Instant(self.looks.range(span.begin.0, span.end.0));
            shared.at(at, Event::Look { server: self.server, life: self.life });
        }
    }

    fn looks_at(&mut self, command: &DiskCommand) -> u64 {
        match command {
            DiskCommand::Truncate { .. } | DiskCommand::Rebase { .. } => 2,
            DiskCommand::SaveState { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Purge { .. } => u64::from(self.looks.chance(1, 16)),
            DiskCommand::Append { .. }
            | DiskCommand::SnapshotChunk { .. }
            | DiskCommand::ReadLog { .. }
            | DiskCommand::ReadSnapshot { .. } => 0,
        }
    }

    fn run(&mut self, batch: &[DiskCommand]) -> Result<Option<DiskEvent>, StoreError> {
        let first = batch.first().expect("a batch has a command");
        match first.lane() {
            Lane::Log => Ok(Some(DiskEvent::Done(self.log.run(batch)?))),
            Lane::Snapshot => self.snapshots.run(first),
            Lane::Reader => Ok(Some(self.reader.run(first))),
        }
    }

    /// A worker has finished: what it says, if anything.
    pub(super) fn done(&mut self, lane: Lane) -> Option<DiskEvent> {
        let event = self.outcome[lane as usize].take()?;
        if matches!(event, Some(DiskEvent::Failed(_))) {
            self.stopped = true;
        }
        event
    }
}

/// Puts the operations that a worker has just made into the trace.
pub(super) fn record(disk: &RefCell<Disk>, server: ServerId, shared: &mut Shared) {
    for op in disk.borrow_mut().take_ops() {
        shared.tally.counts.disk_ops += 1;
        let [kind, words @ ..] = op.words();
        let mut payload = [0; 40];
        for (part, word) in payload.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        shared.note(Kind::Disk, (server.0, kind), &payload, || format!("s{server} {op}"));
    }
}
