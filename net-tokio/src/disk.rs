//! The three disk threads, one for each lane of the store.
//!
//! Owns the queues of commands to the threads and their completions. Must not interpret commands
//! beyond their lane.
//!
//! The log thread also records the end of the log: when the log has had no appends for a while, and
//! when the process stops.
//!
//! Invariants: each thread runs its commands in order; a failed thread runs nothing more (a failed
//! sync is never retried); every batch is answered by a completion or by the failure.
//!
//! The queues are unbounded, but the core bounds their content: it counts the bytes waiting for the
//! log and pauses client reads (`Limits::undurable_bytes`); the snapshot queue holds one chunk at a
//! time and a purge or two; the reader queue holds one command per link.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use storage_fs::{LogLane, OsDir, ReaderLane, SnapshotLane, StoreError};
use tokio::sync::Notify;
use zabkeeper_core::driver::metrics::LogWrite;
use zabkeeper_core::store::{DiskCommand, DiskEvent, Lane};

use crate::host::Failure;

/// Time without appends after which the log thread records the end of the log, so that the next
/// start detects damage before it. Long enough for the two syncs to cost little, short enough for a
/// server that is killed while idle.
const QUIET: Duration = Duration::from_secs(1);

/// Time to finish the queues and record the end of the log when [`Disk`] is dropped.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// The event loop's handle to the threads. Dropping it lets them finish their queues and waits for
/// them for a while.
pub(crate) struct Disk {
    log: Sender<Vec<DiskCommand>>,
    snapshots: Sender<DiskCommand>,
    reads: Sender<DiskCommand>,
    done: Arc<Completions>,
    /// Dropped last, when the queues are closed.
    threads: Threads,
}

/// The threads. Dropping them waits until they have ended, at most for [`LAST_WRITES`]: they hold
/// the lock of the data directory.
struct Threads(Vec<JoinHandle<()>>);

/// The completions of the threads, and the notification that wakes the event loop.
struct Completions {
    done: Mutex<Done>,
    wake: Arc<Notify>,
}

/// Completions, and the times of the writes to the log among them.
#[derive(Default)]
struct Done {
    events: Vec<DiskEvent>,
    writes: Vec<LogWrite>,
}

impl Disk {
    /// Starts the threads; they notify `wake` after each completion. A write to the log that takes
    /// longer than `slow_write` is logged.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub(crate) fn start(
        log: LogLane<OsDir>,
        snapshots: SnapshotLane<OsDir>,
        reader: ReaderLane<OsDir>,
        wake: Arc<Notify>,
        slow_write: Duration,
    ) -> std::io::Result<Disk> {
        let done = Arc::new(Completions { done: Mutex::default(), wake });
        let (log_sender, log_queue) = channel();
        let (snapshot_sender, snapshot_queue) = channel();
        let mut threads = Threads(Vec::new());
        threads.start("log", &done, move |to| run_log(log, &log_queue, to, slow_write))?;
        threads
            .start("snapshots", &done, move |to| run_snapshots(snapshots, &snapshot_queue, to))?;
        let (read_sender, read_queue) = channel();
        threads.start("reader", &done, move |to| {
            run_reads(reader, &read_queue, to);
            Ok(())
        })?;
        let (log, snapshots, reads) = (log_sender, snapshot_sender, read_sender);
        Ok(Disk { log, snapshots, reads, done, threads })
    }

    /// Sends commands to the threads; `commands` is empty afterwards. Commands for a failed thread
    /// are dropped: its failure is in the completions, and the server is about to stop.
    pub(crate) fn send(&self, commands: &mut Vec<DiskCommand>) {
        if commands.is_empty() {
            return;
        }
        // Fast path: almost always all commands are for the log.
        if commands.iter().any(|command| command.lane() != Lane::Log) {
            for command in commands.extract_if(.., |command| command.lane() != Lane::Log) {
                let worker = match command.lane() {
                    Lane::Snapshot => &self.snapshots,
                    Lane::Reader | Lane::Log => &self.reads,
                };
                let _failed = worker.send(command);
            }
        }
        if !commands.is_empty() {
            let _failed = self.log.send(mem::take(commands));
        }
    }

    /// Takes the completions since the last call, and the writes to the log.
    pub(crate) fn completions(&self) -> (Vec<DiskEvent>, Vec<LogWrite>) {
        let Done { events, writes } = mem::take(&mut *self.done.lock());
        (events, writes)
    }

    /// Lets the threads finish their queues and waits for them.
    ///
    /// # Panics
    /// If a thread has panicked.
    pub(crate) fn join(self) {
        let Disk { log, snapshots, reads, mut threads, .. } = self;
        drop((log, snapshots, reads));
        for thread in threads.0.drain(..) {
            thread.join().unwrap_or_else(|payload| resume_unwind(payload));
        }
    }
}

