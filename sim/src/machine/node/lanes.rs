//! The three disk workers of one server: the real store executes batches of commands, laid out in
//! virtual time.
//!
//! Owns the queues of the workers and their progress. Must not know the purpose of commands.

use std::cell::RefCell;

use storage_fs::{LogLane, Opened, ReaderLane, SnapshotLane, StoreError};
use zabkeeper_core::store::{DiskCommand, DiskEvent, Lane};
use zabkeeper_core::{Instant, ServerId};

use crate::check::guard;
use crate::check::observe::Observation;
use crate::engine::seed::Rng;
use crate::machine::fs::{Disk, SimFs};
use crate::record::trace::Kind;
use crate::world::shared::{Event, Shared};

/// The disk workers of one server.
pub(super) struct Lanes {
    server: ServerId,
    incarnation: u64,
    log: LogLane<SimFs>,
    snapshots: SnapshotLane<SimFs>,
    reader: ReaderLane<SimFs>,
    waiting: [Vec<DiskCommand>; 3],
    /// Results that busy workers will report.
    outcome: [Option<Option<DiskEvent>>; 3],
    stopped: bool,
    /// Until when the workers are busy.
    busy_until: Instant,
    /// When the log worker last finished a batch.
    last_batch: Instant,
    /// Is a check planned whether the log is idle?
    idle_check_planned: bool,
    /// How long the log is idle before its end is recorded, ns.
    quiet: u64,
    /// Is the end of the log recorded, with no batch after it?
    recorded: Recorded,
    /// Draws the times of audits between operations of a worker.
    looks: Rng,
    /// Draws how long workers pause, if the run has pauses.
    pauses: Rng,
}

/// A batch that takes this many mean syncs contains a slow sync.
const SLOW_SYNCS: u64 = 30;

/// Is the end of the log recorded?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recorded {
    No,
    UnderWay,
    Yes,
}

impl Lanes {
    /// The workers of a store that was just opened.
    pub(super) fn new(
        server: ServerId,
        incarnation: u64,
        opened: Opened<SimFs>,
        [looks, pauses]: [Rng; 2],
        quiet: u64,
    ) -> Lanes {
        let Opened { log, snapshots, reader, .. } = opened;
        Lanes {
            server,
            incarnation,
            log,
            snapshots,
            reader,
            waiting: [const { Vec::new() }; 3],
            outcome: [const { None }; 3],
            stopped: false,
            busy_until: Instant(0),
            last_batch: Instant(0),
            idle_check_planned: false,
            quiet,
            // Opening the store records the end of the log.
            recorded: Recorded::Yes,
            pauses,
            looks,
        }
    }

    /// Number of commands that wait or run.
    pub(super) fn load(&self) -> usize {
        let busy = self.outcome.iter().filter(|outcome| outcome.is_some()).count();
        busy + self.waiting.iter().map(Vec::len).sum::<usize>()
    }

    pub(super) fn push(&mut self, command: DiskCommand) {
        self.waiting[command.lane() as usize].push(command);
    }

