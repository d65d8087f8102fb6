//! A bounded queue of log lines, and the thread that writes them to an output that may block.
//!
//! Owns the queue, the thread and the count of lost lines. Must not interpret lines.
//!
//! Invariants: pushing a line never waits for the output; the queue holds at most [`QUEUE_BYTES`];
//! lines that do not fit or cannot be written are counted, and the count is logged once a write
//! succeeds again.
//!
//! `tracing-appender` has a similar writer. But it prints to standard output and error when it
//! shuts down, so that a closed or blocked output would panic or block the server; it does not
//! count lines that could not be written; and its bound is a number of lines, which may be long.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Maximum bytes of waiting lines: some seconds of the highest log rate of the server.
const QUEUE_BYTES: usize = 1 << 20;

/// Capacity in bytes that an empty buffer may keep.
const IDLE_BYTES: usize = 64 << 10;

/// Pause before a retry after `WouldBlock`, from an output in non-blocking mode.
const RETRY: Duration = Duration::from_millis(50);

/// The sending end of the queue. Clones share the queue.
#[derive(Clone)]
pub(super) struct NonBlocking(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Complete lines that wait.
    lines: Vec<u8>,
    /// Is the thread writing lines that it has taken?
    writing: bool,
    /// Lines lost since the count was last logged.
    dropped: u64,
    /// Why the latest of them was lost.
    why: String,
}

impl NonBlocking {
    /// Starts the thread, which ends with the process.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub(super) fn start(output: impl io::Write + Send + 'static) -> io::Result<NonBlocking> {
        let queue = Arc::new(Queue::default());
        let of_thread = Arc::clone(&queue);
        let run = move || of_thread.write_for_ever(output);
        thread::Builder::new().name("log output".to_owned()).spawn(run)?;
        Ok(NonBlocking(queue))
    }

    /// Queues one line, which ends with a line feed; drops it if the queue is full.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.lines.len() + line.len() > QUEUE_BYTES {
            state.dropped += 1;
            state.why = format!("{} KiB of lines waited to be written", QUEUE_BYTES >> 10);
            return;
        }
        state.lines.extend_from_slice(line);
        drop(state);
        self.0.changed.notify_all();
    }

    /// Locks the queue: until the guard is dropped, every thread that logs blocks.
    #[cfg(test)]
    pub(super) fn held(&self) -> impl Drop + '_ {
        self.0.lock()
    }

    /// Waits until all lines are written, at most for `time`.
    pub(super) fn flush(&self, time: Duration) {
        let latest = Instant::now() + time;
        let mut state = self.0.lock();
        while state.writing || !state.lines.is_empty() {
            let left = latest.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.0.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl io::Write for &NonBlocking {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for NonBlocking {
    type Writer = &'a NonBlocking;

    fn make_writer(&'a self) -> &'a NonBlocking {
        self
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The lock is poisoned after a panic, but the panic still has to be logged.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_for_ever(&self, mut output: impl io::Write) {
        let mut batch = Vec::new();
        // Did the last write end within a line?
        let mut is_cut = false;
        loop {
            batch.clear();
            if is_cut {
                batch.push(b'\n');
            }
            let first = batch.len();
            self.take(&mut batch);
            match write(&mut output, &batch) {
                Ok(()) => {
                    is_cut = false;
                    self.say_what_was_dropped();
                }
                Err((written, error)) => {
                    is_cut = written.checked_sub(1).map_or(is_cut, |last| batch[last] != b'\n');
                    self.drop_lines(&batch[written.max(first)..], &error);
                }
            }
            if batch.capacity() > IDLE_BYTES {
                batch = Vec::new();
            }
        }
    }

    /// Moves all waiting lines to `batch`; blocks until there are some.
    fn take(&self, batch: &mut Vec<u8>) {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        while state.lines.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.writing = true;
        batch.append(&mut state.lines);
        if state.lines.capacity() > IDLE_BYTES {
            state.lines = Vec::new();
        }
    }

    fn drop_lines(&self, lines: &[u8], error: &io::Error) {
        let mut state = self.lock();
        state.dropped += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        state.why = error.to_string();
    }

    fn say_what_was_dropped(&self) {
        let mut state = self.lock();
        let (dropped, why) = (std::mem::take(&mut state.dropped), std::mem::take(&mut state.why));
        drop(state);
        if dropped > 0 {
            tracing::warn!("lost {dropped} lines of this log: {why}");
        }
    }
}

/// Writes all bytes.
///
/// # Errors
/// The error of the output, and how many bytes were written before it.
fn write(output: &mut impl io::Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(some) => written += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(RETRY),
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output with room for a number of bytes; it blocks while a test holds the lock.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, room) = &mut *self.0.lock().unwrap();
            let some = bytes.len().min(*room);
            if some == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= some;
            written.extend_from_slice(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Disk {
        fn with_room(room: usize) -> Disk {
            Disk(Arc::new(Mutex::new((Vec::new(), room))))
        }

        fn make_room(&self) {
            self.0.lock().unwrap().1 = usize::MAX;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn lines_are_written_in_order() {
        let disk = Disk::with_room(usize::MAX);
        let log = NonBlocking::start(disk.clone()).unwrap();
        (0..1000).for_each(|i| log.push(format!("{i}\n").as_bytes()));
        log.flush(LONG);
        let expected: String = (0..1000).map(|i| format!("{i}\n")).collect();
        assert_eq!(disk.text(), expected);
    }

    #[test]
    fn blocked_output_blocks_no_logger_and_dropped_lines_are_counted() {
        let disk = Disk::with_room(usize::MAX);
        let log = NonBlocking::start(disk.clone()).unwrap();
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        let standing_still = disk.0.lock().unwrap();
        log.push(&line);
        while !log.0.lock().writing {
            thread::yield_now();
        }
        (0..1024 + 7).for_each(|_| log.push(&line));
        log.flush(Duration::from_millis(1));
        let state = log.0.lock();
        assert_eq!((state.lines.len(), state.dropped), (QUEUE_BYTES, 7));
        drop((state, standing_still));
        log.flush(LONG);
        assert_eq!(disk.text().lines().count(), 1 + 1024);
        assert_eq!(log.0.lock().dropped, 0, "has been said");
    }

    #[test]
    fn output_resumes_with_whole_lines_after_full_disk() {
        let disk = Disk::with_room(6);
        let log = NonBlocking::start(disk.clone()).unwrap();
        for line in ["one\n", "two\n", "three\n"] {
            log.push(line.as_bytes());
            log.flush(LONG);
        }
        assert_eq!((log.0.lock().dropped, disk.text().as_str()), (2, "one\ntw"));
        disk.make_room();
        log.push(b"four\n");
        log.flush(LONG);
        assert_eq!((log.0.lock().dropped, disk.text().as_str()), (0, "one\ntw\nfour\n"));
    }
}