impl Threads {
    /// Starts a thread. Its failure or panic becomes a completion.
    fn start(
        &mut self,
        name: &str,
        done: &Arc<Completions>,
        run: impl FnOnce(&Completions) -> Result<(), StoreError> + Send + 'static,
    ) -> std::io::Result<()> {
        let to = Arc::clone(done);
        let builder = thread::Builder::new().name(name.to_owned());
        self.0.push(builder.spawn(move || to.report_end(|| run(&to)))?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let latest = Instant::now() + LAST_WRITES;
        while Instant::now() < latest && !self.0.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Completions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().expect("no code that holds it panics")
    }

    fn report(&self, event: DiskEvent) {
        self.lock().events.push(event);
        self.wake.notify_one();
    }

    fn report_write(&self, event: DiskEvent, write: LogWrite) {
        let mut done = self.lock();
        done.events.push(event);
        done.writes.push(write);
        drop(done);
        self.wake.notify_one();
    }

    /// Runs the work of a thread, whose failure or panic ends the server.
    fn report_end(&self, work: impl FnOnce() -> Result<(), StoreError>) {
        // The work is not continued, whatever state a panic has left.
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.report(DiskEvent::Failed(error.to_string())),
            Err(payload) => {
                let failure = Failure::panicked(&*payload);
                self.report(DiskEvent::Failed(failure.to_string()));
                // The event loop may have taken its last completions.
                resume_unwind(payload);
            }
        }
    }
}

/// Group commit: all commands queued during one sync are written together and synced by the next.
fn run_log(
    mut lane: LogLane<OsDir>,
    queue: &Receiver<Vec<DiskCommand>>,
    to: &Completions,
    slow_write: Duration,
) -> Result<(), StoreError> {
    let mut recorded = false;
    loop {
        let received = match recorded {
            true => queue.recv().map_err(|RecvError| RecvTimeoutError::Disconnected),
            false => queue.recv_timeout(QUIET),
        };
        let mut commands = match received {
            Ok(commands) => commands,
            Err(RecvTimeoutError::Timeout) => {
                lane.record_end()?;
                recorded = true;
                continue;
            }
            // The event loop has dropped the queue: the process stops.
            Err(RecvTimeoutError::Disconnected) => return lane.record_end(),
        };
        while let Ok(more) = queue.try_recv() {
            commands.extend(more);
        }
        let began = Instant::now();
        let durable = lane.run(&commands)?;
        recorded = false;
        let took = began.elapsed();
        to.report_write(DiskEvent::Done(durable), LogWrite { took, commands: commands.len() });
        if took > slow_write {
            tracing::warn!(
                "the disk took {} ms to write and sync {} commands to the log \
                 (fsync.warningthresholdms={}); whoever \
                 writes waits for it",
                took.as_millis(),
                commands.len(),
                slow_write.as_millis()
            );
        }
    }
}

fn run_snapshots(
    mut lane: SnapshotLane<OsDir>,
    queue: &Receiver<DiskCommand>,
    to: &Completions,
) -> Result<(), StoreError> {
    let mut warned = None;
    while let Ok(command) = queue.recv() {
        let Some(event) = lane.run(&command)? else {
            continue;
        };
        match &event {
            // All remaining chunks of the snapshot fail; one warning is enough.
            DiskEvent::SnapshotFailed { zxid, why, .. } if warned != Some(*zxid) => {
                tracing::warn!("the snapshot at {zxid} is given up for now: {why}");
                warned = Some(*zxid);
            }
            DiskEvent::SnapshotFailed { .. } => {}
            DiskEvent::ChunkDone { .. }
            | DiskEvent::Done(_)
            | DiskEvent::Failed(_)
            | DiskEvent::LogRead { .. }
            | DiskEvent::SnapshotRead { .. } => warned = None,
        }
        to.report(event);
    }
    Ok(())
}

/// A failed read does not stop the server: the learner is synchronized in another way, or by
/// another server.
fn run_reads(mut lane: ReaderLane<OsDir>, queue: &Receiver<DiskCommand>, to: &Completions) {
    while let Ok(command) = queue.recv() {
        let event = lane.run(&command);
        if let DiskEvent::LogRead { found: Err(why), .. }
        | DiskEvent::SnapshotRead { found: Err(why), .. } = &event
        {
            tracing::warn!("{command}: {why}");
        }
        to.report(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_a_thread_is_a_failure_of_the_disk() {
        let done = Completions { done: Mutex::default(), wake: Arc::default() };
        let done = Arc::new(done);
        let mut threads = Threads(Vec::new());
        threads.start("log", &done, |_| panic!("an invariant is broken")).unwrap();
        threads.0.pop().unwrap().join().expect_err("it has panicked");
        let failure = DiskEvent::Failed("the server panicked: an invariant is broken".to_owned());
        assert_eq!(done.lock().events, [failure]);
    }
}