    /// Starts idle workers. Returns when the last of them will have finished.
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
            self.note_slow(lane, (done, end), disk, shared);
            self.plan_looks(&batch, disk, shared);
            record(disk, self.server, shared);
            match lane {
                Lane::Log => {
                    shared.recorder.counters.counts.batches += 1;
                    self.recorded = Recorded::No;
                }
                Lane::Snapshot => {}
                Lane::Reader => shared.recorder.counters.counts.log_reads += 1,
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
            shared.at(
                end,
                Event::LaneDone { server: self.server, incarnation: self.incarnation, lane },
            );
            ends = ends.max(end);
            self.busy_until = self.busy_until.max(end);
        }
        ends
    }

    /// The worker is busy until `done`, and reports at `end`: for the oracles the disk is faulty
    /// until then if it is slow, also in one of its rare slow syncs. A batch that begins on a slow
    /// disk may end long after the disk is fast again (L8).
    fn note_slow(
        &self,
        lane: Lane,
        (done, end): (Instant, Instant),
        disk: &RefCell<Disk>,
        shared: &mut Shared,
    ) {
        let disk_options = &shared.options.disk;
        let usual = SLOW_SYNCS * disk_options.sync_mean + disk_options.op_mean * 1_000;
        let slow = lane == Lane::Log && done.since(shared.now).as_nanos() > usual.into();
        if slow || shared.now < disk.borrow().faults.slow_until {
            shared.observe(Observation::FaultInjected { servers: &[self.server], until: end });
        }
    }

    /// How long a worker waits before it reports its result, ns. The snapshot worker does not wait
    /// if more commands are queued: pieces of a leader's snapshot arrive faster than those of a
    /// server's own, which come one by one.
    fn pause(&mut self, lane: Lane, shared: &Shared) -> u64 {
        let server = &shared.options.server;
        let longest_us = match lane {
            Lane::Log => server.log_pause_us,
            Lane::Snapshot if self.waiting[lane as usize].is_empty() => server.snapshot_pause_us,
            Lane::Snapshot | Lane::Reader => 0,
        };
        if longest_us > 0 { self.pauses.range(0, longest_us * 1_000) } else { 0 }
    }

    /// Rare commands leave the disk in states that an audit would hardly meet otherwise, so audits
    /// are planned between their operations.
    fn plan_looks(&mut self, batch: &[DiskCommand], disk: &RefCell<Disk>, shared: &mut Shared) {
        let looks: u64 = batch.iter().map(|command| self.looks_at(command)).sum();
        let spans = if looks > 0 { disk.borrow().spans() } else { Vec::new() };
        if spans.is_empty() {
            return;
        }
        for _ in 0..looks {
            let span = *self.looks.pick(&spans);
            let at = Instant(self.looks.range(span.begin.0, span.end.0));
            shared.at(at, Event::Look { server: self.server, incarnation: self.incarnation });
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

    /// A worker has finished. Returns its result, if there is one.
    pub(super) fn done(&mut self, lane: Lane, shared: &mut Shared) -> Option<DiskEvent> {
        let event = self.outcome[lane as usize].take()?;
        if matches!(event, Some(DiskEvent::Failed(_))) {
            self.stopped = true;
        }
        match (lane, self.recorded) {
            (Lane::Log, Recorded::UnderWay) if !self.stopped => self.recorded = Recorded::Yes,
            (Lane::Log, Recorded::No) => {
                self.last_batch = shared.now;
                self.plan_idle_check(shared);
            }
            (Lane::Log | Lane::Snapshot | Lane::Reader, _) => {}
        }
        event
    }

    fn plan_idle_check(&mut self, shared: &mut Shared) {
        if !std::mem::replace(&mut self.idle_check_planned, true) {
            let at = Instant(self.last_batch.0 + self.quiet).max(shared.now);
            shared.at(at, Event::Quiet { server: self.server, incarnation: self.incarnation });
        }
    }

    /// Lets the log worker record the end of the log if the log has been idle for long enough.
    pub(super) fn check_idle(&mut self, disk: &RefCell<Disk>, shared: &mut Shared) {
        self.idle_check_planned = false;
        let index = Lane::Log as usize;
        let idle = self.outcome[index].is_none() && self.waiting[index].is_empty();
        if !idle || self.stopped || self.recorded != Recorded::No {
            // The check is planned again when the worker has finished.
            return;
        }
        if shared.now.0 < self.last_batch.0 + self.quiet {
            return self.plan_idle_check(shared);
        }
        let (outcome, end) = self.record_end(shared.now, disk, shared);
        self.note_slow(Lane::Log, (end, end), disk, shared);
        self.outcome[index] = Some(outcome);
        self.recorded = Recorded::UnderWay;
        self.busy_until = self.busy_until.max(end);
        let (server, incarnation) = (self.server, self.incarnation);
        shared.at(end, Event::LaneDone { server, incarnation, lane: Lane::Log });
    }

    /// Records the end of the log, starting at `from`. Returns the worker's result, and when it
    /// finishes.
    fn record_end(
        &mut self,
        from: Instant,
        disk: &RefCell<Disk>,
        shared: &mut Shared,
    ) -> (Option<DiskEvent>, Instant) {
        disk.borrow_mut().begin(from);
        let result = guard::catch(|| self.log.record_end());
        let end = disk.borrow().cursor().max(Instant(from.0 + 1));
        record(disk, self.server, shared);
        let event = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(DiskEvent::Failed(error.to_string())),
            Err(panic) => {
                self.stopped = true;
                shared.panicked("the store", &panic);
                None
            }
        };
        (event, end)
    }

    /// Stops the workers: the log worker executes its commands, and records the end of the log.
    /// Returns when it has finished.
    pub(super) fn close(&mut self, disk: &RefCell<Disk>, shared: &mut Shared) -> Instant {
        let begin = self.busy_until.max(shared.now);
        let waiting = std::mem::take(&mut self.waiting[Lane::Log as usize]);
        let mut end = begin;
        if !waiting.is_empty() && !self.stopped {
            disk.borrow_mut().begin(begin);
            let result = guard::catch(|| self.log.run(&waiting).is_ok());
            end = disk.borrow().cursor();
            record(disk, self.server, shared);
            if let Err(panic) = result {
                self.stopped = true;
                shared.panicked("the store", &panic);
            }
        }
        if self.stopped {
            return end;
        }
        let (event, end) = self.record_end(end, disk, shared);
        self.stopped = true;
        if event.is_none() {
            self.recorded = Recorded::Yes;
        }
        end
    }

    /// Has the log worker recorded the end of the log, and executed nothing since?
    pub(super) fn has_recorded_end(&self) -> bool {
        self.recorded == Recorded::Yes
    }
}

/// Puts the latest operations of the disk into the trace.
pub(super) fn record(disk: &RefCell<Disk>, server: ServerId, shared: &mut Shared) {
    for op in disk.borrow_mut().take_ops() {
        shared.recorder.counters.counts.disk_ops += 1;
        let [kind, words @ ..] = op.words();
        let mut payload = [0; 40];
        for (part, word) in payload.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        shared.note(Kind::Disk, (server.0, kind), &payload, || format!("s{server} {op}"));
    }
}
